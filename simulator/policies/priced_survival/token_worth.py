"""What a token is worth where a request stands: the time per token of the stretch ahead of it.

Tokens are not fungible. A hard stretch must be crossed whatever happens, so a token accepted there
saves more time than one in an easy stretch. How hard the stretch is shows in the draft: the sum of
its survivals predicts the rounds per token of what follows, the less so the fewer nodes are
verified. The exponent is therefore fitted for every width, on replays of the calibration split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.orders.replay import replay
from simulator.orders.table import OrderTable
from simulator.policy import Lab

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)  # nodes per request and round, replayed
AHEAD = 16  # tokens of the stretch
LOOK = 32  # survivals summed
LEAST = 50  # rounds for a regression; fewer: every token is worth the same


@dataclass(frozen=True, slots=True)
class Worth:
    """rounds per token ~ (1 + sum of survivals)^exponent(nodes per request), see `weigh`."""

    widths: tuple[int, ...]  # rising
    exponents: tuple[float, ...]  # of each


def expected(survival: np.ndarray) -> np.ndarray:
    """1 + the sum of each row's first `LOOK` survivals (n, M): (n,) tokens."""
    return 1.0 + survival[:, :LOOK].sum(axis=1)


def fit_worth(
    lab: Lab,
    table: OrderTable,
    sequences: np.ndarray,
    survival: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Worth:
    """Least squares of the log rounds per token on the log of `expected`, width by width.

    Args:
        sequences: of a fitting split. survival: of scores (n, M) and sizes (n,): (n, M).
    """
    widths = [width for width in WIDTHS if width <= table.max_nodes]
    exponents = []
    for width in widths:
        run = replay(table, lab.recording, sequences, width)
        rounds, inside = _rounds_ahead(lab, run.anchors)
        anchors = run.anchors[inside]
        x = np.log(expected(survival(table.score[anchors], table.size[anchors])))
        exponents.append(_slope(x, np.log(rounds[inside] / AHEAD)))
    return Worth(tuple(widths), tuple(exponents))


def _rounds_ahead(lab: Lab, anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounds that crossed the `AHEAD` tokens behind each round's anchor, and where the text has so
    many; part of a round counts by its tokens. anchors (n,) of all rounds, text by text.
    """
    recording = lab.recording
    texts, text = np.unique(recording.anchor_sequence[anchors], return_inverse=True)
    start = np.cumsum(recording.anchor_counts[texts]) - recording.anchor_counts[texts]
    token = start[text] + recording.anchor_output[anchors]
    number = np.arange(len(anchors))
    # Texts follow each other in tokens as in rounds, so one line serves them all.
    rounds = np.interp(token + AHEAD, token, number) - number
    return rounds, recording.remaining_outputs[anchors] > AHEAD


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) < LEAST or np.ptp(x) < 1e-9:
        return 0.0
    x = x - x.mean()
    return float(min(0.0, (x * y).sum() / (x * x).sum()))  # a better draft never costs time
