"""The price of a step, once: plain functions over the flat tables of a latency profile.

`StepCost` calls them as they are, on tables of tuples. Curves that policies look along and compiled
rounds call them through `simulator.compiling`, on tables of arrays: the same lines, the same bits.
The rules they follow stand in `simulator.cost.step_cost`.

Places in a table are of the whole array; a row of a ragged table begins at `start[i]` and ends
before `start[i + 1]`. Milliseconds inside the tables, seconds outside.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import namedtuple
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from simulator.cost.host import HostOverhead
from simulator.cost.step_time import Source

MEASURED, INTERPOLATED, MODELLED, CLAMPED = (int(flag) for flag in Source)
NOT_INLINED = ("draft_ms",)  # where compiled


class Surface(NamedTuple):
    """Target times. Slab s (a batch size) has the curves slab[s]..slab[s + 1], one per context."""

    batch: Any  # (S,) measured batches
    any_batch: bool  # measured by total tokens alone
    kv_ms: float  # per context token of a request beyond the largest batch
    slab: Any  # (S + 1,)
    slab_first: Any  # (S,) smallest and largest total measured at all its contexts
    slab_last: Any  # (S,)
    slab_graph: Any  # (S,) its largest captured total
    context: Any  # (C,)
    curve: Any  # (C + 1,) first point of each curve
    captured: Any  # (C,) points that are captured graphs
    graph: Any  # (C,) the largest captured total, 0 without graphs
    slope: Any  # (C,) ms per token beyond the last point
    total: Any  # (P,) packed tokens
    ms: Any  # (P,)
    apart: bool = True  # regimes are never averaged: the dearer side counts


class Drafts(NamedTuple):
    """One drafter step, by batch and context."""

    batch: Any  # (B,)
    row: Any  # (B + 1,) first context of each batch
    context: Any  # (R,)
    ms: Any  # (R,)
    compute_ms: float  # per request beyond the largest batch, at least


# The fields of `HostOverhead`, which says what they are.
Host = namedtuple("Host", HostOverhead.model_fields)


class Prices(NamedTuple):
    """A cost model, flat."""

    target: Surface
    eager: Surface  # what runs above the last of `sizes`
    sizes: Any  # (G,) captured sizes in place of the profile's; none: the profile's own
    eager_total: Any  # (E,) eager sizes that were measured
    padded: Any  # (N,) captured sizes that passes are padded to
    drafts: Drafts
    draft_steps: float
    kind: int  # MODELLED, or 0
    dense: bool
    cliff_above: Any  # (F,) tokens
    cliff_factor: Any  # (F,)
    cliff_add_s: Any  # (F,)
    cliff_of_request: Any  # (F,) bool
    host: Host


# ---------------------------------------------------------------- the target


def bracket(known, first, last, value):
    """Neighbours of `value` in known[first:last], and the weight of the upper one.

    Both are the same outside, or on a size.
    """
    high = bisect_left(known, value, first, last)
    if high == last:
        return high - 1, high - 1, 0.0
    if high == first or known[high] == value:
        return high, high, 0.0
    return high - 1, high, (value - known[high - 1]) / (known[high] - known[high - 1])


def curve_ms(s, c, total):
    """Milliseconds and Source bits at one batch size and one context.

    A staircase over captured graphs, at least the first eager value above them, then straight
    lines between eager sizes, then the slope. Nothing is averaged across the two regimes.
    """
    first, last = s.curve[c], s.curve[c + 1]
    split = first + s.captured[c]
    if total <= s.graph[c]:
        return s.ms[bisect_left(s.total, total, first, split)], MEASURED
    if total > s.total[last - 1]:
        return s.ms[last - 1] + s.slope[c] * (total - s.total[last - 1]), MODELLED
    high = bisect_left(s.total, total, first, last)
    if s.total[high] == total:
        return s.ms[high], MEASURED
    if high == split:  # below the first eager size
        return s.ms[high], INTERPOLATED if split > first else MEASURED
    share = (total - s.total[high - 1]) / (s.total[high] - s.total[high - 1])
    return s.ms[high - 1] + share * (s.ms[high] - s.ms[high - 1]), INTERPOLATED


def slab_ms(s, slab, total, context):
    """`curve_ms` between the contexts of one batch size, clamped at the ends."""
    low, high, share = bracket(s.context, s.slab[slab], s.slab[slab + 1], context)
    low_ms, bits = curve_ms(s, low, total)
    if low == high:
        return low_ms, bits if s.context[low] == context else bits | CLAMPED
    high_ms, high_bits = curve_ms(s, high, total)
    bits |= high_bits | INTERPOLATED
    if s.apart and (total <= s.graph[low]) != (total <= s.graph[high]):
        return max(low_ms, high_ms), bits
    return low_ms + share * (high_ms - low_ms), bits


def two_totals(s, low, high, batch, total):
    """Totals to read at two measured batches, for a batch between them.

    Equal while both were measured there. Where the smaller batch ends first, it gives its last
    size and the larger one makes up the rest, so that the weighted mean is still the total asked;
    likewise at the larger batch's first size. So a step inside the measured region never leans on
    an extension.
    """
    offset, span = batch - s.batch[low], s.batch[high] - s.batch[low]
    if total > s.slab_last[low]:
        rest = s.slab_last[low] + (total - s.slab_last[low]) * span / offset
        if rest >= s.slab_first[high]:
            return s.slab_last[low], rest
    if total < s.slab_first[high]:
        start = s.slab_first[high] - (s.slab_first[high] - total) * span / (span - offset)
        return start, s.slab_first[high]
    return total, total


def context_range(known, start, batches, batch):
    """Smallest and largest prefix measured at the batches on either side of `batch`."""
    low, high, _ = bracket(batches, 0, len(batches), batch)
    least = min(known[start[low]], known[start[high]])
    return least, max(known[start[low + 1] - 1], known[start[high + 1] - 1])


def surface_ms(s, batch, total, context):
    """Milliseconds and bits of any pass."""
    least, most = context_range(s.context, s.slab, s.batch, batch)
    inside = min(max(context, least), most)
    low, high, share = bracket(s.batch, 0, len(s.batch), batch)
    low_total = high_total = total
    if low != high:
        low_total, high_total = two_totals(s, low, high, batch, total)
    ms, bits = slab_ms(s, low, low_total, inside)
    if low != high:
        high_ms, high_bits = slab_ms(s, high, high_total, inside)
        bits |= high_bits | INTERPOLATED
        if s.apart and (low_total <= s.slab_graph[low]) != (high_total <= s.slab_graph[high]):
            ms = max(ms, high_ms)
        else:
            ms = ms + share * (high_ms - ms)
    elif not s.any_batch and s.batch[low] != batch:
        bits |= MODELLED
    if inside != context:
        bits |= CLAMPED
    last = s.batch[len(s.batch) - 1]
    if not s.any_batch and batch > last:
        ms += s.kv_ms * (batch - last) * context
    return ms, bits


def target_ms(p, batch, total, context):
    """`surface_ms` with the captured sizes of a deployment: padded up to them, eager beyond."""
    captured, measured = len(p.sizes), len(p.eager_total)
    place = bisect_left(p.sizes, total, 0, captured)
    beyond = captured > 0 and place == captured
    asked = p.sizes[place] if place < captured else total
    ms, bits = surface_ms(p.eager if beyond else p.target, batch, asked, context)
    if beyond and measured == 0:
        bits |= MODELLED
    elif beyond:  # the first eager value stands for smaller passes too, and says `measured`
        place = bisect_left(p.eager_total, total, 0, measured)
        known = place < measured and p.eager_total[place] == total
        bits |= 0 if known else INTERPOLATED
    return ms, bits


def verify_s(p, batch, total, context, largest):
    """Seconds and bits of a pass of `total` tokens, `largest` of one request (for cliffs)."""
    ms, bits = target_ms(p, batch, total, context)
    seconds = ms * 1e-3
    for i in range(len(p.cliff_above)):
        if (largest if p.cliff_of_request[i] else total) > p.cliff_above[i]:
            seconds = seconds * p.cliff_factor[i] + p.cliff_add_s[i]
            bits |= MODELLED
    return seconds, bits | p.kind


def verify_curve_s(p, batch, totals, context, largest, seconds):
    """Fill `seconds` (n,) with `verify_s` at (n,) totals."""
    for i in range(len(totals)):
        seconds[i] = verify_s(p, batch, float(totals[i]), context, largest[i])[0]


# ---------------------------------------------------------------- the drafter


def draft_row_ms(d, b, context):
    """One drafter step at one measured batch."""
    low, high, share = bracket(d.context, d.row[b], d.row[b + 1], context)
    if low == high:
        return d.ms[low], MEASURED if d.context[low] == context else CLAMPED
    return d.ms[low] + share * (d.ms[high] - d.ms[low]), INTERPOLATED


def draft_inside_ms(d, batch, context):
    """Linear between measured batches, constant beyond."""
    low, high, share = bracket(d.batch, 0, len(d.batch), batch)
    low_ms, bits = draft_row_ms(d, low, context)
    if low == high:
        return low_ms, bits if d.batch[low] == batch else bits | MODELLED
    high_ms, high_bits = draft_row_ms(d, high, context)
    return low_ms + share * (high_ms - low_ms), bits | high_bits | INTERPOLATED


def draft_ms(d, batch, context):
    """Milliseconds and bits of one drafter step.

    Beyond the table each request costs the larger of the last octave's secant and the compute.
    """
    least, most = context_range(d.context, d.row, d.batch, batch)
    inside = min(max(context, least), most)
    ms, bits = draft_inside_ms(d, batch, inside)
    last = d.batch[len(d.batch) - 1]
    if batch > last:
        slope_ms = d.compute_ms
        low = max(d.batch[0], last / 2)
        if low != last:
            rise = draft_inside_ms(d, last, inside)[0] - draft_inside_ms(d, low, inside)[0]
            slope_ms = max(max(d.compute_ms, rise / (last - low)), 0.0)
        ms += (batch - last) * slope_ms
    return ms, bits if inside == context else bits | CLAMPED


def draft_s(p, batch, context):
    """Seconds and bits of a round's drafter steps together."""
    ms, bits = draft_ms(p.drafts, batch, context)
    return ms * 1e-3 * p.draft_steps, bits | p.kind


