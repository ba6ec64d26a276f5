"""CAST's Figure 4c in numbers: mean mass of the N-th best node, theirs beside a recording's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simulator.inputs import choose_sequences, load_recording
from simulator.orders import BestFirstOrder, ChainOrder, order_table, prefix_mass, replay
from simulator.orders.marginal import marginal_scores
from simulator.paper.sweeps import read_sweeps
from simulator.paper.text import number, percent, table
from simulator.width_rule import DEPLOYED_WIDTHS, published_mass_curve
from traces.recording import Recording

RANKS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
DOMAINS = ("gsm8k", "mtbench", "humaneval")
SETTING = "h100sxm_qwen3-8b"  # the same target and drafter, at temperature 0


class Ours:
    """Trees of a recording by marginals, as CAST grows them: 128 nodes, 8 ways."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.recording = recording = load_recording(trace)
        self.scores = marginal_scores("auto_marginal", recording)
        self.table = order_table(BestFirstOrder(scores=self.scores, nodes=RANKS[-1]), recording)
        self._chain = order_table(ChainOrder(), recording)
        self._chosen = choose_sequences(trace, recording)

    def groups(self) -> dict[str, np.ndarray]:
        """Sequences by domain, then of all."""
        domain = self.recording["domain"][self._chosen]
        names = enumerate(self.recording.domains)
        found = {name: self._chosen[domain == i] for i, name in names if (domain == i).any()}
        return found | {"all": self._chosen}

    def mass(self, sequences: np.ndarray) -> np.ndarray:
        """(128,) over the rounds of a whole-block chain, as the paper logged them."""
        rounds = replay(self._chain, self.recording, sequences, self._chain.max_nodes)
        return prefix_mass(self.table, rounds.anchors)

    def mass_everywhere(self, sequences: np.ndarray) -> np.ndarray:
        """(128,) over every position of the texts, as our cast policy fits."""
        return prefix_mass(self.table, _anchors(self.recording, sequences))

    def length(self, sequences: np.ndarray, nodes: int) -> float:
        """Tokens per round of that width, along its own trajectory."""
        return replay(self.table, self.recording, sequences, nodes).acceptance_length


def _anchors(recording: Recording, sequences: np.ndarray) -> np.ndarray:
    offsets = recording.anchor_offset
    return np.concatenate([np.arange(offsets[s], offsets[s + 1]) for s in sequences])


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Masses, and what their sum says of tokens per round.

    Args:
        cfg: `trace` is read.

    Raises:
        InputError: a recording or split that cannot be used.
    """
    ours = Ours(cfg["trace"])
    groups = ours.groups()
    theirs = {name: published_mass_curve(name) for name in DOMAINS}
    own = {name: ours.mass(sequences) for name, sequences in groups.items()}
    own["all, every\nposition"] = ours.mass_everywhere(groups["all"])
    yield "CAST (arXiv 2610.00321), Figure 4c: mean mass of the N-th largest node of the tree"
    yield f"theirs: Qwen3-8B, block 16, 1,500 greedy rounds; ours: {_whose(ours)}"
    yield ""
    curves = theirs | own
    heads = ("N", *(f"theirs\n{name}" for name in theirs), *(f"ours\n{name}" for name in own))
    yield from table(heads, ([str(n), *_at(curves, n)] for n in RANKS))
    yield ""
    yield from _lengths(ours, theirs["gsm8k"], own["all"])


def _whose(ours: Ours) -> str:
    recording = ours.recording
    what = f"{recording.meta['pair']}, {recording.depths} depths, T = {recording.temperature:g}"
    return f"{what}, {ours.scores}, rounds of the chain"


def _at(curves: Mapping[str, np.ndarray], rank: int) -> Iterator[str]:
    return (number(curve[rank - 1], 4) if rank <= len(curve) else "-" for curve in curves.values())


def _lengths(ours: Ours, theirs: np.ndarray, own: np.ndarray) -> Iterator[str]:
    """1 + sum of masses, the rule's estimate of tokens per round, against what was committed."""
    measured = read_sweeps()[SETTING].lengths
    yield "tokens per round: 1 + the sum of the first N masses, against what was committed"
    rows = []
    for nodes in DEPLOYED_WIDTHS:
        mine = ours.length(ours.groups()["all"], nodes)
        pair = [*_pair(theirs, nodes, measured.get(("gsm8k", nodes))), *_pair(own, nodes, mine)]
        rows.append([str(nodes), *pair])
    names = ("by mass", "measured", "error")
    heads = ("N", *(f"theirs\n{n}" for n in names), *(f"ours\n{n}" for n in names))
    yield from table(heads, rows)
    yield ""
    yield "theirs: gsm8k masses against gsm8k decoding on the H100 (Table 12), from 47 nodes on."
    yield "A mass is the drafter's own probability, uncalibrated, and a tree's rounds do not start"
    yield "where a chain's do. Rounds visit hard positions more often than easy ones, so masses"
    yield "over every position are higher than over rounds."


def _pair(mass: np.ndarray, nodes: int, measured: float | None) -> tuple[str, str, str]:
    estimate = 1 + float(mass[:nodes].sum())
    error = None if measured is None else estimate / measured - 1
    return number(estimate, 2), number(measured, 2), percent(error)
