"""Rounds of a closed loop, compiled: admit, decide, price, commit, finish, refill; many at a call.

Every number is computed by the operations, and in the order, of `simulator.engine.server`, of
`simulator.cost` and of `simulator.policies.shared.selection`: results are equal to the last bit.
All in one file, because numba does not recompile a caller when a function elsewhere changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

FULL, BLOCK, SWITCH, DONE = range(4)  # why `advance` came back, see there
PLAIN, FIXED, THRESHOLD, SHARED = range(4)  # kinds of rules
MEASURED, INTERPOLATED, MODELLED, CLAMPED = 1, 2, 4, 8  # cost.Source

# Rows of the slots, of the counters and of the clock.
REQUEST, ANCHOR, CONTEXT, LEFT, DEFERRED, WIDTH, ROOM = range(7)
BATCH, ARRIVED, ADMITTED, FINISHED, NEAR, STEPS, ROUNDS = range(7)
OLD_ADMITTED, OLD_FINISHED = 7, 8  # at the start of the chunk
NOW, START = range(2)

# Nothing is allocated, so no references to arrays need counting (see orders.kernel).
BORROWED = {"cache": True, "nogil": True, "_nrt": False, "error_model": "numpy"}


class Requests(NamedTuple):
    """Requests `first`.. of the run, n of the `total`: where they stand at admission."""

    anchor: np.ndarray  # (n,) int64
    context: np.ndarray  # (n,) int64 KV tokens before the root
    left: np.ndarray  # (n,) int64 outputs behind the root
    prefill_s: np.ndarray  # (n,)
    first: int
    total: int


class Rules(NamedTuple):
    """What is done at every batch size 0..capacity; sizes of one `group` share kind and table."""

    group: np.ndarray  # int64
    number: np.ndarray  # int64 width, or nodes of the shared budget
    theta: np.ndarray  # log survivals: the threshold,
    low: np.ndarray  # and what is near it
    high: np.ndarray


class Table(NamedTuple):
    """The order of a group and how it is used."""

    mine: int  # the group
    kind: int  # of its rules
    most: int  # nodes that one request may take
    tree: bool
    fed: bool  # whether the drafter is kept up to date through plain steps
    score: np.ndarray  # (A, M)
    size: np.ndarray  # (A,) int32
    hit_rank: np.ndarray  # (A, D) int16
    ties: np.ndarray  # (A,) int32


class Host(NamedTuple):
    """`cost.host.HostOverhead`."""

    round_s: float
    node_s: float
    tree_step_s: float
    plain_s: float
    request_s: float
    ordered_node_s: float
    plain_request_s: float
    fed_step_s: float
    catch_up_token_s: float
    tree_request_s: float
    kv_move_token_s: float
    bubble_s: float
    launch_s: float
    overlap: bool


class Prices(NamedTuple):
    """A cost model, flat. Slab s has the curves slab[s]..slab[s + 1], one per context."""

    batch: np.ndarray  # (S,) measured batches
    any_batch: bool
    kv_ms: float
    slab: np.ndarray  # (S + 1,) int64
    slab_first: np.ndarray  # (S,) smallest and largest total measured at all its contexts
    slab_last: np.ndarray
    slab_graph: np.ndarray  # (S,) its largest captured total
    context: np.ndarray  # (C,)
    curve: np.ndarray  # (C + 1,) int64 first point of each curve
    captured: np.ndarray  # (C,) int64
    graph: np.ndarray  # (C,) its largest captured total
    slope: np.ndarray  # (C,) ms per token beyond
    total: np.ndarray  # (P,) packed tokens
    ms: np.ndarray  # (P,)
    draft_batch: np.ndarray  # (B,)
    draft_row: np.ndarray  # (B + 1,) int64 first context of each batch
    draft_context: np.ndarray  # (R,)
    draft_ms: np.ndarray  # (R,)
    draft_compute_ms: float
    draft_steps: float
    kind: int  # MODELLED or 0
    dense: bool
    padded: np.ndarray  # (G,) int64 captured sizes that passes are padded to
    cliff: np.ndarray  # (F, 3) above, factor, seconds
    cliff_of_request: np.ndarray  # (F,) bool
    host: Host


class Steps(NamedTuple):
    """Columns of the steps of a chunk."""

    time_s: np.ndarray
    draft_s: np.ndarray
    verify_s: np.ndarray
    host_s: np.ndarray
    source: np.ndarray
    batch: np.ndarray
    drafted: np.ndarray
    order_ties: np.ndarray
    executed_tokens: np.ndarray


class Rounds(NamedTuple):
    """Columns of the rounds of a chunk, in step order."""

    request: np.ndarray
    anchor: np.ndarray
    width: np.ndarray
    accepted: np.ndarray
    committed: np.ndarray


class Events(NamedTuple):
    """Times of a chunk: requests arrive and are admitted in rising order, and end in any.

    The first three begin with the first request admitted in the chunk.
    """

    arrival_s: np.ndarray
    admitted_s: np.ndarray
    first_token_s: np.ndarray
    finished: np.ndarray
    finish_s: np.ndarray


# ---------------------------------------------------------------- the price of a step


@njit(**BORROWED)
def _bisect(known, first, last, value):
    """First place in first..last whose value is not below `value`, `last` if there is none."""
    while first < last:
        middle = (first + last) >> 1
        if known[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


@njit(**BORROWED)
def _bracket(known, first, last, value):
    """`cost.surface.bracket` over known[first:last]; places are of the whole array."""
    high = _bisect(known, first, last, value)
    if high == last:
        return high - 1, high - 1, 0.0
    if high == first or known[high] == value:
        return high, high, 0.0
    return high - 1, high, (value - known[high - 1]) / (known[high] - known[high - 1])


@njit(**BORROWED)
def _curve(p, c, total):
    """`cost.curve.Curve.at`."""
    first, last = p.curve[c], p.curve[c + 1]
    split = first + p.captured[c]
    if total <= p.graph[c]:
        return p.ms[_bisect(p.total, first, split, total)], MEASURED
    if total > p.total[last - 1]:
        return p.ms[last - 1] + p.slope[c] * (total - p.total[last - 1]), MODELLED
    high = _bisect(p.total, first, last, total)
    if p.total[high] == total:
        return p.ms[high], MEASURED
    if high == split:
        return p.ms[high], INTERPOLATED if split > first else MEASURED
    share = (total - p.total[high - 1]) / (p.total[high] - p.total[high - 1])
    return p.ms[high - 1] + share * (p.ms[high] - p.ms[high - 1]), INTERPOLATED


@njit(**BORROWED)
def _slab(p, s, total, context):
    """`cost.surface.Slab.at`."""
    low, high, share = _bracket(p.context, p.slab[s], p.slab[s + 1], context)
    low_ms, bits = _curve(p, low, total)
    if low == high:
        return low_ms, bits if p.context[low] == context else bits | CLAMPED
    high_ms, high_bits = _curve(p, high, total)
    bits |= high_bits | INTERPOLATED
    if (total <= p.graph[low]) != (total <= p.graph[high]):
        return max(low_ms, high_ms), bits
    return low_ms + share * (high_ms - low_ms), bits


@njit(**BORROWED)
def _two_totals(p, low, high, batch, total):
    """`cost.surface._Between.totals`."""
    offset, span = batch - p.batch[low], p.batch[high] - p.batch[low]
    if total > p.slab_last[low]:
        rest = p.slab_last[low] + (total - p.slab_last[low]) * span / offset
        if rest >= p.slab_first[high]:
            return p.slab_last[low], rest
    if total < p.slab_first[high]:
        start = p.slab_first[high] - (p.slab_first[high] - total) * span / (span - offset)
        return start, p.slab_first[high]
    return total, total


@njit(**BORROWED)
def _surface(p, low, high, share, batch, total, context):
    """`cost.surface.VerifySurface.at`, between the slabs `low` and `high`."""
    if low == high:
        ms, bits = _slab(p, low, total, context)
        return ms, bits if p.any_batch or p.batch[low] == batch else bits | MODELLED
    low_total, high_total = _two_totals(p, low, high, batch, total)
    low_ms, low_bits = _slab(p, low, low_total, context)
    high_ms, high_bits = _slab(p, high, high_total, context)
    bits = low_bits | high_bits | INTERPOLATED
    if (low_total <= p.slab_graph[low]) != (high_total <= p.slab_graph[high]):
        return max(low_ms, high_ms), bits
    return low_ms + share * (high_ms - low_ms), bits


@njit(**BORROWED)
def _verify(p, batch, total, context):
    """Milliseconds and Source bits, `cost.memo.CachedVerify.at`."""
    low, high, share = _bracket(p.batch, 0, len(p.batch), batch)
    least = min(p.context[p.slab[low]], p.context[p.slab[high]])
    most = max(p.context[p.slab[low + 1] - 1], p.context[p.slab[high + 1] - 1])
    inside = min(max(context, least), most)
    ms, bits = _surface(p, low, high, share, batch, total, inside)
    if inside != context:
        bits |= CLAMPED
    last = p.batch[len(p.batch) - 1]
    if not p.any_batch and batch > last:
        ms += p.kv_ms * (batch - last) * context
    return ms, bits


@njit(**BORROWED)
def _draft_row(p, b, context):
    """`cost.drafting.DraftTable._at_batch`."""
    low, high, share = _bracket(p.draft_context, p.draft_row[b], p.draft_row[b + 1], context)
    if low == high:
        return p.draft_ms[low], MEASURED if p.draft_context[low] == context else CLAMPED
    return p.draft_ms[low] + share * (p.draft_ms[high] - p.draft_ms[low]), INTERPOLATED


@njit(**BORROWED)
def _draft_inside(p, batch, context):
    """`cost.drafting.DraftTable.at`, but for the slope beyond the largest batch."""
    low, high, share = _bracket(p.draft_batch, 0, len(p.draft_batch), batch)
    low_ms, bits = _draft_row(p, low, context)
    if low == high:
        return low_ms, bits if p.draft_batch[low] == batch else bits | MODELLED
    high_ms, high_bits = _draft_row(p, high, context)
    return low_ms + share * (high_ms - low_ms), bits | high_bits | INTERPOLATED


@njit(**BORROWED)
def _draft_slope(p, context):
    """`cost.drafting.DraftTable._slope_ms`."""
    last = p.draft_batch[len(p.draft_batch) - 1]
    low = max(p.draft_batch[0], last / 2)
    if low == last:
        return p.draft_compute_ms
    rise = _draft_inside(p, last, context)[0] - _draft_inside(p, low, context)[0]
    return max(max(p.draft_compute_ms, rise / (last - low)), 0.0)


@njit(**BORROWED)
def _draft(p, batch, context):
    """Milliseconds and Source bits, `cost.memo.CachedDraft.at`."""
    low, high, _ = _bracket(p.draft_batch, 0, len(p.draft_batch), batch)
    least = min(p.draft_context[p.draft_row[low]], p.draft_context[p.draft_row[high]])
    most = max(
        p.draft_context[p.draft_row[low + 1] - 1], p.draft_context[p.draft_row[high + 1] - 1]
    )
    inside = min(max(context, least), most)
    ms, bits = _draft_inside(p, batch, inside)
    last = p.draft_batch[len(p.draft_batch) - 1]
    if batch > last:
        ms += (batch - last) * _draft_slope(p, inside)
    return ms, bits if inside == context else bits | CLAMPED


@njit(**BORROWED)
def _work(h, nodes, requests, tree, ordered):
    """`cost.host.HostOverhead._round`: work of a step that drafts, the trees' part, its bubble."""
    trees_s = (h.tree_request_s * requests + h.kv_move_token_s * nodes) * tree
    work_s = h.round_s + h.node_s * nodes + h.tree_step_s * tree
    work_s = work_s + (h.request_s * requests + h.ordered_node_s * ordered) + trees_s
    return work_s, h.node_s * nodes + h.tree_step_s * tree + trees_s, h.bubble_s * tree


