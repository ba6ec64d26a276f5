"""One run of a candidate: what determines it, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.engine.run import Job, load, prepare, simulate
from simulator.policies.loading import reason_of
from simulator.results.facts import Facts
from simulator.results.goodput import meets
from simulator.results.latency import measured, request_times, window_tokens
from simulator.results.window import WHOLE_RUN, Window, find_window
from simulator.studies.capacity.trial import time_shares
from simulator.studies.contest.play import shared_tables
from simulator.studies.fair_load import rejection
from simulator.studies.steady import trend
from traces.common.errors import InputError
from traces.common.intervals import Sums, throughput_sums

PERCENTILE = 99  # of the latencies that are shown


@dataclass(frozen=True, slots=True)
class Kept:
    """The window's numbers, and what every prompt brought to them (P prompts).

    Of a closed loop `clients` times tokens over seconds is the throughput (`common.intervals`),
    of an open one requests per second times tokens over requests.
    """

    clients: int | None  # None: open loop
    rate: float  # requests per second that ended
    arriving: float  # requests per second that came, as asked for where that was a rate
    judged: int  # requests whose latency counts
    rejected: int
    levels_ms: dict[str, float | None]  # p99 of ttft, tpot, e2el
    nodes: float | None  # draft nodes per request and step
    modelled: float  # share of step time
    clamped: float
    growing: bool  # open loop: requests stay longer and longer
    prompts: list[int]  # (P,) sequences of the recording
    tokens: list[float]  # (P,) inside the window
    seconds: list[float]  # (P,) in the server, inside the window
    requests: list[float]  # (P,) judged, and rejected
    good: list[float]  # (P,) of these, within every limit; all where there are none
    drafting: float | None = None  # share of steps that draft; None: kept before it was counted

    @property
    def attained(self) -> float:
        """Share of judged and rejected requests that are within every limit."""
        return sum(self.good) / max(self.judged + self.rejected, 1)

    def sums(self, good: bool, rows: np.ndarray, prompts: int) -> Sums:
        """Throughput in tokens, or in good requests, by prompt: (prompts,), this run's at `rows`.

        The value is the run's own number: its window's tokens, or requests within every limit, per
        second; but in an open loop good requests are the share of those that come, because how
        long the last ones take is no matter of the rate.
        """
        if self.clients is None:
            scale, per = (self.arriving if good else self.rate), self.requests
        else:  # a client's first request takes its place but is not judged
            scale, per = self.clients * (self._unjudged() if good else 1.0), self.seconds
        amount = np.array(self.good if good else self.tokens)
        return _placed(rows, prompts, amount * scale, per)

    def _unjudged(self) -> float:
        """Requests that ended in a closed loop's window over those judged of them."""
        ended = self.rate * sum(self.seconds) / self.clients
        return ended / self.judged if self.judged else 0.0

    def speed(self, rows: np.ndarray, prompts: int) -> Sums:
        """Tokens per second of a request's own stay, by prompt: (prompts,)."""
        return _placed(rows, prompts, self.tokens, self.seconds)

    def share(self, rows: np.ndarray, prompts: int) -> Sums:
        """Share of requests within every limit, by prompt: (prompts,)."""
        return _placed(rows, prompts, self.good, self.requests)


def _placed(rows: np.ndarray, prompts: int, amount, per) -> Sums:
    found = np.zeros((2, prompts))
    found[:, rows] = amount, per
    return Sums(*found)


def play_grid(config: Mapping[str, Any]) -> Kept | str:
    """Simulate; the reason in one line where the policy refuses the recording or the profile."""
    job = load(config)
    job = replace(job, tables=shared_tables(job.recording))
    try:
        facts = simulate(prepare(job))
    except InputError as error:
        return reason_of(error, config["policy"])
    return _kept(job, facts, find_window(facts))