# ---------------------------------------------------------------- the host, and the whole step


def host_s(h, nodes, device_s, requests, drafted, tree, ordered, fed):
    """Host seconds that lengthen a step, by the rule of `cost.host`.

    Args:
        nodes: verified in all. device_s: seconds the device is busy. requests: of the step.
        ordered: nodes put in order. fed: a plain step whose states a resting drafter will read.
    """
    slack_s = 0.0
    if drafted:
        tree_s = h.tree_step_s if tree else 0.0
        nodes_s = h.node_s * nodes
        trees_s = h.tree_request_s * requests + h.kv_move_token_s * nodes if tree else 0.0
        work_s = h.round_s + nodes_s + tree_s
        work_s = work_s + (h.request_s * requests + h.ordered_node_s * ordered) + trees_s
        trees_s = nodes_s + tree_s + trees_s
        bubble_s = h.bubble_s if tree else 0.0
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


def executed_tokens(p, total):
    """Tokens that a pass of `total` runs: the next captured size, if there is one."""
    place = bisect_left(p.padded, total, 0, len(p.padded))
    return p.padded[place] if place < len(p.padded) else total


def step_s(p, batch, packed, largest, contexts, drafted, tree, ordered, fed, deferred):
    """A step without prompt chunks, from sums over its requests.

    Args:
        packed: tokens, roots included; largest: of one request. contexts: their sum.
        ordered, fed, deferred: as in `StepCost.step`.

    Returns:
        draft_s, verify_s, host_s, Source bits, and the tokens that the pass is asked for.
    """
    total = batch * largest if p.dense else packed
    context = contexts / batch
    target_s, bits = verify_s(p, batch, float(total), context, largest)
    drafter_s = 0.0
    if drafted:
        drafter_s, draft_bits = draft_s(p, batch, context)
        drafter_s += p.host.catch_up_token_s * deferred
        bits |= draft_bits
    device_s = drafter_s + target_s
    seen_s = host_s(p.host, packed - batch, device_s, batch, drafted, tree, ordered, fed)
    return drafter_s, target_s, seen_s, bits, total


