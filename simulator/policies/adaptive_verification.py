"""vLLM's adaptive verification: how many chain tokens the whole batch verifies, and whose."""

from __future__ import annotations

import numpy as np

from simulator.calibration.chain import DRAWS, calibrated_chain
from simulator.calibration.lab import fitting_anchors
from simulator.policies.checks import choice
from simulator.policies.shared.choices import RATE
from simulator.policies.shared.rules import best_of_batch, top_widths
from simulator.policy import Lab, Load, Policy, Step


class AdaptiveVerification(Policy):
    """A budget from the last step's survivals, spent on the best of the current ones.

    K maximises (B + sum of the K best survivals) / cost(B + K) over all K, where the cost is made
    never to fall (a running maximum); it includes the draft and, as everywhere here, host work.
    Survivals sizing K are those of the request's previous step, so that K is known before the
    draft is; a request without one counts with the mean survivals of the calibration split. (Its
    current ones would let a sampled token decide whether it is verified, which is not lossless.)
    Confidences are calibrated by sequential temperature scaling; drafters without a confidence
    head get a logistic regression on the logit margin per depth.

    Args:
        draws: auto is a sampled chain above temperature 0 and the argmax chain at 0.
    """

    def __init__(self, draws: str = "auto") -> None:
        self.draws = choice("draws", draws, DRAWS)

    def prepare(self, lab: Lab) -> None:
        self.order, self._fit = calibrated_chain(lab, self.draws)
        seen = lab.table(self.order).score[fitting_anchors(lab, "calibration")]
        self._usual = np.log(np.exp(seen).mean(axis=0))  # (M,)
        self._last = (np.zeros(0, np.int64), np.zeros((0, len(self._usual))))

    def allocate(self, step: Step) -> np.ndarray:
        draft = step.draft
        budget, _ = best_of_batch(step, np.exp(self._stale(step.load)), RATE, rising=True)
        if step.load.request is not None:
            self._last = (step.load.request, draft.score)
        return top_widths(draft.score, draft.size, budget, draft.depth)  # (batch,)

    def _stale(self, load: Load) -> np.ndarray:
        """Log survivals of each request at its previous step: (batch, M)."""
        rows = np.tile(self._usual, (load.batch, 1))
        if load.request is not None:
            ids, scores = self._last
            _, here, there = np.intersect1d(
                load.request, ids, assume_unique=True, return_indices=True
            )
            rows[here] = scores[there]
        return rows

    def describe(self) -> dict:
        return self._fit
