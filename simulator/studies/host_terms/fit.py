"""Host terms of measured rounds: fitted on some, judged on the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from simulator.cost import Source, StepCost, find_profile
from simulator.cost.host import fit_host, term_counts
from simulator.studies.host_terms.rounds import MeasuredRounds

# In this order a term is taken if it is no sum of those before it. A step's constants come first,
# so that rounds of one size get one constant.
ORDER = (
    "round_s",
    "plain_s",
    "tree_step_s",
    "node_s",
    "request_s",
    "plain_request_s",
    "ordered_node_s",
    "kv_move_token_s",
    "tree_request_s",
)
_RANK = 1e-6  # of a column's length that must be its own
_ROUNDING = 1e-3  # of a round's time: its columns are rounded


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Held-out rounds of one batch size, or of all: relative errors of round_ms."""

    batch: int | None
    rounds: int
    median: float
    p90: float
    bias: float  # of the summed times, signed


@dataclass(frozen=True, slots=True, eq=False)
class HostFit:
    """What was fitted to which rounds, and how far it is off on the held-out ones."""

    rounds: MeasuredRounds
    profile: str
    packing: str
    context: str  # where it comes from, in words
    host: Mapping[str, float]  # seconds by term, those that were fitted
    merged: tuple[str, ...]  # terms that these rounds cannot tell apart from them
    fitted: int  # rounds
    seed: int
    hold_out: float
    judged: tuple[Judged, ...]  # all, then by batch
    bare: Judged  # the same rounds without any host term
    tokens_per_s: tuple[float, float]  # held out: measured, predicted
    beyond: float  # share of rounds whose device time is modelled or clamped
    draft_ratio: float | None  # the profile's draft over the measured one, median
    faster: int  # rounds that took less than their draft and verify alone are said to take
    faster_ratio: float | None  # their measured time over that one, median


def fit_rounds(
    rounds: MeasuredRounds,
    profile: str,
    packing: str = "ragged",
    context: float | None = None,
    *,
    hold_out: float = 0.3,
    seed: int = 0,
) -> HostFit:
    """Host terms by least squares relative to the device's time, none negative.

    Args:
        profile: name, or path of a CSV. context: of rounds that state none; None: the profile's
            smallest.
        hold_out: share of the rounds, drawn with `seed`, that judge.

    Raises:
        InputError: an unknown profile, or too few rounds for the share.
    """
    device = _device(rounds, profile, packing, context)
    count = len(rounds)
    number = min(max(1, round(hold_out * count)), count - 1)  # at least one of each side
    held = np.zeros(count, bool)
    held[np.random.default_rng(seed).permutation(count)[:number]] = True
    terms, merged = _terms(rounds, ~held)
    fitted = {name: column[~held] for name, column in terms.items()}
    round_s = rounds.round_ms * 1e-3
    host = fit_host(round_s[~held], device.seconds[~held], fitted, relative=True)
    values = {name: getattr(host, name) for name in terms}
    host_s = sum(values[name] * column for name, column in terms.items())
    predicted = (device.seconds + host_s)[held]
    measured, batch, tokens = round_s[held], rounds.batch[held], float(rounds.committed[held].sum())
    fast = round_s < device.seconds * (1 - _ROUNDING)
    return HostFit(
        rounds=rounds,
        profile=profile,
        packing=packing,
        context=device.context,
        host=values,
        merged=merged,
        fitted=count - number,
        seed=seed,
        hold_out=hold_out,
        judged=tuple(_judge(predicted, measured, batch)),
        bare=next(_judge(device.seconds[held], measured, batch)),
        tokens_per_s=(tokens / float(measured.sum()), tokens / float(predicted.sum())),
        beyond=float(device.beyond.mean()),
        draft_ratio=device.draft_ratio,
        faster=int(np.count_nonzero(fast)),
        faster_ratio=_median_ratio(round_s, device.seconds, fast),
    )


def _median_ratio(one: np.ndarray, other: np.ndarray, which: np.ndarray) -> float | None:
    return float(np.median(one[which] / other[which])) if which.any() else None


