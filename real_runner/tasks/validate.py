"""task=validate: how far the simulator's predictions are from live runs on this machine.

Runs are interleaved so that machine drift cancels: every repeat is a pass of the probe, runs that
host terms are fitted on, and runs that are judged, in shuffled order. Fitted and judged runs serve
different prompts.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from real_runner.models.loading import load_live
from real_runner.probing.grid import Cell, Grid, Samples, one_pass
from real_runner.probing.measure import Probe, no_collection
from real_runner.probing.profile import hardware, profile_of
from real_runner.serving.arena import Arena, Served, recorded_arena
from real_runner.settings import (
    LiveSettings,
    ValidateKeys,
    make_folder,
    policy_nodes,
    with_fixed_sets,
)
from real_runner.validating.agreement import errors_of, noise_of, summarise_cells
from real_runner.validating.compare import Comparison, compare_rounds
from real_runner.validating.report import lines, markdown
from simulator.cost import HostOverhead, LatencyProfile, StepCost, write_profile
from simulator.cost.host import fit_host, term_counts
from simulator.engine.arrivals import Workload, make_workload
from simulator.engine.settings import Settings
from simulator.results.facts import Facts
from simulator.results.files import write_files
from simulator.results.sums import Sums
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED
from traces.common.settings import read
from traces.recordings.recording import Recording

LEAST_TOKENS = 4  # outputs of a text: fewer leave no steady steps
FEWEST = 24  # requests of a judged run; 6 for each client where that is more
FITTED = 12  # requests of a fitted run; 2 for each client where that is more
STALL = 8.0  # times the profile: a step that long was stopped by something else
WARMUP = 8  # requests of each policy before anything is timed
Log = Callable[[str], None]
Key = tuple[int, int]  # index of the policy, concurrency


def run_validate(config: Mapping[str, Any], live: LiveSettings, log: Log) -> int:
    """Measure, predict, write validation.json, report.md, the profile and the figure."""
    asked, output = read(ValidateKeys, config["validate"]), Path(live.output or "validation")
    if live.max_new_tokens < LEAST_TOKENS:
        raise InputError(
            f"max_new_tokens is {live.max_new_tokens}; accepted for task=validate: at least "
            f"{LEAST_TOKENS}"
        )
    policies = with_fixed_sets(policy_nodes("validate.policies", asked.policies), live.temperature)
    pair = load_live(config)
    make_folder(output)
    arena = recorded_arena(config, live, asked, pair, asked.prompts_per_domain)
    recording = arena.recording
    log(f"{recording.num_sequences} texts recorded, {recording.num_anchors} anchors")
    validation = Validation(arena, policies, asked)
    interrupted = False
    try:
        validation.run(log)
    except KeyboardInterrupt:
        if not validation.repeats:
            raise
        interrupted = True
        log(f"interrupted: reporting {validation.repeats} complete repeats")
    write(output, validation, live, log)
    return INTERRUPTED if interrupted else 0


class Validation:
    """One pair on one machine; `run` collects, `result` predicts and compares.

    Args:
        arena: without a cost, which is measured here.
    """

    def __init__(self, arena: Arena, policies: list[dict[str, Any]], asked: ValidateKeys) -> None:
        self.arena, self.policies, self.asked = arena, policies, asked
        self.probe = Probe(arena.pair, arena.drafter, arena.settings, arena.verifier)
        sizes = ("batches", "packed_per_request", "prefixes", "prompt_tokens")
        self.cells = self.probe.cells(Grid(**{name: getattr(asked, name) for name in sizes}))
        # Cells of the report.
        self.keys = [(i, size) for size in asked.concurrency for i in range(len(policies))]
        splits = ("calibration", "tuning")
        self.fitting = np.concatenate([arena.recording.sequences_of(split) for split in splits])
        self.samples: dict[Cell, Samples] = {}
        # Of complete repeats.
        self.fitted: list[Served] = []
        self.judged: dict[Key, list[dict[str, Any]]] = {}
        self.commits: dict[Key, Comparison] = {}
        self.repeats = 0

    def run(self, log: Log) -> None:
        """Collect every repeat; after an interruption the complete ones can still be judged."""
        log(f"probe: {len(self.cells)} cells, first pass")
        self._probe_pass(0)
        # Policies that size by cost are told this first profile, live and replayed alike, with
        # the host terms of a pilot in which they are told the profile alone.
        first = profile_of(self.probe, self.samples, "first_pass")
        self.arena = replace(self.arena, cost=self._cost(first))
        log("warm-up, and a pilot of every policy")
        size = max(self.asked.concurrency)
        for node in self.policies:
            self.arena.serve(node, self._work(size, WARMUP, 0, True), size)
        gc.collect()
        with no_collection():
            pilot = [self._fit_run(key) for key in self.keys]
        self.arena = replace(self.arena, cost=self._cost(first, self.fit(first, pilot)))
        log("the replays that live rounds are held against")
        self.replays = {
            (i, size): (self._replay((i, size)), self.arena.cut_tables(self.policies[i], size))
            for i, size in self.keys
        }
        for repeat in range(self.asked.repeats):
            if repeat:
                self._probe_pass(repeat)
            self._repeat(repeat)
            log(f"repeat {repeat + 1} of {self.asked.repeats}")

    def _cost(self, profile: LatencyProfile, host: HostOverhead | None = None) -> StepCost:
        return StepCost(profile, host=host, packing=self.arena.settings.packing)

    def _probe_pass(self, index: int) -> None:
        for cell in one_pass(self.cells, self.asked.seed, index):
            new = self.probe.measure(cell, self.asked.probe_warmup, self.asked.probe_repeats)
            self.samples[cell] = self.samples.get(cell, Samples()) + new

    def _repeat(self, repeat: int) -> None:
        fitted, judged = [], {}
        jobs = [(kind, *key) for kind in ("fit", "judge") for key in self.keys]
        order = np.random.default_rng([self.asked.seed, repeat]).permutation(len(jobs))
        gc.collect()
        with no_collection():
            for i in order.tolist():
                kind, policy, size = jobs[i]
                if kind == "fit":
                    fitted.append(self._fit_run((policy, size)))
                else:
                    work = self._work(size, FEWEST, 6)
                    served = self.arena.serve(self.policies[policy], work, size)
                    judged[policy, size] = served
        for key, served in judged.items():  # only once the repeat is complete
            self.judged.setdefault(key, []).append(measured(served.facts))
            replayed, tables = self.replays[key]
            recording, known = self.arena.recording, self.commits.get(key)
            found = compare_rounds(replayed, served.facts, recording, tables, served.outputs)
            if known is None or (found.first is not None and known.first is None):
                self.commits[key] = found
        self.fitted += fitted
        self.repeats += 1

    def _fit_run(self, key: Key) -> Served:
        policy, size = key
        return self.arena.serve(self.policies[policy], self._work(size, FITTED, 2, True), size)

    def _work(self, size: int, least: int, each: int, fitting: bool = False) -> Workload:
        """A steady load as in the simulator, `each` requests a client; of the report split, or of
        the two that host terms are fitted on."""
        count, recording = max(least, each * size), self.arena.recording
        settings = Settings(max_concurrency=size, num_prompts=count, seed=self.asked.seed + fitting)
        sequences = self.fitting if fitting else recording.sequences_of("report")
        return make_workload(settings, recording, sequences)

    def _replay(self, key: Key, price: StepCost | None = None) -> Facts:
        policy, size = key
        return self.arena.replay(self.policies[policy], self._work(size, FEWEST, 6), size, price)

    def fit(self, profile: LatencyProfile, fitted: list[Served]) -> HostOverhead:
        """Host terms from fitted runs: what draft and verify of the profile leave."""
        bare = self._cost(profile)
        rows = [_fit_columns(served, bare, self.arena.recording) for served in fitted]
        step_s, device_s, *counts = (np.concatenate(parts) for parts in zip(*rows))
        names = ("drafted", "requests", "nodes", "ordered", "tree", "fed", "deferred")
        terms = term_counts(**dict(zip(names, counts, strict=True)))
        kept = step_s < STALL * device_s
        terms = {name: column[kept] for name, column in terms.items() if column[kept].any()}
        return fit_host(step_s[kept], device_s[kept], terms, relative=True)

    def result(self, profile: LatencyProfile, host: HostOverhead) -> dict[str, Any]:
        """`cells` and `summary` of the report."""
        price, cells = self._cost(profile, host), []
        for key in self.keys:
            policy, size = key
            runs, commits = self.judged[key], self.commits[key]
            live = {name: [run[name] for run in runs] for name in runs[0]}
            parts = live["step_ms"]
            live["step_ms"] = {part: [one[part] for one in parts] for part in parts[0]}
            predicted = measured(self._replay(key, price))
            cells.append(
                {
                    "policy": self.policies[policy]["name"],
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
    # By the request's text: one that is not the recorded one may run past its anchors.
    sequence = served.facts.requests["sequence"][rounds["request"]]
    output = rounds["anchor"] - recording.anchor_offset[sequence]
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


def write(output: Path, validation: Validation, live: LiveSettings, log: Log) -> None:
    """Predict and compare; write and print the report, write the profile and draw the figure."""
    arena = validation.arena
    profile = profile_of(validation.probe, validation.samples, "validation")
    host = validation.fit(profile, validation.fitted)
    report = {
        "format": "specdec-validation",
        "version": 1,
        "pair": arena.pair.name,
        "drafter": arena.drafter.kind,
        "hardware": hardware(arena.pair.target.device),
        "device": arena.pair.target.device.type,
        "dtype": live.dtype,
        "packing": live.packing,
        "temperature": live.temperature,
        "profile": profile.name,
        "host": host.model_dump(exclude={"overlap"}),
        "fitted_on": {"prompts": len(validation.fitting), "runs": len(validation.fitted)},
        "prompts": len(arena.recording.sequences_of("report")),
        "repeats": validation.repeats,
        "seed": validation.asked.seed,
        **validation.result(profile, host),
    }
    for line in lines(report):
        log(line)
    texts = {
        "report.md": markdown(report),
        "validation.json": json.dumps(report, indent=2, allow_nan=False) + "\n",
    }
    write_files(
        output,
        {
            name: lambda path, text=text: path.write_text(text, encoding="utf-8")
            for name, text in texts.items()
        },
    )
    rows = profile.verify, profile.draft, profile.prefill
    write_profile(output / "validation.csv", profile.header.model_dump(), *rows)
    # A process of its own: the figure is the analysis' business, which reads result files alone.
    drawn = [sys.executable, "-m", "analysis", str(output), "--out", str(output)]
    done = subprocess.run(drawn, check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        log(f"no figure drawn ({last}); the report is complete")
    log(f"wrote {output}")