@njit(**BORROWED)
def _host(h, nodes, device_s, requests, drafted, tree, ordered, fed):
    """`cost.host.HostOverhead.seen_s`."""
    slack_s = 0.0
    if drafted:
        work_s, trees_s, bubble_s = _work(h, nodes, requests, 1.0 if tree else 0.0, ordered)
    else:
        work_s, trees_s, bubble_s = h.plain_s + h.plain_request_s * requests, 0.0, 0.0
        work_s += h.fed_step_s if fed else 0.0
    if h.launch_s != 0.0:
        slack_s = max(h.launch_s - device_s, 0.0)
        hidden_s = min(trees_s, slack_s)
        left_s = slack_s - hidden_s
        work_s = work_s - hidden_s
        device_s = device_s + max(left_s - bubble_s, 0.0)
        bubble_s = max(bubble_s - left_s, 0.0)
    if h.overlap:
        work_s = max(work_s - device_s, 0.0)
    return slack_s + work_s + bubble_s


@njit(**BORROWED)
def _cliffs(p, verify_s, total, largest):
    """`cost.cliffs.beyond`: seconds, and Source bits."""
    bits = 0
    for i in range(len(p.cliff)):
        if (largest if p.cliff_of_request[i] else total) > p.cliff[i, 0]:
            verify_s = verify_s * p.cliff[i, 1] + p.cliff[i, 2]
            bits = MODELLED
    return verify_s, bits