@dataclass(frozen=True, slots=True, eq=False)
class _Device:
    seconds: np.ndarray  # (n,) draft and verify
    beyond: np.ndarray  # (n,) bool
    context: str
    draft_ratio: float | None


def _device(rounds: MeasuredRounds, profile: str, packing: str, context: float | None) -> _Device:
    """Draft and verify of every round, as the simulator prices them; a stated draft as it is."""
    cost = StepCost(find_profile(profile), packing=packing)
    first = min(row.kv_prefix_tokens for row in cost.profile.verify)
    where, said = np.full(len(rounds), float(first)), f"{first} tokens, the profile's smallest"
    if rounds.context is not None:
        where, said = rounds.context, "of the file"
    elif context is not None:
        where, said = np.full(len(rounds), context), f"{context:g} tokens, as given"
    times = [
        cost.step(
            _packed(rounds, i, packing), np.full(batch, where[i]), drafted=drafted, tree=False
        )
        for i, (batch, drafted) in enumerate(zip(rounds.batch.tolist(), rounds.drafted.tolist()))
    ]
    draft_s = np.array([time.draft_s for time in times])
    verify_s = np.array([time.verify_s for time in times])
    weak = Source.MODELLED | Source.CLAMPED
    beyond = np.array([bool(time.source & weak) for time in times])
    if rounds.draft_ms is None:
        return _Device(draft_s + verify_s, beyond, said, None)
    stated = rounds.draft_ms * 1e-3
    ratio = _median_ratio(draft_s, stated, (draft_s > 0) & (stated > 0))
    return _Device(stated + verify_s, beyond, said, ratio)


def _packed(rounds: MeasuredRounds, i: int, packing: str) -> np.ndarray:
    """Packed tokens of each request: the nodes as even as they can be, up to a stated graph."""
    batch, nodes, width = (int(x[i]) for x in (rounds.batch, rounds.nodes, rounds.width))
    graph = 0 if rounds.graph is None else int(rounds.graph[i])
    if packing == "dense":
        return np.full(batch, max(1 + width, -(-graph // batch)))
    nodes = max(nodes, graph - batch)
    packed = np.full(batch, 1 + nodes // batch)
    packed[: nodes % batch] += 1
    return packed


def _terms(
    rounds: MeasuredRounds, fitted: np.ndarray
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Columns (n,) of the terms that the fitted rounds tell apart, and those they do not."""
    none = np.zeros(len(rounds))
    counts = term_counts(
        drafted=rounds.drafted,
        requests=rounds.batch,
        nodes=rounds.nodes,
        ordered=none if rounds.ordered is None else rounds.ordered,
        tree=none if rounds.tree is None else rounds.tree & (rounds.nodes > 0),
        fed=none,
        deferred=none,
        finer=True,
    )
    kept, merged, basis = {}, [], np.zeros((np.count_nonzero(fitted), 0))  # orthonormal columns
    for name in ORDER:
        column = counts[name][fitted]
        if not column.any():
            continue
        rest = column / np.linalg.norm(column)
        for _ in range(2):  # twice, or rounding stays behind
            rest = rest - basis @ (basis.T @ rest)
        own = np.linalg.norm(rest)
        if own > _RANK and basis.shape[1] < len(basis):
            basis = np.column_stack([basis, rest / own])
            kept[name] = counts[name]
        else:
            merged.append(name)
    return kept, tuple(merged)


def _judge(predicted: np.ndarray, measured: np.ndarray, batch: np.ndarray) -> Iterator[Judged]:
    """All rounds together, then those of every batch size."""
    for one in (None, *np.unique(batch).tolist()):
        part = np.ones(len(batch), bool) if one is None else batch == one
        off = np.abs(predicted[part] / measured[part] - 1)
        bias = float(predicted[part].sum() / measured[part].sum() - 1)
        median, p90 = (float(np.quantile(off, q)) for q in (0.5, 0.9))
        yield Judged(one, int(part.sum()), median, p90, bias)
