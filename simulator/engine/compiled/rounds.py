"""Rounds, many at a call: arrive, admit, decide, price, commit, finish, refill.

Plain functions over flat arrays, compiled by `simulator.compiling` together with the price of a
step and the choices of policies. Every number is computed as in `simulator.engine.server`, to the
last bit: the same calls, in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from simulator.cost.price import executed_tokens, step_s
from simulator.policies.priced_survival.accounts import account_at, earn, rests, size_step
from simulator.policies.shared.choices import take_above, take_fixed, take_shared

FULL, BLOCK, SWITCH, DONE = range(4)  # why `advance` came back, see there
PLAIN, FIXED, THRESHOLD, SHARED, PRICED = range(5)  # kinds of rules
MEASURED, INTERPOLATED, WEAK = 1, 2, 12  # cost.Source: WEAK is modelled, clamped or both

# Places of the counters and of the clock.
BATCH, ARRIVED, ADMITTED, FINISHED, NEAR, STEPS, ROUNDS, SEEN = range(8)
OLD_ADMITTED, OLD_FINISHED = 8, 9  # at the start of the chunk
NOW, START = range(2)
NOT_INLINED = ("admit",)  # where compiled


class Requests(NamedTuple):
    """Requests `first`.. of the run, n of the `total`: where they stand at admission."""

    anchor: Any  # (n,) int64
    context: Any  # (n,) int64 KV tokens before the root
    left: Any  # (n,) int64 outputs behind the root
    prefill_s: Any  # (n,)
    first: int
    total: int
    open: bool  # whether they come at times of their own
    arrival_s: Any  # (total,) of an open loop


class Rules(NamedTuple):
    """What is done at every batch size 0..capacity; sizes of one `group` share kind and table."""

    group: Any  # int64
    number: Any  # int64 width, or nodes of the shared budget
    theta: Any  # log survivals: the threshold,
    low: Any  # and what is near it
    high: Any


class Table(NamedTuple):
    """The order of a group and how it is used."""

    mine: int  # the group
    kind: int  # of its rules
    most: int  # nodes that one request may take
    tree: bool
    fed: bool  # whether the drafter is kept up to date through plain steps
    score: Any  # (A, M)
    size: Any  # (A,) int32
    depth: Any  # (A, M) uint8
    hit_rank: Any  # (A, D) int16
    ties: Any  # (A,) int32
    survival: Any  # (A, M) calibrated, and (A,) tokens of the stretch: of PRICED alone
    expected: Any


class Slots(NamedTuple):
    """Running requests, in the order of their admission: (capacity,) int64 each."""

    request: Any
    anchor: Any
    context: Any
    left: Any
    deferred: Any


class Steps(NamedTuple):
    """Columns of the steps of a chunk."""

    time_s: Any
    draft_s: Any
    verify_s: Any
    host_s: Any
    source: Any
    batch: Any
    queued: Any
    drafted: Any
    order_ties: Any
    executed_tokens: Any


class Rounds(NamedTuple):
    """Columns of the rounds of a chunk, in step order."""

    request: Any
    anchor: Any
    width: Any
    accepted: Any
    committed: Any


class Events(NamedTuple):
    """Times of a chunk: requests arrive and are admitted in rising order, and end in any.

    The first three begin with the first request admitted in the chunk; arrivals are those of a
    closed loop.
    """

    arrival_s: Any
    admitted_s: Any
    first_token_s: Any
    finished: Any
    finish_s: Any


def advance(state, clock, slots, work, requests, rules, table, pricing, prices, floor, out):
    """Serve until a buffer may not hold the next step, or something is needed from outside.

    Args:
        state: counters, see BATCH and its neighbours. clock: the time, and where budgets start.
        out: (Steps, Rounds, Events) of the chunk.

    Returns:
        FULL: the buffers want emptying. BLOCK: the next block of requests is needed.
        SWITCH: the batch size belongs to another group. DONE: every request is finished.
    """
    steps, rounds, events = out
    while True:
        if not admit(state, clock, slots, requests, events):
            return FULL if state[ADMITTED] - requests.first < len(requests.left) else BLOCK
        batch = state[BATCH]
        if batch == 0:
            if state[ARRIVED] == requests.total:
                return DONE
            wake(state, clock, requests)
            continue
        if rules.group[batch] != table.mine:
            return SWITCH
        full = state[STEPS] == len(steps.time_s) or state[ROUNDS] + batch > len(rounds.request)
        if full or not has_room(state, requests, events, batch):
            return FULL
        drafted = decide(state, clock, slots, work, rules, table, pricing, prices, floor)
        seconds = charge(state, clock, slots, work, table, drafted, prices, requests, steps)
        worth = commit(state, clock, slots, work, table, drafted, requests, rounds, events)
        if pricing is not None and table.kind == PRICED and drafted:
            earn(pricing.accounts, account_at(batch), worth, seconds)


# ---------------------------------------------------------------- arrivals and admission


def wake(state, clock, requests):
    """Nobody is here: the clock moves to the next arrival.

    Those who come at the same instant are seen one after another, as on a clock of events: the
    next one with it, every further one a look later.
    """
    clock[NOW] = requests.arrival_s[state[ARRIVED]]
    state[SEEN] = state[ARRIVED] + 2


def arrive(state, clock, requests):
    """Let in who has come by now."""
    last = min(state[SEEN], requests.total)
    while state[ARRIVED] < last and requests.arrival_s[state[ARRIVED]] <= clock[NOW]:
        state[ARRIVED] += 1


def admit(state, clock, slots, requests, events):
    """Start those that wait while there are slots, one after another.

    Returns False where the block or the buffers end before.
    """
    if requests.open:
        arrive(state, clock, requests)
    ended = False
    while state[ADMITTED] < state[ARRIVED] and state[BATCH] < len(slots.request):
        request = state[ADMITTED]
        i = request - requests.first
        if i >= len(requests.left) or not has_room(state, requests, events, 1):
            return False
        place = request - state[OLD_ADMITTED]
        events.admitted_s[place] = clock[NOW]
        if requests.prefill_s[i] != 0.0:
            pass_time(state, clock, requests, requests.prefill_s[i])
        events.first_token_s[place] = clock[NOW]
        state[ADMITTED] += 1
        if requests.left[i] > 0:
            slot = state[BATCH]
            slots.request[slot], slots.anchor[slot] = request, requests.anchor[i]
            slots.context[slot], slots.left[slot] = requests.context[i], requests.left[i]
            slots.deferred[slot] = 0
            state[BATCH] += 1
        else:
            end(state, clock, request, requests, events)
            ended = True
        if requests.open and ended and state[ADMITTED] == state[ARRIVED]:
            state[SEEN] += 1
            arrive(state, clock, requests)
            ended = False
    return True


def pass_time(state, clock, requests, seconds):
    """Move the clock on; in an open loop others come meanwhile."""
    clock[NOW] += seconds
    if requests.open:
        state[SEEN] = requests.total
        arrive(state, clock, requests)


def end(state, clock, request, requests, events):
    """Note a request's end; in a closed loop its client sends the next one at once, if any."""
    place = state[FINISHED] - state[OLD_FINISHED]
    events.finished[place], events.finish_s[place] = request, clock[NOW]
    state[FINISHED] += 1
    if not requests.open and state[ARRIVED] < requests.total:
        events.arrival_s[state[ARRIVED] - state[OLD_ADMITTED]] = clock[NOW]
        state[ARRIVED] += 1