def _kept(job: Job, facts: Facts, window: Window) -> Kept:
    nobody = facts.requests["rejected"].all()
    if nobody or (facts.concurrency is not None and window.kind == WHOLE_RUN):
        raise rejection(job, facts) or InputError(
            f"num_prompts: {len(facts.requests['request'])} requests never fill a batch of "
            f"{facts.concurrency}; accepted: more, or texts of more than one token"
        )
    counted = measured(facts, window)
    times = {name: values[counted] for name, values in request_times(facts.requests).items()}
    limits, prompts = job.settings.goodput, np.unique(facts.requests["sequence"])
    good = np.zeros(len(counted), bool)
    good[counted] = meets(limits, times) if limits else True
    sums = _sums(facts, window, prompts)
    shares, inside = time_shares(facts), window.steps(facts)
    row = np.searchsorted(prompts, facts.requests["sequence"])
    return Kept(
        clients=facts.concurrency,
        rate=float(window.requests(facts).sum() / window.seconds) if window.seconds > 0 else 0.0,
        arriving=_arriving(job, facts),
        judged=int(counted.sum()),
        rejected=int(facts.requests["rejected"].sum()),
        levels_ms={name: _level(seconds) for name, seconds in times.items()},
        nodes=_nodes(facts, inside),
        modelled=shares["modelled"],
        clamped=shares["clamped"],
        growing=_growing(facts, counted),
        prompts=prompts.tolist(),
        tokens=sums.amount.tolist(),
        seconds=sums.per.tolist(),
        requests=np.bincount(row, counted | facts.requests["rejected"], len(prompts)).tolist(),
        good=np.bincount(row, good, len(prompts)).tolist(),
        drafting=float(facts.steps["drafted"][inside].mean()) if inside.any() else 0.0,
    )


def _arriving(job: Job, facts: Facts) -> float:
    if job.settings.request_rate < math.inf:
        return job.settings.request_rate
    arrival_s = facts.requests["arrival_s"]
    span_s = float(np.nanmax(arrival_s) - np.nanmin(arrival_s))
    return (len(arrival_s) - 1) / span_s if span_s > 0 else 0.0


def _sums(facts: Facts, window: Window, prompts: np.ndarray) -> Sums:
    """Tokens inside the window and seconds in the server inside it, by prompt."""
    columns = facts.requests | {"window_tokens": window_tokens(facts, window)}
    ends = ~np.isnan(columns["finish_s"])  # a rejected request takes no time
    kept = {name: columns[name][ends] for name in _READ}
    return throughput_sums(kept, (window.start_s, window.end_s), 1, prompts)


_READ = ("sequence", "arrival_s", "finish_s", "window_tokens")


def _level(seconds: np.ndarray) -> float | None:
    seconds = seconds[~np.isnan(seconds)]
    return float(np.percentile(seconds * 1e3, PERCENTILE)) if len(seconds) else None


def _nodes(facts: Facts, inside: np.ndarray) -> float | None:
    rounds = facts.steps["batch"][inside].sum()
    return float(facts.steps["draft_nodes"][inside].sum() / rounds) if rounds else None


def _growing(facts: Facts, counted: np.ndarray) -> bool:
    if facts.concurrency is not None:
        return False
    times, arrival_s = request_times(facts.requests), facts.requests["arrival_s"][counted]
    return any(trend(arrival_s, times[name][counted]).growing for name in ("ttft", "e2el"))


def read_kept(data: Mapping[str, Any]) -> Kept:
    """A result as it was kept; ValueError for what is none."""
    kept = Kept(**data)
    lists = (kept.prompts, kept.tokens, kept.seconds, kept.requests, kept.good)
    numbers = [
        kept.rate,
        kept.arriving,
        kept.modelled,
        kept.clamped,
        *(n for one in lists for n in one),
    ]
    good = all(isinstance(one, int | float) and 0 <= one < math.inf for one in numbers)
    if not good or len({len(one) for one in lists}) > 1:
        raise ValueError("not the numbers of a result")
    shares = max(kept.modelled, kept.clamped) <= 1 + 1e-9  # sums of seconds round
    within = all(one <= all_ for one, all_ in zip(kept.good, kept.requests, strict=True))
    shares = shares and 0 <= (kept.drafting or 0) <= 1
    if not shares or not within or (kept.nodes or 0) < 0:
        raise ValueError("not the numbers of a result")
    return kept
