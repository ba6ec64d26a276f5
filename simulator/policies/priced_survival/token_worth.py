"""What a token is worth where a request stands: the time per token of the stretch ahead of it.

Tokens are not fungible. A hard stretch must be crossed whatever happens, so a token accepted there
saves more time than one in an easy stretch. How hard the stretch is shows in the draft: the sum of
its survivals predicts the rounds per token of what follows, the less so the fewer nodes are
verified. The exponent is therefore fitted for every width, on replays of the calibration split.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.orders.replay import replay
from simulator.orders.table import OrderTable
from simulator.policy import Lab, Outcome

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)  # nodes per request and round, replayed
AHEAD = 16  # tokens of the stretch
LOOK = 32  # survivals summed
LEAST = 50  # rounds for a regression; fewer: every token is worth the same


def expected(survival: np.ndarray) -> np.ndarray:
    """1 + the sum of each row's first `LOOK` survivals (n, M): (n,) tokens."""
    return 1.0 + survival[:, :LOOK].sum(axis=1)


def fit_worth(
    lab: Lab,
    table: OrderTable,
    sequences: np.ndarray,
    survival: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> dict[int, float]:
    """Exponents by nodes per request, rising: rounds per token ~ `expected` ** exponent.

    Least squares of the log rounds per token on the log of `expected`, width by width.

    Args:
        sequences: of a fitting split. survival: of scores (n, M) and sizes (n,): (n, M).
    """
    exponents = {}
    for width in [width for width in WIDTHS if width <= table.max_nodes]:
        run = replay(table, lab.recording, sequences, width)
        rounds, inside = _rounds_ahead(lab, run.anchors)
        anchors = run.anchors[inside]
        x = np.log(expected(survival(table.score[anchors], table.size[anchors])))
        exponents[width] = _slope(x, np.log(rounds[inside] / AHEAD))
    return exponents


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


# ---------------- What requests are worth that are behind their time per output token.

ROUNDS = 16  # of the running mean
PULL, LARGEST = 0.1, 8.0


class TpotWeights:
    """w <- clip(w exp(0.1 (TPOT / target - 1)), 1, 8) after every round of a request.

    target_ms: None: every weight is 1.
    """

    def __init__(self, target_ms: float | None) -> None:
        self._target_s = None if target_ms is None else target_ms / 1e3
        self.active = target_ms is not None
        self._running: dict[int, tuple[float, float, float]] = {}  # seconds, tokens, weight

    def of(self, request: np.ndarray) -> np.ndarray:
        """Weights (batch,) of request ids (batch,)."""
        if self._target_s is None:
            return np.ones(len(request))
        return np.array([self._running.get(one, (0, 0, 1.0))[2] for one in request.tolist()])

    def observe(self, outcome: Outcome) -> None:
        """Take a step in; requests that are not in it are over or new."""
        if self._target_s is None:
            return
        keep, running = 1 - 1 / ROUNDS, {}
        for one, tokens in zip(outcome.request.tolist(), outcome.committed.tolist(), strict=True):
            seconds, before, weight = self._running.get(one, (0.0, 0.0, 1.0))
            seconds, before = keep * seconds + outcome.step_s, keep * before + tokens
            late = seconds / before / self._target_s - 1
            running[one] = seconds, before, float(np.clip(weight * np.exp(PULL * late), 1, LARGEST))
        self._running = running