def has_room(state, requests, events, needed):
    """Whether the buffers of the events hold `needed` more of each."""
    most = len(events.finish_s) - needed
    come = (state[ADMITTED] if requests.open else state[ARRIVED]) - state[OLD_ADMITTED]
    return come <= most and state[FINISHED] - state[OLD_FINISHED] <= most


# ---------------------------------------------------------------- a step


def decide(state, clock, slots, work, rules, table, pricing, prices, floor):
    """The widths of the step, by the rule of its batch size; returns whether it drafts."""
    batch, row = state[BATCH], slots.anchor
    if table.kind == PLAIN:
        take_fixed(row, table.size, 0, 0, work.width)
    elif table.kind == FIXED:
        take_fixed(row, table.size, batch, rules.number[batch], work.width)
    elif table.kind == THRESHOLD:
        theta, low, high = rules.theta[batch], rules.low[batch], rules.high[batch]
        near = take_above(row, table.score, table.size, batch, theta, low, high, work.width)
        state[NEAR] += near
    elif table.kind == SHARED:
        budget, start = rules.number[batch], clock[START]
        most = table.most
        start = take_shared(row, table.score, table.size, batch, most, budget, start, work)
        clock[START] = start
    elif pricing is not None:  # known when compiled: runs without prices do not wait for this code
        return decide_priced(batch, slots, work, table, pricing, prices, floor)
    return table.kind != PLAIN


