"""Live runs against the simulator's predictions, interleaved so that machine drift cancels.

Every repeat is a pass of the probe, runs that host terms are fitted on, and runs that are judged,
in shuffled order. Fitted and judged runs serve different prompts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from real_runner.probing import Cell, Grid, Probe, Samples, one_pass, profile_of
from real_runner.validating.agreement import errors_of, noise_of, summarise_cells
from real_runner.validating.arena import Arena, Served
from real_runner.validating.compare import Comparison, compare_rounds
from simulator.cost import HostOverhead, LatencyProfile, StepCost
from simulator.cost.host import fit_host, term_counts
from simulator.engine.arrivals import Workload, make_workload
from simulator.engine.settings import Settings
from simulator.results.facts import Facts
from simulator.results.sums import Sums
from traces.recordings.recording import Recording

FEWEST = 24  # requests of a judged run; 6 for each client where that is more
FITTED = 12  # requests of a fitted run; 2 for each client where that is more
STALL = 8.0  # times the profile: a step that long was stopped by something else
WARMUP = 8  # requests of each policy before anything is timed


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """What to validate."""

    policies: list[dict[str, Any]]
    concurrency: list[int]
    repeats: int
    grid: Grid
    probe_warmup: int
    probe_repeats: int  # of every cell in each pass
    seed: int

    @property
    def keys(self) -> list[tuple[int, int]]:
        """(policy index, concurrency) of every cell of the report."""
        return [(i, size) for size in self.concurrency for i in range(len(self.policies))]


@dataclass(slots=True)
class Collected:
    """What complete repeats gave."""

    samples: dict[Cell, Samples] = field(default_factory=dict)
    fitted: list[Served] = field(default_factory=list)
    judged: dict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=dict)
    commits: dict[tuple[int, int], Comparison] = field(default_factory=dict)
    repeats: int = 0


class Validation:
    """One pair on one machine; `run` collects, `result` predicts and compares."""

    def __init__(
        self, arena_of: Callable[[StepCost], Arena], probe: Probe, plan: ValidationPlan
    ) -> None:
        self.probe, self.plan = probe, plan
        self.cells = probe.cells(plan.grid)
        self._arena_of = arena_of
        self.arena: Arena | None = None
        self.collected = Collected()

    def run(self, log: Callable[[str], None]) -> None:
        """Collect every repeat; after an interruption the complete ones can still be judged."""
        log(f"probe: {len(self.cells)} cells, first pass")
        self._probe_pass(0)
        # Policies that size by cost are told this first profile, live and replayed alike, with
        # the host terms of a pilot in which they are told the profile alone.
        first = profile_of(self.probe, self.collected.samples, "first_pass")
        packing = self.probe.settings.packing
        self.arena = self._arena_of(StepCost(first, packing=packing))
        log("warm-up, and a pilot of every policy")
        for node in self.plan.policies:
            size = max(self.plan.concurrency)
            self.arena.serve(node, self._fit_workload(size, WARMUP), size)
        with _quiet():
            pilot = [self._fit_run(key) for key in self.plan.keys]
        host = self._fitted_host(first, pilot)
        self.arena = self._arena_of(StepCost(first, host=host, packing=packing))
        log("the replays that live rounds are held against")
        self._replays = {key: self._replay(key) for key in self.plan.keys}
        for repeat in range(self.plan.repeats):
            self._repeat(repeat)
            log(f"repeat {repeat + 1} of {self.plan.repeats}")

    def _repeat(self, repeat: int) -> None:
        order = np.random.default_rng([self.plan.seed, repeat])
        fitted, judged = [], {}
        if repeat:
            self._probe_pass(repeat)
        jobs = [(kind, key) for kind in ("fit", "judge") for key in self.plan.keys]
        with _quiet():
            for i in order.permutation(len(jobs)).tolist():
                kind, (policy, size) = jobs[i]
                node = self.plan.policies[policy]
                if kind == "fit":
                    fitted.append(self._fit_run((policy, size)))
                else:
                    judged[policy, size] = self.arena.serve(node, self._workload(size), size)
        for key, served in judged.items():  # only once the repeat is complete
            self.collected.judged.setdefault(key, []).append(measured(served.facts))
            found = self._compared(key, judged[key])
            known = self.collected.commits.get(key)
            if known is None or (found.first is not None and known.first is None):
                self.collected.commits[key] = found
        self.collected.fitted += fitted
        self.collected.repeats += 1

    def _fit_run(self, key: tuple[int, int]) -> Served:
        policy, size = key
        work = self._fit_workload(size, max(FITTED, 2 * size))
        return self.arena.serve(self.plan.policies[policy], work, size)

    def _compared(self, key: tuple[int, int], served: Served) -> Comparison:
        """A judged run's rounds against the replay's."""
        policy, size = key
        order = self.arena.fitted(self.plan.policies[policy], size).order
        tables = self.arena.cut_tables(order)
        recording = self.arena.recording
        return compare_rounds(self._replays[key], served.facts, recording, tables, served.outputs)

    def _probe_pass(self, index: int) -> None:
        samples = self.collected.samples
        for cell in one_pass(self.cells, self.plan.seed, index):
            new = self.probe.measure(cell, self.plan.probe_warmup, self.plan.probe_repeats)
            samples[cell] = samples[cell] + new if cell in samples else new

    def _workload(self, size: int) -> Workload:
        """The judged requests: report split, steady load as in the simulator."""
        count = max(FEWEST, 6 * size)
        settings = Settings(max_concurrency=size, num_prompts=count, seed=self.plan.seed)
        recording = self.arena.recording
        return make_workload(settings, recording, recording.sequences_of("report"))

    def _fit_workload(self, size: int, count: int) -> Workload:
        """Requests that host terms are fitted on: the two other splits."""
        recording = self.arena.recording
        parts = [recording.sequences_of(split) for split in ("calibration", "tuning")]
        settings = Settings(max_concurrency=size, num_prompts=count, seed=self.plan.seed + 1)
        return make_workload(settings, recording, np.concatenate(parts))

    def _replay(self, key: tuple[int, int], price: StepCost | None = None) -> Facts:
        policy, size = key
        return self.arena.replay(self.plan.policies[policy], self._workload(size), size, price)

    def profile(self) -> LatencyProfile:
        """Everything the probe measured."""
        return profile_of(self.probe, self.collected.samples, "validation")

    def fit(self, profile: LatencyProfile) -> HostOverhead:
        """Host terms from the fitted runs: what draft and verify of the profile leave."""
        return self._fitted_host(profile, self.collected.fitted)

    def _fitted_host(self, profile: LatencyProfile, fitted: list[Served]) -> HostOverhead:
        bare = StepCost(profile, packing=self.probe.settings.packing)
        recording = self.arena.recording
        rows = [_fit_columns(served, bare, recording) for served in fitted]
        step_s, device_s, *counts = (np.concatenate(parts) for parts in zip(*rows))
        names = ("drafted", "requests", "nodes", "ordered", "tree", "fed", "deferred")
        terms = term_counts(**dict(zip(names, counts, strict=True)))
        kept = step_s < STALL * device_s
        terms = {name: column[kept] for name, column in terms.items() if column[kept].any()}
        return fit_host(step_s[kept], device_s[kept], terms, relative=True)

    def result(self, profile: LatencyProfile, host: HostOverhead) -> dict[str, Any]:
        """`cells` and `summary` of the report."""
        price = StepCost(profile, host=host, packing=self.probe.settings.packing)
        cells = []
        for key in self.plan.keys:
            policy, size = key
            runs, commits = self.collected.judged[key], self.collected.commits[key]
            live = {
                name: [run[name] for run in runs]
                for name in ("output_throughput", "median_tpot_ms")
            }
            live["step_ms"] = {
                part: [run["step_ms"][part] for run in runs] for part in runs[0]["step_ms"]
            }
            predicted = measured(self._replay(key, price))
            cells.append(
                {
                    "policy": self.plan.policies[policy]["name"],
                    "concurrency": size,
                    "commits": {
                        "rounds": commits.rounds,
                        "differing": commits.differing,
                        "first": None if commits.first is None else str(commits.first),
                    },
                    "measured": live,
                    "predicted": predicted,
                    "error": errors_of(live, predicted),
                    "noise": noise_of(live["output_throughput"]),
                }
            )
        return {"cells": cells, "summary": summarise_cells(cells)}


def measured(facts: Facts) -> dict[str, Any]:
    """Throughput, TPOT and the parts of a step, live or simulated, by the same definitions."""
    sums = Sums.of(facts)
    return {
        "output_throughput": sums.throughput()["output_throughput"],
        "median_tpot_ms": sums.latency()["median_tpot_ms"],
        "step_ms": sums.steps.step_ms(),
    }


def _fit_columns(served: Served, bare: StepCost, recording: Recording) -> tuple[np.ndarray, ...]:
    """Per full step: seconds, those of draft and verify by the profile, what host terms count."""
    steps, rounds = served.facts.steps, served.facts.rounds
    ends = np.cumsum(steps["batch"])[:-1]
    anchor = rounds["anchor"]
    # By the request's text: one that is not the recorded one may run past its anchors.
    sequence = served.facts.requests["sequence"][rounds["request"]]
    output = anchor - recording.anchor_offset[sequence]
    packed = np.split(rounds["width"] + 1, ends)
    context = np.split(recording["prompt_len"][sequence] + output, ends)
    device_s = np.array(
        [
            bare.step(one, where, drafted=bool(drafted), tree=False).total_s
            for one, where, drafted in zip(packed, context, steps["drafted"])
        ]
    )
    columns = (steps["drafted"], steps["batch"], steps["draft_nodes"], served.ordered, served.trees)
    fed = np.full(len(device_s), served.fed)
    deferred = deferred_tokens(served.facts) if served.fed else np.zeros(len(device_s))
    everything = (steps["step_s"], device_s, *columns, fed, deferred)
    # Batches that run empty fall between the probe's: how its table is read there is no host work.
    full = steps["batch"] == served.facts.concurrency
    return tuple(np.asarray(column)[full] for column in everything)


def deferred_tokens(facts: Facts) -> np.ndarray:
    """Tokens of plain steps that the drafter has not read when a step begins: (steps,).

    Those that its requests committed since they last drafted, or were admitted.
    """
    rounds, drafted = facts.rounds, facts.steps["drafted"]
    waiting: dict[int, int] = {}
    total = np.zeros(len(drafted), np.int64)
    columns = (rounds[name].tolist() for name in ("step", "request", "committed"))
    for step, request, committed in zip(*columns, strict=True):
        before = waiting.get(request, 0)
        total[step] += before
        waiting[request] = 0 if drafted[step] else before + committed
    return total


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Python's garbage collector, whose pauses fall on whatever runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
