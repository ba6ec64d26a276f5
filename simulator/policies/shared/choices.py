"""What policies choose, once: plain functions over flat arrays.

A policy's `allocate` calls them for one step, compiled rounds for millions (`simulator.compiling`).
Request i of a step has row `row[i]` of the tables, whose nodes come in the order's sequence:

    score, value (A, M) falling along a row; size (A,) nodes that exist; depth (A, M) from 1

Nodes of the whole batch are merged best first. Equal ones go to the shallower node, then to the
earlier request (the project's rule), or where depths do not count to the earlier request alone
(CAST). A row is always taken from its front: a shallow node behind an equal, deeper one waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simulator.cost.price import (
    draft_s,
    drafted_s,
    flat_until,
    verify_s,
)

RATE, FIRST, WORTH = range(3)  # what `best_nodes` looks for
SAFE = 1 + 1e-12  # beyond the rounding of a bound
STRETCHES = 80
_STARTS = [1]
while len(_STARTS) < STRETCHES:
    _STARTS.append(_STARTS[-1] + 1 + _STARTS[-1] // 4)
NOT_INLINED = ("take_shared", "best_nodes", "best_depth", "fill_floor")  # where compiled


class Work(NamedTuple):
    """Arrays of a step, one place for each request; what is chosen lies in `width`."""

    width: Any  # nodes
    room: Any  # nodes that it may have
    heap: Any  # requests that have a next node, best first
    key: Any  # its key, smaller first
    level: Any  # its depth, of equals the largest so far
    weight: Any  # of a node's value
    offset: Any  # taken off every node's weighted value
    taken: Any  # (capacity * M,) whose node came when
    start: Any  # (STRETCHES,) numbers of nodes: each up to a fourth more than the one before
    floor_s: Any  # (STRETCHES,) seconds of a step of so many or more, at least


def work_of(capacity: int, nodes: int) -> Work:
    """Room for steps of so many requests, of so many nodes each; weights 1, offsets 0."""
    whole = (np.zeros(capacity, np.int64) for _ in range(3))
    key, level = np.zeros(capacity), np.zeros(capacity, np.int64)
    weight, offset = np.ones(capacity), np.zeros(capacity)
    taken, floor_s = np.zeros(capacity * nodes, np.int64), np.zeros(STRETCHES)
    return Work(*whole, key, level, weight, offset, taken, np.array(_STARTS), floor_s)


# ---------------------------------------------------------------- every request by itself


def take_fixed(row, size, batch, most, width):
    """The first `most` nodes of every request, or all there are."""
    for i in range(batch):
        width[i] = min(most, size[row[i]])


def take_above(row, score, size, batch, least, near_low, near_high, width):
    """The nodes of a score of at least `least`; returns how many lie strictly near it."""
    near = 0
    for i in range(batch):
        at, room, count = row[i], size[row[i]], 0
        while count < room and score[at, count] >= least:
            count += 1
        width[i] = count
        node = count - 1
        while node >= 0 and score[at, node] < near_high:
            near, node = near + 1, node - 1
        node = count
        while node < room and score[at, node] > near_low:
            near, node = near + 1, node + 1
    return near


# ---------------------------------------------------------------- one budget over the batch


def take_shared(row, score, size, batch, most, budget, start, work):
    """The `budget` best nodes of the batch, at most `most` of a request; depths do not count.

    Every row gives its nodes from the score `start` on; what is missing or too much is then taken
    or given back node by node. So `start` decides how long it takes, and nothing else.

    Returns:
        The score of the last node moved: where to start next.
    """
    taken = 0
    for i in range(batch):
        room, width = min(size[row[i]], most), 0
        while width < room and score[row[i], width] >= start:
            width += 1
        work.room[i], work.width[i] = room, width
        work.level[i] = 0
        taken += width
    if taken < budget:
        return move(row, score, batch, budget - taken, start, work, 1)
    return move(row, score, batch, taken - budget, start, work, -1)


def move(row, score, batch, count, start, work, sign):
    """Add the best `count` nodes that come next in their rows (sign 1), or give back the worst.

    Of equals the first request's are added, the last request's given back.
    """
    if count == 0:
        return start
    width, room, key, heap, waiting = work.width, work.room, work.key, work.heap, 0
    behind = 0 if sign > 0 else 1  # of the node to be moved, from a row's width
    for i in range(batch):
        if width[i] != (room[i] if sign > 0 else 0):
            key[i] = -sign * score[row[i], width[i] - behind]
            heap[waiting] = i
            waiting += 1
    heapify(work, waiting, sign)
    while count > 0 and waiting > 0:
        i = heap[0]
        start = -sign * key[i]
        width[i] += sign
        count -= 1
        if width[i] != (room[i] if sign > 0 else 0):
            key[i] = -sign * score[row[i], width[i] - behind]
        else:
            waiting -= 1
            heap[0] = heap[waiting]
        sink(work, waiting, 0, sign)
    return start


def heapify(work, count, sign):
    """Order the first `count` places of the heap."""
    for place in range(count // 2 - 1, -1, -1):
        sink(work, count, place, sign)


def sink(work, count, place, sign):
    """Restore the heap below `place`: smaller key, then level, then sign x request first."""
    if place >= count:
        return
    heap, key, level = work.heap, work.key, work.level
    item = heap[place]
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        best = heap[child]
        if child + 1 < count and before(key, level, heap[child + 1], best, sign):
            child, best = child + 1, heap[child + 1]
        if before(key, level, item, best, sign):
            break
        heap[place] = best
        place = child
    heap[place] = item


def before(key, level, one, other, sign):
    """Whether one request's next node comes before another's."""
    if key[one] != key[other]:
        return key[one] < key[other]
    if level[one] != level[other]:
        return level[one] < level[other]
    return sign * one < sign * other


# ---------------------------------------------------------------- merged, best first


def open_merge(row, value, size, depth, batch, work):
    """Begin with no node; returns how many requests have one, and how many nodes there are."""
    count = nodes = 0
    for i in range(batch):
        work.width[i] = 0
        nodes += size[row[i]]
        if size[row[i]] > 0:
            work.key[i] = work.offset[i] - value[row[i], 0] * work.weight[i]
            work.level[i] = depth[row[i], 0]
            work.heap[count] = i
            count += 1
    heapify(work, count, 1)
    return count, nodes


def take_next(row, value, size, depth, count, work):
    """Take the best node of all that come next; returns how many requests still have one."""
    i = work.heap[0]
    at = work.width[i] = work.width[i] + 1
    if at < size[row[i]]:
        key = work.offset[i] - value[row[i], at] * work.weight[i]
        deep = depth[row[i], at]
        work.level[i] = max(work.level[i], deep) if key == work.key[i] else deep
        work.key[i] = key
    else:
        count -= 1
        work.heap[0] = work.heap[count]
    sink(work, count, 0, 1)
    return count


def take_best(row, value, size, depth, batch, budget, work):
    """The `budget` best nodes of the batch, or all there are."""
    count, nodes = open_merge(row, value, size, depth, batch, work)
    for _ in range(min(budget, nodes)):
        count = take_next(row, value, size, depth, count, work)


def best_nodes(p, floor, step, aim, row, value, size, depth, work):
    """How many of the best nodes to verify, for a cost that is a staircase.

    Looks at every number of nodes, in the order in which they are taken, until no larger one can
    do better. A rule that stops at the first node that does not pay cannot see past a jump.

    Args:
        p, floor: `StepCost.prices` and `StepCost.floor`.
        step: (batch, context, ordered, tree), the context a mean, ordered in all.
        aim: (goal, price, limit_s, rising, base).
            goal: RATE: most (base + gain) / seconds, the smallest number of equals. WORTH: most
            gain - price x seconds. FIRST: the last before (base + gain) / seconds fails to rise.
            limit_s: no longer step, if one with fewer nodes keeps to it; inf: none.
            rising: whether cost is taken never to fall, as a running maximum.

    Returns:
        The number, its gain and seconds, and the seconds of no node; widths lie in `work`.
    """
    batch, context, ordered, tree = step
    goal, price, limit_s, rising, base = aim
    count, nodes = open_merge(row, value, size, depth, batch, work)
    drafter_s = draft_s(p, batch, context)[0]
    gain, number, largest, until, target_s = 0.0, 0, 0, -1.0, 0.0
    best, best_gain, best_s, most, least_s, longest_s = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    check_at, stretch = 8, -1
    while True:
        total = float(batch * (largest + 1) if p.dense else batch + number)
        if total > until:
            target_s = verify_s(p, batch, total, context, largest + 1)[0]
            until = flat_until(p, batch, total, context)
        seconds = drafted_s(p, batch, number, target_s, drafter_s, tree, ordered)
        longest_s = max(longest_s, seconds)
        seconds = longest_s if rising else seconds
        merit = gain - price * seconds if goal == WORTH else (base + gain) / seconds
        if number == 0:
            least_s = seconds
        elif seconds > limit_s:
            break
        if number == 0 or merit > most:
            best, best_gain, best_s, most = number, gain, seconds, merit
        elif goal == FIRST:
            break
        if number == nodes or least_s > limit_s:
            break
        i = work.heap[0]
        if number >= check_at:
            if stretch < 0:
                fill_floor(floor, step, drafter_s, nodes, work)
            here = number, nodes, gain, -work.key[i], most
            stretch = better_stretch(aim, here, max(stretch, 0), work)
            if stretch < 0:
                break
            check_at = number + 1 + number // 8
        gain -= work.key[i]
        work.taken[number] = i
        count = take_next(row, value, size, depth, count, work)
        largest = max(largest, work.width[i])
        number += 1
    for place in range(best, number):
        work.width[work.taken[place]] -= 1
    return best, best_gain, best_s, least_s


def fill_floor(floor, step, drafter_s, nodes, work):
    """The least that steps of up to so many nodes can take, by the first number of each stretch."""
    batch, context, ordered, tree = step
    stretch = 0
    while work.start[stretch] <= nodes:
        first = work.start[stretch]
        each = (first + batch - 1) // batch  # of the largest request, at least
        total = float(batch * (each + 1) if floor.dense else batch + first)
        target_s = verify_s(floor, batch, total, context, each + 1)[0]
        seconds = drafted_s(floor, batch, first, target_s, drafter_s, tree, ordered)
        # Eager passes may be cheaper than those of a deployment's own captured sizes: no floor.
        work.floor_s[stretch] = seconds if len(floor.sizes) == 0 else 0.0
        stretch += 1


def better_stretch(aim, here, last, work):
    """A stretch of larger numbers that may hold a better one, or -1: no node is worth more than
    the next, and no step costs less than the first of its stretch can.

    last: where there was one before; it is looked at first.
    """
    number, nodes = here[0], here[1]
    if work.start[last + 1] > number + 1 and may_beat(aim, here, last, work):
        return last
    stretch = 0
    while work.start[stretch] <= nodes:
        ahead = work.start[stretch + 1] > number + 1 and stretch != last
        if ahead and may_beat(aim, here, stretch, work):
            return stretch
        stretch += 1
    return -1


def may_beat(aim, here, stretch, work):
    """Whether a number of the stretch can be better than the best so far."""
    goal, price, _, _, base = aim
    number, nodes, gain, next_key, most = here
    seconds = work.floor_s[stretch]
    could = gain + max(next_key, 0.0) * (min(work.start[stretch + 1] - 1, nodes) - number)
    if goal == WORTH:
        return could - price * seconds + (SAFE - 1) * (abs(could) + price * seconds) > most
    return (base + could) * SAFE > most * seconds


def best_depth(p, step, aim, row, value, size, work):
    """`best_nodes` where every request is padded to the largest tree.

    Numbers are of each request; those below the largest tree are free.
    """
    batch, context, ordered, tree = step
    goal, price, limit_s, _, base = aim
    nodes = value.shape[1]
    drafter_s, gain = draft_s(p, batch, context)[0], 0.0
    best, best_gain, best_s, most, least_s = 0, 0.0, 0.0, 0.0, 0.0
    for number in range(nodes + 1):
        column = 0.0
        for i in range(batch):
            if 0 < number <= size[row[i]]:
                column += value[row[i], number - 1] * work.weight[i] - work.offset[i]
        gain += column
        target_s = verify_s(p, batch, float(batch * (number + 1)), context, number + 1)[0]
        seconds = drafted_s(p, batch, batch * number, target_s, drafter_s, tree, ordered)
        if number > 0 and (seconds > limit_s or least_s > limit_s):
            break
        merit = gain - price * seconds if goal == WORTH else (base + gain) / seconds
        if number == 0 or merit > most:
            best, best_gain, best_s, most = number, gain, seconds, merit
        least_s = seconds if number == 0 else least_s
    take_fixed(row, size, batch, best, work.width)
    return best, best_gain, best_s, least_s
