"""DSpark (arXiv 2607.05147): chains of the whole batch share what the verifier can take.

Its confidence-scheduled verification: survivals of all requests are admitted best first, until the
batch's tokens per second first fail to rise.
"""

from __future__ import annotations

import numpy as np

from simulator.calibration.chain import DRAWS, calibrated_chain
from simulator.policies.checks import choice, probability
from simulator.policies.shared.choices import FIRST
from simulator.policies.shared.rules import NEAR, best_of_batch
from simulator.policy import Lab, Policy, Step


class DSpark(Policy):
    """Algorithm 1: the global prefix scheduler, on calibrated confidences.

    a_(r,j), the product of request r's first j confidences, is sorted over the batch (ties: j,
    then r) and admitted in sequence; the scheduler breaks at the first Theta = tau x SPS(tokens)
    that is not above the best. SPS is steps per second by total tokens, as the cost model answers
    them: a staircase where the engine has one. The break keeps sampled drafts lossless, because
    nothing is decided by a token that was not yet admitted.

    Args:
        draws: auto is a sampled chain above temperature 0 and the argmax chain at 0.
        threshold: null is Algorithm 1. A probability instead cuts every request before the first
            position whose own confidence is below it, on the head's own values, as the released
            evaluation code does (its default 0 cuts nothing); it knows no load.
    """

    def __init__(self, draws: str = "auto", threshold: float | None = None) -> None:
        self.draws = choice("draws", draws, DRAWS)
        self.threshold = None if threshold is None else probability("threshold", threshold)

    def prepare(self, lab: Lab) -> None:
        self.near_threshold = 0
        self.order, self._fit = calibrated_chain(lab, self.draws, scaled=self.threshold is None)

    def allocate(self, step: Step) -> np.ndarray:
        draft = step.draft
        if self.threshold is None:
            return best_of_batch(step, np.exp(draft.score), FIRST)[1]
        exists = np.arange(draft.score.shape[1]) < draft.size[:, None]  # (batch, M)
        score = np.where(exists, draft.score, 0.0)
        confidence = np.exp(np.diff(score, axis=1, prepend=0.0))
        self.near_threshold += int((exists & (abs(confidence - self.threshold) < NEAR)).sum())
        going = exists & (confidence >= self.threshold)
        return np.logical_and.accumulate(going, axis=1).sum(axis=1)  # (batch,)

    def describe(self) -> dict:
        return self._fit
