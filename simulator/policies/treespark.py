"""TreeSpark (arXiv 2609.22098): calibrated parent-conditioned trees, cut at a survival threshold.

Its ladder of thresholds over the live batch was certified by measurement, not priced at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import model_validator

from simulator.calibration.file import calibration_for
from simulator.calibration.fit import platt_edges
from simulator.calibration.lab import fitting_anchors, samples
from simulator.calibration.maps import Platt, fit_platt
from simulator.orders.families.sampled import SampledOrder, sampled_edges
from simulator.orders.specs import BestFirstOrder, ChainOrder, Order
from simulator.policies.checks import MOST, choice, entries, node_count, refused
from simulator.policies.shared.rules import NEAR, FixedWidth, RulePolicy, Threshold
from simulator.policy import Lab
from traces.common.settings import Section, number, whole

# Published, re-read every round: at temperature 0, and above it.
LADDER = (
    {"max_batch": 4, "theta": 0.02},
    {"max_batch": 8, "theta": 0.05},
    {"max_batch": None, "theta": 0.15},
)
SAMPLED_LADDER = ({"max_batch": 8, "theta": 0.05}, {"max_batch": None, "arm": "chain"})


RUNG = "{max_batch, theta} or {max_batch, arm: chain}"


class Rung(Section):
    """One step of the ladder: batches up to `max_batch`, null on the last."""

    max_batch: whole(1, MOST) | None
    theta: number(0, 1) | None = None  # survival threshold; None: the plain chain
    arm: Literal["chain"] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Rung:
        if (self.theta is None) == (self.arm is None):
            self.refuse("theta", RUNG)
        return self

    @property
    def log_thetas(self) -> tuple[float, float, float]:
        """Log of the threshold, and those between which a node could fall either way elsewhere."""
        around = (self.theta, self.theta - NEAR, self.theta + NEAR)
        return tuple(math.log(p) if p > 0 else -math.inf for p in around)


def read_ladder(ladder: Sequence[Mapping[str, Any]]) -> tuple[Rung, ...]:
    """Rungs by rising batch; the last one covers every larger batch. InputError for others."""
    rungs = entries("ladder", ladder, Rung, RUNG)
    limits = [rung.max_batch for rung in rungs]
    if limits[-1] is not None or None in limits[:-1] or sorted({*limits[:-1]}) != limits[:-1]:
        raise refused("ladder", limits, "max_batch that rises, null in the last entry only")
    return rungs


class TreeSpark(RulePolicy):
    """Verify every node whose estimated survival reaches theta(batch).

    Above temperature 0 siblings are drawn without replacement, and a slot is admitted by the bound
    it has before its token is drawn.

    Args:
        nodes: most nodes per request. branch: children a node may have.
        ladder: ``{max_batch, theta}`` by rising batch, the last ``max_batch`` null; ``arm: chain``
            in place of theta verifies the plain chain instead: theta near 1 would give an almost
            empty tree, not the chain. null: the published ladder of the recording's temperature.
        draws: above temperature 0. auto: sampled, as published. fixed: the candidate sets of
            temperature 0.
        calibration: a file of `task=calibrate`, whose labels are those of fixed candidate sets;
            null: fitted now. force_calibration: take one of another recording.
    """

    def __init__(
        self,
        nodes: int = 63,
        branch: int = 8,
        ladder: Sequence[Mapping[str, Any]] | None = None,
        draws: str = "auto",
        calibration: str | None = None,
        force_calibration: bool = False,
    ) -> None:
        self._tree = {"nodes": node_count("nodes", nodes), "branch": node_count("branch", branch)}
        self._published = ladder is None
        self._climb(LADDER if ladder is None else ladder)
        self._draws = choice("draws", draws, ("auto", "sampled", "fixed"))
        self._file = calibration, choice("force_calibration", force_calibration, (False, True))

    def _climb(self, ladder: Sequence[Mapping[str, Any]]) -> None:
        self.ladder, self._orders = read_ladder(ladder), {}
        self._admit = {rung: rung.log_thetas for rung in self.ladder if rung.theta}

    def prepare(self, lab: Lab) -> None:
        """Fit p = sigmoid(a logit q + b) on edges whose ancestors were all accepted."""
        self.near_threshold = 0
        temperature = lab.recording.temperature
        if self._published:
            self._climb(SAMPLED_LADDER if temperature else LADDER)
        if samples(lab, self._draws):
            self.order = SampledOrder(temperature=temperature, **self._tree)
            self._chain: Order = replace(self.order, branch=1, nodes=lab.recording.depths)
        else:
            self.order = BestFirstOrder(scores="auto", ties="tick", **self._tree)
            self._chain = ChainOrder()
        self.platt = self._fitted(lab)
        self.order = replace(self.order, platt=(self.platt.a, self.platt.b))
        self._orders = {rung: self._order(rung) for rung in self.ladder}

    def _fitted(self, lab: Lab) -> Platt:
        self._read = None if self._file[0] is None else calibration_for(lab, *self._file)
        if self._read is not None:
            return self._read.platt
        anchors = fitting_anchors(lab, "calibration")
        if isinstance(self.order, SampledOrder):
            q, accepted, _ = sampled_edges(lab.recording, lab.table(self.order), anchors)
            return fit_platt(q, accepted)
        return fit_platt(*platt_edges(lab.table(self.order), lab.recording, anchors))

    def _order(self, rung: Rung) -> Order:
        """The rung's order: TreeSpark's loop ends at the first survival below theta.

        It ends a little lower here, so that decisions near theta are still seen.
        """
        if rung.theta is None:
            return self._chain
        _, low, _ = rung.log_thetas
        return replace(self.order, floor=low) if math.isfinite(low) else self.order

    def rule(self, batch: int) -> FixedWidth | Threshold:
        rung = next(one for one in self.ladder if batch <= (one.max_batch or math.inf))
        order = self._orders.get(rung)
        return Threshold(order, *self._admit[rung]) if rung.theta else FixedWidth(order)

    def describe(self) -> dict:
        fitted = {"platt_a": self.platt.a, "platt_b": self.platt.b}
        return fitted if self._read is None else self._read.describe()