def decide_priced(batch, slots, work, table, pricing, prices, floor):
    """As `priced_survival` does: rest, or as many of the best nodes as pay."""
    if pricing.skip and rests(pricing.accounts, account_at(batch)):
        return False
    ordered = contexts = 0
    for i in range(batch):
        ordered += table.size[slots.anchor[i]]
        contexts += slots.context[i]
        work.weight[i] = 1.0
    step = batch, float(contexts) / batch, ordered, True
    tables = slots.anchor, table.survival, table.expected, table.size, table.depth
    row, survival, expected, size, depth = tables
    size_step(prices, floor, pricing, step, row, survival, expected, size, depth, work)
    return True


def charge(state, clock, slots, work, table, drafted, prices, requests, steps):
    """Price the step, note it, and move the clock to its end; returns its seconds."""
    batch, number = state[BATCH], state[STEPS]
    nodes = largest = contexts = deferred = ordered = ties = 0
    for i in range(batch):
        contexts += slots.context[i]
        deferred += slots.deferred[i]
    if drafted:
        for i in range(batch):
            row, width = slots.anchor[i], work.width[i]
            nodes += width
            largest = max(largest, width)
            ordered += table.size[row]
            ties += table.ties[row] != 0
    tree = drafted and table.tree and nodes > 0
    packed, most, fed = nodes + batch, largest + 1, table.fed
    draft_s, verify_s, host_s, bits, total = step_s(
        prices, batch, packed, most, contexts, drafted, tree, ordered, fed, deferred
    )
    weak = bits & WEAK
    if weak == 0:
        weak = INTERPOLATED if bits & INTERPOLATED else MEASURED
    steps.time_s[number] = clock[NOW]
    steps.draft_s[number], steps.verify_s[number] = draft_s, verify_s
    steps.host_s[number], steps.source[number] = host_s, weak
    steps.batch[number], steps.drafted[number] = batch, drafted
    steps.queued[number] = state[ARRIVED] - state[ADMITTED]
    steps.order_ties[number] = ties
    steps.executed_tokens[number] = executed_tokens(prices, total)
    state[STEPS] += 1
    seconds = draft_s + verify_s + host_s
    clock[NOW] += seconds
    state[SEEN] = requests.total
    return seconds


def commit(state, clock, slots, work, table, drafted, requests, rounds, events):
    """Move every request past its accepted tokens and the bonus; the ended leave their slots.

    Returns the worth of what was committed, by the weights of the step.
    """
    kept, place, worth = 0, state[ROUNDS], 0.0
    for i in range(state[BATCH]):
        anchor, width, accepted = slots.anchor[i], 0, 0
        if drafted:
            width = work.width[i]
            for depth in range(table.hit_rank.shape[1]):
                accepted += table.hit_rank[anchor, depth] <= width
        committed = min(accepted + 1, slots.left[i])
        worth += work.weight[i] * committed
        rounds.request[place], rounds.anchor[place] = slots.request[i], anchor
        rounds.width[place], rounds.accepted[place] = width, accepted
        rounds.committed[place] = committed
        place += 1
        left = slots.left[i] - committed
        if left > 0:
            slots.request[kept], slots.anchor[kept] = slots.request[i], anchor + committed
            slots.context[kept], slots.left[kept] = slots.context[i] + committed, left
            behind = slots.deferred[i] + committed
            slots.deferred[kept] = behind if table.fed and not drafted else 0
            kept += 1
        else:
            end(state, clock, slots.request[i], requests, events)
    state[ROUNDS], state[BATCH] = place, kept
    return worth
