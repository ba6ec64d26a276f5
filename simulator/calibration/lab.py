"""What may be fitted on before a run: the calibration and tuning splits, and never the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from traces.common.errors import InputError

if TYPE_CHECKING:
    from simulator.cost import StepCost
    from simulator.orders.specs import Order
    from simulator.orders.table import OrderTable
    from traces.recordings.recording import Recording

FITTING = ("calibration", "tuning")  # splits; results are reported on the third


@dataclass(frozen=True, slots=True)
class Lab:
    """What a policy may fit on before a run: calibration and tuning splits, never the report.

    `recording` and the rows of `table` are those splits alone: their anchors are numbered from 0.
    `cost` is the policy's own copy.
    """

    recording: Recording
    cost: StepCost
    max_batch: int
    context: int  # typical KV tokens before the root
    table: Callable[[Order], OrderTable]

    def anchors(self, split: str) -> np.ndarray:
        """Anchor indices of `calibration` or `tuning`."""
        return self.recording.anchors_of(split=_fitting(split))

    def sequences(self, split: str) -> np.ndarray:
        """Sequence indices of `calibration` or `tuning`."""
        return self.recording.sequences_of(split=_fitting(split))


def _fitting(split: str) -> str:
    if split not in FITTING:
        raise ValueError(f"split: {split!r} may not be fitted on; accepted: {', '.join(FITTING)}")
    return split


def samples(lab: Lab, draws: str) -> bool:
    """Whether drafts are sampled: at `auto` above temperature 0, at `sampled` always.

    Raises:
        InputError: `sampled` at temperature 0, where there is nothing to draw from.
    """
    recording = lab.recording
    if draws == "sampled" and not recording.temperature:
        raise InputError(
            f"policy.draws is 'sampled', but {recording.source} has temperature 0; accepted there: "
            "any other"
        )
    return draws == "sampled" or (draws == "auto" and recording.temperature > 0)


def fitting_anchors(lab: Lab, split: str) -> np.ndarray:
    """Anchors of a fitting split; InputError where the recording has none."""
    anchors = lab.anchors(split)
    if len(anchors) == 0:
        raise InputError(
            f"{lab.recording.source}: split {split} has no drafted positions; accepted: at least "
            "one, this policy fits on it"
        )
    return anchors


def fitting_sequences(lab: Lab, split: str) -> np.ndarray:
    """Sequences of a fitting split that have anchors; InputError where there are none."""
    return np.unique(lab.recording.anchor_sequence[fitting_anchors(lab, split)])
