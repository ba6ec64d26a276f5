"""Replaying whole sequences under one order and a width that is known for every anchor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What S sequences did, summed over rounds; only `tokens` is clipped at the sequence's end."""

    sequences: np.ndarray  # (S,)
    rounds: np.ndarray  # (S,)
    tokens: np.ndarray  # (S,) committed by rounds: all outputs but the prefill's
    accepted: np.ndarray  # (S,)
    depth_hits: np.ndarray  # (S, D) rounds that accepted each depth
    anchors: np.ndarray  # (rounds in all,) anchor of every round, in order within a sequence

    @property
    def acceptance_length(self) -> float:
        """1 + accepted / rounds, pooled; the correction or bonus token counts (vLLM's name)."""
        return 1 + float(self.accepted.sum()) / max(int(self.rounds.sum()), 1)

    @property
    def committed_round_length(self) -> float:
        """Tokens per round, pooled, after clipping at the end of every sequence."""
        return float(self.tokens.sum()) / max(int(self.rounds.sum()), 1)


def replay(
    table: OrderTable, recording: Recording, sequences: np.ndarray, width: int | np.ndarray
) -> Replay:
    """Verify the first `width` nodes every round, from output 0 (which prefill emitted) to the end.

    Every round commits min(accepted + 1, remaining) tokens. All sequences advance together, one
    numpy step per round. width: one for all rounds, or (A,) by anchor. Raises InputError for one
    outside 0..M.
    """
    _check_width(table, width)
    sequences = np.atleast_1d(np.asarray(sequences, dtype=np.int64))
    accepted = table.accepted(np.arange(len(table.anchors)), width)  # (A,)
    at = recording.anchor_offset[sequences]
    end = recording.anchor_offset[sequences + 1]
    visits = []
    live = np.flatnonzero(at < end)
    while len(live):
        visits.append(np.stack([live, at[live]]))
        at[live] += accepted[at[live]] + 1
        live = live[at[live] < end[live]]
    visits = np.concatenate(visits, axis=1) if visits else np.zeros((2, 0), np.int64)
    who, anchors = visits[:, np.argsort(visits[0], kind="stable")]
    reached = np.zeros((len(sequences), table.depths + 1), dtype=np.int64)  # rounds by accepted
    np.add.at(reached, (who, accepted[anchors]), 1)
    at_least = reached[:, ::-1].cumsum(axis=1)[:, ::-1]  # (S, D + 1)
    return Replay(
        sequences=sequences,
        rounds=at_least[:, 0],
        tokens=recording.anchor_counts[sequences],
        accepted=reached @ np.arange(table.depths + 1),
        depth_hits=at_least[:, 1:],
        anchors=anchors,
    )


def acceptance_length_by_budget(
    table: OrderTable, recording: Recording, sequences: np.ndarray, budgets: Iterable[int]
) -> dict[int, float]:
    """Pooled acceptance length of every budget, each along its own trajectory."""
    return {int(b): replay(table, recording, sequences, b).acceptance_length for b in budgets}


def prefix_mass(table: OrderTable, anchors: np.ndarray) -> np.ndarray:
    """Mean over anchors of the N-th largest path mass, N = 1..M: (M,) (CAST's rho).

    Nodes that do not exist count as mass 0. Raises InputError without anchors.
    """
    if not len(anchors):
        raise InputError("prefix_mass: no anchors, accepted: at least one")
    mass = np.exp(table.score[anchors])
    if not table.nested:
        mass = -np.sort(-mass, axis=1)
    return mass.mean(axis=0)


def _check_width(table: OrderTable, width: int | np.ndarray) -> None:
    given = np.asarray(width)
    whole = given.dtype.kind in "iu" and given.shape in ((), table.anchors.shape)
    if not whole or given.min() < 0 or given.max() > table.max_nodes:
        raise InputError(
            f"width: {width!r}, accepted: integers in 0..{table.max_nodes} for this order, one or "
            f"of shape {table.anchors.shape}"
        )
