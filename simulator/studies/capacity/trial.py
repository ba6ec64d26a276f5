"""One run at one load, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.cost import Source
from simulator.engine.fingerprint import identity
from simulator.engine.run import prepare, simulate
from simulator.results.facts import Facts
from simulator.results.goodput import meets
from simulator.results.latency import chunk_gaps, measured, request_times, throughput
from simulator.results.window import WHOLE_RUN, Window, find_window
from simulator.studies.capacity.plan import ITL, Plan, load_job
from simulator.studies.capacity.verdict import longer_run
from simulator.studies.contest.play import shared_tables
from simulator.studies.steady import trend


@dataclass(frozen=True, slots=True)
class Trial:
    """What is kept of a run at one load."""

    load: float
    seed: int
    requests: int  # of the run
    judged: int  # whose latency counts, rejected ones among them
    rejected: int
    seconds: float  # open loop: from the first arrival to the last; closed: the window
    stay_s: float  # mean E2EL of those judged
    full: bool  # whether a closed loop has a window in which the batch is full
    growth: float  # open loop: seconds per second by which TTFT or E2EL rises, whichever more
    growing: bool
    levels_ms: dict[str, float | None]  # the percentile of each objective; None: nothing to judge
    missed: dict[str, float]  # share beyond each objective: of requests, ITL of gaps
    attained: float  # share of judged requests that meet all objectives of a request
    request_throughput: float | None  # requests per second
    output_throughput: float | None  # tokens per second
    goodput: float | None  # requests per second that meet all objectives of a request
    most_running: int  # requests in one step
    shares: dict[str, float]  # of step time by where it came from; kinds may overlap


@dataclass(frozen=True, slots=True)
class Probe:
    """A load to be tried with one seed."""

    plan: Plan
    load: float
    seed: int

    @property
    def key(self) -> str:
        """sha256 of what determines the trial: the run's own hash, and what is asked of it."""
        plan, job = self.plan, load_job(self.plan, self.load, self.seed)
        parts = {
            "run": job.identity(__name__),
            "limits": dict(plan.limits),
            "rule": [plan.percentile, plan.attained],
            "length": [plan.min_seconds, plan.min_requests, plan.max_requests],
        }
        return identity(parts)


def try_out(probe: Probe) -> Trial:
    """Run a probe; in too short a run again, longer, unless it fails beyond doubt.

    Raises:
        InputError: what the policy refuses about the recording or the profile.
    """
    plan, requests = probe.plan, probe.plan.requests_at(probe.load)
    while True:
        trial = _run(probe, requests)
        longer = longer_run(plan, trial, requests)
        if longer <= requests:
            return trial
        requests = longer


def _run(probe: Probe, requests: int) -> Trial:
    job = load_job(probe.plan, probe.load, probe.seed, requests)
    job = replace(job, tables=shared_tables(job.recording))
    return kept(probe, simulate(prepare(job)))


def kept(probe: Probe, facts: Facts) -> Trial:
    """What a finished run comes to; percentiles are those of its summary."""
    plan, window = probe.plan, find_window(facts)
    counted = measured(facts, window)
    times = {name: values[counted] for name, values in request_times(facts.requests).items()}
    rejected = int(np.count_nonzero(facts.requests["rejected"]))
    judged = int(np.count_nonzero(counted)) + rejected
    good = meets(plan.request_limits, times) if plan.request_limits else counted[counted]
    gaps_s = chunk_gaps(facts, window) if ITL in plan.limits else None
    numbers = throughput(facts, window)
    growth, growing = _growth(facts, counted) if not plan.whole else (0.0, False)
    ended = numbers["request_throughput"]
    share = float(good.mean()) if len(good) else 0.0
    return Trial(
        load=probe.load,
        seed=probe.seed,
        requests=len(counted),
        judged=judged,
        rejected=rejected,
        seconds=_seconds(facts, window),
        stay_s=float(times["e2el"].mean()) if len(good) else 0.0,
        full=facts.concurrency is not None and window.kind != WHOLE_RUN,
        growth=growth,
        growing=growing,
        levels_ms={name: _level(plan, _of(name, times, gaps_s)) for name in plan.limits},
        missed={name: _beyond(_of(name, times, gaps_s), plan.limits[name]) for name in plan.limits},
        attained=float(good.sum() / judged) if judged else 0.0,
        request_throughput=ended,
        output_throughput=numbers["output_throughput"],
        goodput=None if ended is None else share * ended,
        most_running=int(facts.steps["batch"].max(initial=0)),
        shares=time_shares(facts),
    )


def _of(name: str, times: Mapping[str, np.ndarray], gaps_s: np.ndarray | None) -> np.ndarray:
    """Seconds that an objective judges."""
    values = gaps_s if name == ITL else times[name]
    return values[~np.isnan(values)]  # the TPOT of a one-token request


def _level(plan: Plan, seconds: np.ndarray) -> float | None:
    return float(np.percentile(seconds * 1e3, plan.percentile)) if len(seconds) else None


def _beyond(seconds: np.ndarray, limit_ms: float) -> float:
    return float((seconds * 1e3 > limit_ms).mean()) if len(seconds) else 0.0


def _seconds(facts: Facts, window: Window) -> float:
    if facts.concurrency is not None:
        return window.seconds
    arrival_s = facts.requests["arrival_s"]
    return float(np.nanmax(arrival_s) - np.nanmin(arrival_s))


def _growth(facts: Facts, counted: np.ndarray) -> tuple[float, bool]:
    """The rise of TTFT and of E2EL over the run's arrivals, whichever is more.

    Requests that wait grow TTFT. Where every request is taken in at once, the batch grows, and
    with it the time that a request stays.
    """
    arrival_s = facts.requests["arrival_s"][counted]
    times = request_times(facts.requests)
    trends = [trend(arrival_s, times[name][counted]) for name in ("ttft", "e2el")]
    growing = [one for one in trends if one.growing]
    return max(one.growth for one in growing or trends), bool(growing)


def time_shares(facts: Facts) -> dict[str, float]:
    """Share of step time by where it came from: measured, interpolated, modelled, clamped."""
    source, step_s = facts.steps["source"], facts.steps["step_s"]
    total = float(step_s.sum())
    held = {kind.name.lower(): (source & int(kind)) != 0 for kind in Source}
    return {name: float(step_s[own].sum()) / total if total else 0.0 for name, own in held.items()}


def read_trial(data: Mapping[str, Any]) -> Trial:
    """A trial as it was kept; ValueError for what is none."""
    trial = Trial(**data)
    shares = (trial.attained, *trial.shares.values(), *trial.missed.values())
    optional = (trial.request_throughput, trial.output_throughput, trial.goodput)
    optional = (*optional, *trial.levels_ms.values())
    found = [trial.load, trial.seconds, trial.stay_s, *shares]
    found += [one for one in optional if one is not None]
    numbers = all(isinstance(one, int | float) for one in (*found, trial.growth))
    if not numbers or not all(0 <= one < math.inf for one in found) or max(shares) > 1 + 1e-9:
        raise ValueError("not the numbers of a trial")
    if not math.isfinite(trial.growth):
        raise ValueError("not the numbers of a trial")
    if not all(type(one) is int for one in (trial.seed, trial.requests, trial.judged)):
        raise ValueError("not the numbers of a trial")
    return trial