def drafted_s(p, batch, nodes, target_s, drafter_s, tree, ordered):
    """Seconds of a step that verifies `nodes` draft nodes, from those of its passes."""
    device_s = drafter_s + target_s
    seen_s = host_s(p.host, nodes, device_s, batch, True, tree and nodes > 0, ordered, False)
    return device_s + seen_s


def flat_until(p, batch, total, context):
    """The largest total up to which the target's pass costs what it does at `total`, if known."""
    if len(p.cliff_above) > 0:
        return total
    if len(p.sizes) > 0:
        place = bisect_left(p.sizes, total, 0, len(p.sizes))
        return p.sizes[place] if place < len(p.sizes) else total
    s = p.target
    low, high, _ = bracket(s.batch, 0, len(s.batch), batch)
    if low != high:
        return total
    first, second, _ = bracket(s.context, s.slab[low], s.slab[low + 1], context)
    if total > min(s.graph[first], s.graph[second]):
        return total
    end = bisect_left(s.total, total, s.curve[first], s.curve[first] + s.captured[first])
    other = bisect_left(s.total, total, s.curve[second], s.curve[second] + s.captured[second])
    return min(s.total[end], s.total[other])


# ---------------------------------------------------------------- tables from a profile


def surface_of(rows: Sequence, header) -> Surface:
    """The surface of (P,) `VerifyRow`, by rising batch, context and total."""
    batches = sorted({row.batch for row in rows if row.batch is not None})
    slabs = []
    for batch in batches or [1]:
        mine = [row for row in rows if row.batch in (batch, None)]
        contexts = sorted({row.kv_prefix_tokens for row in mine})
        slabs.append([[row for row in mine if row.kv_prefix_tokens == one] for one in contexts])
    curves = [curve for slab in slabs for curve in slab]
    graphs = [[row.packed_tokens_total for row in curve if row.captured] for curve in curves]
    flat = Surface(
        batch=tuple(batches or [1]),
        any_batch=not batches,
        kv_ms=0.0,
        slab=_starts(slabs),
        slab_first=tuple(max(c[0].packed_tokens_total for c in slab) for slab in slabs),
        slab_last=tuple(min(c[-1].packed_tokens_total for c in slab) for slab in slabs),
        slab_graph=(),
        context=tuple(curve[0].kv_prefix_tokens for curve in curves),
        curve=_starts(curves),
        captured=tuple(len(sizes) for sizes in graphs),
        graph=tuple(sizes[-1] if sizes else 0 for sizes in graphs),
        slope=(0.0,) * len(curves),
        total=tuple(row.packed_tokens_total for curve in curves for row in curve),
        ms=tuple(row.verify_ms for curve in curves for row in curve),
    )
    compute_ms = float(header.compute_ms_per_token or 0.0)
    slope = tuple(max(0.0, _last_octave(flat, c), compute_ms) for c in range(len(curves)))
    ends = zip(flat.slab, flat.slab[1:], strict=False)
    kv_ms = header.kv_read_ms_per_token
    return flat._replace(
        slope=slope,
        slab_graph=tuple(max(flat.graph[low:high]) for low, high in ends),
        kv_ms=float(_measured_kv_ms(flat) if kv_ms is None else kv_ms),
    )