@njit(**BORROWED)
def price(p, batch, packed, largest, contexts, drafted, tree, ordered, fed, deferred):
    """`cost.StepCost.step`, from sums over the requests.

    Args:
        packed: tokens, roots included; largest: of one request. contexts: the sum.

    Returns:
        draft_s, verify_s, host_s, Source bits as they are resolved, executed tokens.
    """
    total = batch * largest if p.dense else packed
    context = float(contexts) / batch
    ms, bits = _verify(p, float(batch), float(total), context)
    verify_s, cliff_bits = _cliffs(p, ms * 1e-3, total, largest)
    draft_s, bits = 0.0, bits | cliff_bits | p.kind
    if drafted:
        ms, draft_bits = _draft(p, float(batch), context)
        draft_s = ms * 1e-3 * p.draft_steps
        draft_s += p.host.catch_up_token_s * deferred
        bits |= draft_bits
    device_s = draft_s + verify_s
    host_s = _host(p.host, packed - batch, device_s, batch, drafted, tree, ordered, fed)
    weak = bits & (MODELLED | CLAMPED)
    if weak == 0:
        weak = INTERPOLATED if bits & INTERPOLATED else MEASURED
    place = _bisect(p.padded, 0, len(p.padded), total)
    executed = p.padded[place] if place < len(p.padded) else total
    return draft_s, verify_s, host_s, weak, executed


