"""What is claimed, how comparisons are judged, and where they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.engine.run import fit, tables_of
from simulator.engine.settings import read_settings
from simulator.orders.specs import Order
from simulator.policies.loading import make_policy
from simulator.policy import FITTING
from simulator.studies.options import one_theta, read_like, read_listed
from simulator.studies.report import sign
from simulator.studies.runs import Run, check_closed_loop, fair_requests
from simulator.studies.settings import Claims as ClaimsSettings
from traces.common.errors import InputError
from traces.common.intervals import Interval, interval, resampled_prompts
from traces.common.settings import read

CONFIRMED, REFUTED, UNDECIDED, MIXED = "confirmed", "refuted", "not decided", "mixed"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said. every: it must hold in every cell of a row, not in their mean."""

    name: str
    statement: str
    ratio: str  # of what to what
    every: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """The row a comparison belongs to; profile and setting are empty where there is none."""

    claim: str
    recording: str
    profile: str = ""
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its value, and its draft nodes per request and round."""

    value: float
    nodes: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One comparison."""

    where: Where
    at: str  # column: a node budget, a threshold or a concurrency
    unit: str
    ours: Side
    other: Side
    log_draws: np.ndarray  # (resamples,) of log(ours / other), shared prompts
    prompts: int
    beyond_table: bool = False  # steps of either side lie outside what was measured

    @property
    def same(self) -> bool:
        """Both sides did the same (or it made no difference to any prompt)."""
        return self.ours == self.other and not self.log_draws.any()

    @property
    def ratio(self) -> Interval:
        return interval(self.ours.value / self.other.value, np.exp(self.log_draws), self.prompts)

    @property
    def verdict(self) -> str:
        return judged(self.ratio)


@dataclass(frozen=True, slots=True)
class Row:
    """All comparisons of one place, and their geometric mean under shared resamples."""

    claim: Claim
    where: Where
    cells: tuple[Comparison, ...]

    @property
    def ratio(self) -> Interval:
        logs = [np.log(cell.ours.value / cell.other.value) for cell in self.cells]
        draws = np.mean([cell.log_draws for cell in self.cells], axis=0)
        prompts = min(cell.prompts for cell in self.cells)
        return interval(float(np.exp(np.mean(logs))), np.exp(draws), prompts)

    @property
    def verdict(self) -> str:
        if not self.claim.every:
            return judged(self.ratio)
        found = [cell.verdict for cell in self.cells]
        if REFUTED in found:
            return REFUTED  # one counter-example is enough
        return CONFIRMED if set(found) == {CONFIRMED} else UNDECIDED


def judged(ratio: Interval) -> str:
    """Not decided without an interval, and where it includes 1 (as when both did the same)."""
    return {"+": CONFIRMED, "-": REFUTED, " ": UNDECIDED}[sign(ratio)]


def overall(rows: Sequence[Row]) -> str:
    """The verdict that all rows share; mixed where some confirm and others refute."""
    found = {row.verdict for row in rows}
    if found >= {CONFIRMED, REFUTED}:
        return MIXED
    return found.pop() if len(found) == 1 else UNDECIDED


def rows_of(claim: Claim, cells: Sequence[Comparison]) -> list[Row]:
    """The claim's rows, in the order in which they were compared."""
    own = [cell for cell in cells if cell.where.claim == claim.name]
    places = dict.fromkeys(cell.where for cell in own)
    return [Row(claim, place, tuple(c for c in own if c.where == place)) for place in places]