def _last_octave(s: Surface, c: int) -> float:
    """Secant over the last factor of two of the last regime; one noisy pair cannot set it."""
    first, last = s.curve[c], s.curve[c + 1] - 1
    start = first + s.captured[c] if first + s.captured[c] <= last else first
    low = max(s.total[start], s.total[last] / 2)
    if low >= s.total[last]:
        return 0.0
    return (s.ms[last] - curve_ms(s, c, low)[0]) / (s.total[last] - low)


def _measured_kv_ms(s: Surface) -> float:
    """Milliseconds per context token of one request, from the measured prefixes (0 if one).

    Taken at the smallest packed size, where no tree mask or tile effect is mixed in.
    """
    for slab in reversed(range(len(s.batch))):
        low, high = s.slab[slab], s.slab[slab + 1] - 1
        span, total = s.context[high] - s.context[low], s.slab_first[slab]
        if span:
            rise = curve_ms(s, high, total)[0] - curve_ms(s, low, total)[0]
            return max(0.0, rise / (span * s.batch[slab]))
    return 0.0


def floor_of(p: Prices) -> Prices:
    """Prices that never exceed `p` and never fall as a step grows: how far to look for a better.

    Tables are made to rise, and regimes averaged.
    """
    s = p.target
    rows = [s.ms[low:high] for low, high in zip(s.curve, s.curve[1:], strict=False)]
    rising = [list(accumulate(reversed(row), min))[::-1] for row in rows]
    floor = s._replace(ms=tuple(ms for row in rising for ms in row), apart=False)
    return p._replace(target=floor)


def drafts_of(rows: Sequence, header) -> Drafts:
    """The drafter's table of `DraftRow`, by rising batch and context."""
    batches = sorted({row.batch for row in rows})
    by_batch = [[row for row in rows if row.batch == batch] for batch in batches]
    return Drafts(
        batch=tuple(batches),
        row=_starts(by_batch),
        context=tuple(row.kv_prefix_tokens for group in by_batch for row in group),
        ms=tuple(row.draft_ms for group in by_batch for row in group),
        compute_ms=float(header.draft_ms_per_request or 0.0),
    )


def _starts(rows: Iterable[Sequence]) -> tuple[int, ...]:
    """Where each of the rows begins in their concatenation, and where the last one ends."""
    return (0, *accumulate(len(row) for row in rows))


WHOLE = {"slab", "curve", "captured", "row", "padded"}  # columns of whole numbers


def arrays_of(table: Any) -> Any:
    """The same tables with arrays for tuples, each column of one type, for compiled code."""
    columns = {}
    for name, value in table._asdict().items():
        if hasattr(value, "_asdict"):
            columns[name] = arrays_of(value)
        elif isinstance(value, tuple):
            kind = np.int64 if name in WHOLE else bool if name == "cliff_of_request" else float
            columns[name] = np.array(value, kind)
        else:
            columns[name] = value
    return type(table)(**columns)