# ---------------------------------------------------------------- widths


@njit(**BORROWED)
def _take_fixed(slots, batch, size, number):
    for i in range(batch):
        slots[WIDTH, i] = min(number, size[slots[ANCHOR, i]])


@njit(**BORROWED)
def _take_threshold(slots, batch, table, theta, low, high):
    """Widths by threshold; returns how many nodes are near it. Scores fall along a row."""
    near = 0
    for i in range(batch):
        row = slots[ANCHOR, i]
        size, width = table.size[row], 0
        while width < size and table.score[row, width] >= theta:
            width += 1
        slots[WIDTH, i] = width
        node = width - 1
        while node >= 0 and table.score[row, node] < high:
            near, node = near + 1, node - 1
        node = width
        while node < size and table.score[row, node] > low:
            near, node = near + 1, node + 1
    return near


@njit(**BORROWED)
def _take_shared(slots, heap, keys, batch, table, budget, start):
    """Widths of the `budget` best nodes of the batch, ties by request, then node.

    Every row gives its nodes from the score `start` on; what is missing or too much is then taken
    or given back node by node. So `start` decides how long it takes, and nothing else.

    Returns:
        The score of the last node moved: where to start next.
    """
    taken = 0
    for i in range(batch):
        row = slots[ANCHOR, i]
        room, width = min(np.int64(table.size[row]), table.most), 0
        while width < room and table.score[row, width] >= start:
            width += 1
        slots[ROOM, i], slots[WIDTH, i] = room, width
        taken += width
    if taken < budget:
        return _grow(slots, heap, keys, batch, table.score, budget - taken, start)
    return _shrink(slots, heap, keys, batch, table.score, taken - budget, start)