CLAIMS = (
    Claim(
        "1",
        "Parent-conditioned ranking beats marginal ranking at every node budget "
        "(semi-autoregressive drafters)",
        "R at this many nodes, parent-conditioned / marginal",
        every=True,
    ),
    Claim(
        "2a",
        "A survival threshold beats a fixed budget of as many nodes per round",
        "R at this theta, threshold / fixed width in the same order, equal mean nodes",
    ),
    Claim(
        "2b",
        "A survival threshold serves faster than the nearest fixed budget",
        "tokens/s at this concurrency, TreeSpark with one theta / fixed width in the same order",
    ),
    Claim(
        "3a",
        "Alone: CAST's width from measured sizes beats its width from a straight line",
        "tokens/s at this concurrency, cast width=measured / cast",
    ),
    Claim(
        "3b",
        "Alone: the best of the measured staircase beats CaDDTree's first stop on a convex fit",
        "tokens/s at this concurrency, best of the staircase / caddtree",
    ),
    Claim(
        "3c",
        "In batches: the best of the measured staircase beats DSpark's first stop on chains",
        "tokens/s at this concurrency, adaptive_verification / dspark",
    ),
    Claim(
        "4a",
        "One common price of time beats per-step ratios",
        "tokens/s at this concurrency, priced_survival price=lambda / ratio",
    ),
    Claim(
        "4b",
        "Local prices beat per-step ratios",
        "tokens/s at this concurrency, priced_survival price=local / ratio",
    ),
    Claim(
        "4c",
        "Local prices beat one common price",
        "tokens/s at this concurrency, priced_survival price=local / lambda",
    ),
    Claim(
        "5",
        "A budget shared by the batch beats the same number for every request",
        "tokens/s at this concurrency, cast's shared budget / uniform in the same order",
    ),
    Claim(
        "6a",
        "At low load trees beat chains",
        "tokens/s at this concurrency, fixed_tree of 63 nodes / tuned_chain",
    ),
    Claim(
        "6b",
        "At high load chains beat trees",
        "tokens/s at this concurrency, tuned_chain / fixed_tree of 63 nodes",
    ),
    Claim(
        "7a",
        "Above temperature 0 fixed candidate sets beat sampled siblings, by thresholds",
        "tokens/s at this concurrency, treespark draws=fixed / sampled",
    ),
    Claim(
        "7b",
        "Above temperature 0 fixed candidate sets beat sampled siblings, by priced survival",
        "tokens/s at this concurrency, priced_survival draws=fixed / sampled",
    ),
)


# ---------------- What is asked, and where it is compared.


SPLIT = "report"  # what is judged on
FITTED_FOR = 16  # most requests of a step, for policies whose order alone is wanted
BATCHED = ("b300", "mi355x")  # tables measured in batches
THETAS = (0.02, 0.05, 0.15)  # TreeSpark's published ones


@dataclass(frozen=True, slots=True)
class ClaimsPlan:
    """Which recordings, which profiles (None: every claim's own) and which loads."""

    config: Mapping[str, Any]  # of every run, but for policy, texts, profile and load
    asked: ClaimsSettings
    traces: Mapping[str, Mapping[str, Any]]  # their nodes, by the name that was asked for

    def profile(self, name: str) -> dict[str, Any]:
        """The latency node of a profile."""
        return read_like("latency", name, self.config["latency"], "claims.profiles")


def read_plan(cfg: Mapping[str, Any]) -> ClaimsPlan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file; texts that only a simulation would miss.
    """
    check_closed_loop(read_settings(cfg), "claims")
    asked, own = read(ClaimsSettings, cfg.get("claims") or {}), cfg["trace"]
    kept = {"split": SPLIT, "domains": own.get("domains")}
    nodes = read_listed("trace", asked.traces, own, "claims.traces")
    traces = {name: {"recording": node.get("recording"), **kept} for name, node in nodes.items()}
    plan = ClaimsPlan({**cfg, "goodput": None, "task": "run"}, asked, traces)
    for node in traces.values():
        recording = load_recording(node)
        choose_sequences(node, recording)
        for split in FITTING:
            if not len(recording.sequences_of(split)):
                raise InputError(
                    f"{recording.source}: no sequence of split {split!r}; accepted: a recording "
                    "that policies can be fitted on"
                )
    for name in asked.profiles or ():
        load_cost(plan.profile(name))
    return plan


class Bench:
    """What one recording is compared with: its texts, orders, resamples, and runs on it."""

    def __init__(self, plan: ClaimsPlan, name: str) -> None:
        self.plan, self.name, self._node = plan, name, plan.traces[name]
        self.recording = load_recording(self._node)
        self.sequences = choose_sequences(self._node, self.recording)  # (P,)
        self.table = tables_of(self.recording)

    @cached_property
    def weights(self) -> np.ndarray:
        """(resamples, P), the same for every comparison."""
        return resampled_prompts(len(self.sequences), self.plan.asked.resamples, seed=0)

    @cached_property
    def threshold_order(self) -> Order:
        """TreeSpark's, the same for every theta and every profile."""
        policy = make_policy(one_theta(THETAS[0]))
        cost = load_cost(self.plan.profile(BATCHED[0]))
        fit(policy, self.recording, cost, FITTED_FOR, self.table)
        return policy.order

    def run(self, node: Mapping[str, Any], profile: str, concurrency: int) -> Run:
        """A closed loop on the report split."""
        return Run(
            {
                **self.plan.config,
                "policy": dict(node),
                "trace": self._node,
                "latency": self.plan.profile(profile),
                "max_concurrency": concurrency,
                "num_prompts": fair_requests(concurrency, len(self.sequences)),
            }
        )