@njit(**BORROWED)
def _grow(slots, heap, keys, batch, score, missing, start):
    """Add the best `missing` nodes that come next in their rows: heap of falling scores."""
    count = 0
    for i in range(batch):
        if slots[WIDTH, i] < slots[ROOM, i]:
            keys[i] = -score[slots[ANCHOR, i], slots[WIDTH, i]]
            heap[count] = i
            count += 1
    for place in range(count // 2 - 1, -1, -1):
        _sink(heap, keys, count, place, 1)
    while missing > 0 and count > 0:
        i = heap[0]
        start = -keys[i]
        slots[WIDTH, i] += 1
        missing -= 1
        if slots[WIDTH, i] < slots[ROOM, i]:
            keys[i] = -score[slots[ANCHOR, i], slots[WIDTH, i]]
        else:
            count -= 1
            heap[0] = heap[count]
        _sink(heap, keys, count, 0, 1)
    return start


@njit(**BORROWED)
def _shrink(slots, heap, keys, batch, score, surplus, start):
    """Give back the worst `surplus` nodes: heap of rising scores; of equals the last request's."""
    count = 0
    if surplus == 0:
        return start
    for i in range(batch):
        if slots[WIDTH, i] > 0:
            keys[i] = score[slots[ANCHOR, i], slots[WIDTH, i] - 1]
            heap[count] = i
            count += 1
    for place in range(count // 2 - 1, -1, -1):
        _sink(heap, keys, count, place, -1)
    while surplus > 0:
        i = heap[0]
        start = keys[i]
        slots[WIDTH, i] -= 1
        surplus -= 1
        if slots[WIDTH, i] > 0:
            keys[i] = score[slots[ANCHOR, i], slots[WIDTH, i] - 1]
        else:
            count -= 1
            heap[0] = heap[count]
        _sink(heap, keys, count, 0, -1)
    return start


@njit(**BORROWED)
def _sink(heap, keys, count, place, sign):
    """Restore the heap below `place`: smaller key first, of equals the smaller sign x slot."""
    if place >= count:
        return
    item = heap[place]
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        best = heap[child]
        if child + 1 < count and _before(keys, heap[child + 1], best, sign):
            child, best = child + 1, heap[child + 1]
        if _before(keys, item, best, sign):
            break
        heap[place] = best
        place = child
    heap[place] = item


@njit(**BORROWED)
def _before(keys, one, other, sign):
    return keys[one] < keys[other] or (keys[one] == keys[other] and sign * one < sign * other)


# ---------------------------------------------------------------- the loop


@njit(**BORROWED)
def _end(state, clock, request, total, events):
    """Note a request's end; its client sends the next one at once, if any is left."""
    place = state[FINISHED] - state[OLD_FINISHED]
    events.finished[place], events.finish_s[place] = request, clock[NOW]
    state[FINISHED] += 1
    if state[ARRIVED] < total:
        events.arrival_s[state[ARRIVED] - state[OLD_ADMITTED]] = clock[NOW]
        state[ARRIVED] += 1


@njit(**BORROWED)
def _room(state, events, needed):
    """Whether the buffers of the events hold `needed` more of each."""
    most = len(events.finish_s) - needed
    return (
        state[ARRIVED] - state[OLD_ADMITTED] <= most
        and state[FINISHED] - state[OLD_FINISHED] <= most
    )


@njit(**BORROWED)
def _admit(state, clock, slots, requests, events):
    """Start all that wait, one after another; False where the block or the buffers end before."""
    while state[ADMITTED] < state[ARRIVED]:
        request = state[ADMITTED]
        i = request - requests.first
        if i >= len(requests.left) or not _room(state, events, 1):
            return False
        place = request - state[OLD_ADMITTED]
        events.admitted_s[place] = clock[NOW]
        if requests.prefill_s[i] != 0.0:
            clock[NOW] += requests.prefill_s[i]
        events.first_token_s[place] = clock[NOW]
        state[ADMITTED] += 1
        if requests.left[i] > 0:
            slot = state[BATCH]
            slots[REQUEST, slot], slots[ANCHOR, slot] = request, requests.anchor[i]
            slots[CONTEXT, slot], slots[LEFT, slot] = requests.context[i], requests.left[i]
            slots[DEFERRED, slot] = 0
            state[BATCH] += 1
        else:
            _end(state, clock, request, requests.total, events)
    return True


@njit(**BORROWED)
def _decide(state, clock, slots, heap, keys, rules, table):
    """The widths of the step, by the rule of its batch size."""
    batch = state[BATCH]
    if table.kind == FIXED:
        _take_fixed(slots, batch, table.size, rules.number[batch])
    elif table.kind == THRESHOLD:
        state[NEAR] += _take_threshold(
            slots, batch, table, rules.theta[batch], rules.low[batch], rules.high[batch]
        )
    elif table.kind == SHARED:
        clock[START] = _take_shared(
            slots, heap, keys, batch, table, rules.number[batch], clock[START]
        )
    else:
        for i in range(batch):
            slots[WIDTH, i] = 0


@njit(**BORROWED)
def _sums(slots, batch, table):
    """Nodes in all, of the largest request, ordered; contexts, tokens deferred; rows with ties."""
    nodes = largest = contexts = deferred = ordered = ties = 0
    for i in range(batch):
        nodes += slots[WIDTH, i]
        largest = max(largest, slots[WIDTH, i])
        contexts += slots[CONTEXT, i]
        deferred += slots[DEFERRED, i]
    if table.kind != PLAIN:
        for i in range(batch):
            row = slots[ANCHOR, i]
            ordered += table.size[row]
            ties += table.ties[row] != 0
    return nodes, largest, ordered, contexts, deferred, ties


@njit(**BORROWED)
def _charge(state, clock, slots, table, prices, steps):
    """Price the step, note it, and move the clock to its end."""
    batch, number = state[BATCH], state[STEPS]
    nodes, largest, ordered, contexts, deferred, ties = _sums(slots, batch, table)
    drafted = table.kind != PLAIN
    tree = drafted and table.tree and nodes > 0
    draft_s, verify_s, host_s, source, executed = price(
        prices,
        batch,
        nodes + batch,
        largest + 1,
        contexts,
        drafted,
        tree,
        ordered,
        table.fed,
        deferred,
    )
    steps.time_s[number] = clock[NOW]
    steps.draft_s[number], steps.verify_s[number] = draft_s, verify_s
    steps.host_s[number], steps.source[number] = host_s, source
    steps.batch[number], steps.drafted[number] = batch, drafted
    steps.order_ties[number], steps.executed_tokens[number] = ties, executed
    state[STEPS] += 1
    clock[NOW] += draft_s + verify_s + host_s


@njit(**BORROWED)
def _commit(state, clock, slots, table, total, rounds, events):
    """Move every request past its accepted tokens and the bonus; the ended leave their slots."""
    kept, place = 0, state[ROUNDS]
    drafted = table.kind != PLAIN
    for i in range(state[BATCH]):
        anchor, width, accepted = slots[ANCHOR, i], slots[WIDTH, i], 0
        if drafted:
            for depth in range(table.hit_rank.shape[1]):
                accepted += table.hit_rank[anchor, depth] <= width
        committed = min(accepted + 1, slots[LEFT, i])
        rounds.request[place], rounds.anchor[place] = slots[REQUEST, i], anchor
        rounds.width[place], rounds.accepted[place] = width, accepted
        rounds.committed[place] = committed
        place += 1
        left = slots[LEFT, i] - committed
        if left > 0:
            slots[REQUEST, kept], slots[ANCHOR, kept] = slots[REQUEST, i], anchor + committed
            slots[CONTEXT, kept], slots[LEFT, kept] = slots[CONTEXT, i] + committed, left
            slots[DEFERRED, kept] = (
                slots[DEFERRED, i] + committed if table.fed and not drafted else 0
            )
            kept += 1
        else:
            _end(state, clock, slots[REQUEST, i], total, events)
    state[ROUNDS], state[BATCH] = place, kept


@njit(**BORROWED)
def advance(state, clock, slots, heap, keys, requests, rules, table, prices, steps, rounds, events):
    """Serve until a buffer may not hold the next step, or something is needed from outside.

    Args:
        state: counters, see BATCH and its neighbours. clock: the time, and where budgets start.
        slots: (7, capacity) int64, see REQUEST. heap: (capacity,) int64 and keys: (capacity,), work
            space.

    Returns:
        FULL: the buffers want emptying. BLOCK: the next block of requests is needed.
        SWITCH: the batch size belongs to another group. DONE: every request is finished.
    """
    while True:
        if not _admit(state, clock, slots, requests, events):
            return FULL if state[ADMITTED] - requests.first < len(requests.left) else BLOCK
        batch = state[BATCH]
        if batch == 0:
            return DONE
        if rules.group[batch] != table.mine:
            return SWITCH
        full = state[STEPS] == len(steps.time_s) or state[ROUNDS] + batch > len(rounds.request)
        if full or not _room(state, events, batch):
            return FULL
        _decide(state, clock, slots, heap, keys, rules, table)
        _charge(state, clock, slots, table, prices, steps)
        _commit(state, clock, slots, table, requests.total, rounds, events)
