"""One run of a study: what determines it, and what is kept of it.

Tournament, recommendation, search for a capacity and claims all play runs: a configuration of
`task=run` with what it is judged by. The same run has the same key wherever it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field

from simulator.cost import Source
from simulator.engine.fingerprint import identity
from simulator.engine.run import Job, identity_of, load, prepare, simulate, tables_of
from simulator.engine.settings import Settings
from simulator.policies.loading import reason_of
from simulator.results.facts import Facts
from simulator.results.latency import (
    chunk_gaps,
    measured,
    meets,
    request_times,
    window_tokens,
)
from simulator.results.sums import Sums as RunSums
from simulator.results.window import WHOLE_RUN, Window, find_window
from traces.common.errors import InputError
from traces.common.intervals import Sums, throughput_sums
from traces.recordings.recording import Recording

ITL = "itl"  # judged over gaps, not over requests: no objective of a request's goodput
MOST_PROMPTS = 256  # each prompt is served once behind the clients' first ones, up to these

Count = Annotated[int, Field(ge=0, strict=True)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9, strict=True)]  # sums of seconds round
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run is judged by."""

    limits: Mapping[str, float] = field(default_factory=dict)  # ms by objective, ITL among them
    percentile: float = 99.0  # of the latencies that are kept

    @property
    def request_limits(self) -> dict[str, float]:
        """Objectives of a request, in ms."""
        return {name: limit for name, limit in self.limits.items() if name != ITL}


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a run: its window's numbers, and what each of P prompts brought to them.

    Of a closed loop `clients` times tokens over seconds is the throughput (`common.intervals`),
    of an open one requests per second times tokens over requests.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    clients: Count | None  # None: open loop
    requests: Count  # of the run
    judged: Count  # requests whose latency counts
    rejected: Count
    full: Flag  # whether a closed loop has a window in which the batch is full
    seconds: Amount  # open loop: from the first arrival to the last; closed: the window
    stay_s: Amount  # mean E2EL of those judged
    growth: Finite  # s/s by which TTFT or E2EL rises
    growing: Flag  # open loop: requests stay longer and longer
    arriving: Amount  # requests per second that came, as asked for where that was a rate
    request_throughput: Amount | None  # requests per second that ended; None: in no time
    output_throughput: Amount | None  # tokens per second
    levels_ms: dict[str, Amount | None]  # the percentile of each latency; None: nothing to judge
    missed: dict[str, Share]  # share beyond each objective: of requests, ITL of gaps
    most_running: Count  # requests in one step
    shares: dict[str, Share]  # of step time by where it came from; kinds may overlap
    window_shares: dict[str, Share]  # the same inside the window
    nodes: Amount | None  # draft nodes per request and step, inside the window
    drafting: Share  # share of the window's steps that draft
    prompts: list[Count]  # (P,) sequences of the recording
    tokens: list[Amount]  # (P,) inside the window
    inside_s: list[Amount]  # (P,) in the server, inside the window
    asked: list[Amount]  # (P,) judged, and rejected
    good: list[Amount]  # (P,) of these, within every limit; all where there are none

    def __post_init__(self) -> None:
        columns = (self.prompts, self.tokens, self.inside_s, self.asked, self.good)
        within = all(one <= most for one, most in zip(self.good, self.asked, strict=False))
        if len({*map(len, columns)}) > 1 or len({*self.prompts}) < len(self.prompts) or not within:
            raise ValueError("not the numbers of a result")

    @property
    def to_judge(self) -> int:
        """Requests that were judged or rejected."""
        return self.judged + self.rejected

    @property
    def attained(self) -> float:
        """Share of judged and rejected requests that are within every limit."""
        return sum(self.good) / max(self.to_judge, 1)

    @property
    def goodput(self) -> float | None:
        """Requests per second within every limit, as `task=run` counts them."""
        if self.request_throughput is None:
            return None
        return (sum(self.good) / self.judged if self.judged else 0.0) * self.request_throughput

    def sums(self, good: bool, sequences: np.ndarray) -> Sums:
        """Throughput in tokens, or in good requests, by prompt of `sequences` (P,), ascending.

        The value is the run's own number: its window's tokens, or requests within every limit, per
        second; but in an open loop good requests are the share of those that come, because how
        long the last ones take is no matter of the rate.
        """
        if self.clients is None:
            scale, per = (self.arriving if good else self.request_throughput or 0.0), self.asked
        else:
            scale, per = float(self.clients), self.inside_s
            if good:  # a client's first request takes its place but is not judged
                ended = (self.request_throughput or 0.0) * sum(self.inside_s) / self.clients
                scale *= ended / self.judged if self.judged else 0.0
        return self.placed(sequences, np.array(self.good if good else self.tokens) * scale, per)

    def placed(self, sequences: np.ndarray, amount: Any, per: Any) -> Sums:
        """Sums over its own prompts among `sequences` (P,), ascending."""
        found = np.zeros((2, len(sequences)))
        found[:, np.searchsorted(sequences, self.prompts)] = amount, per
        return Sums(*found)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is to be played, as plain data."""

    config: Mapping[str, Any]  # `task=run` with it gives the same numbers
    asked: Asked = Asked()

    @property
    def key(self) -> str:
        """sha256 of what determines the result; a policy's name does not."""
        policy = {key: value for key, value in self.config["policy"].items() if key != "name"}
        run = identity_of({**self.config, "policy": policy}, __name__)
        parts = {"limits": dict(self.asked.limits), "percentile": self.asked.percentile}
        return identity({"run": run, **parts})


def play(run: Run) -> Result | str:
    """Simulate; the reason in one line where the policy refuses the recording or the profile.

    Raises:
        InputError: a run that comes to nothing, because requests are rejected or too few.
    """
    job = load_shared(run.config)
    try:
        facts = simulate(prepare(job))
    except InputError as error:
        return reason_of(error, run.config["policy"])
    nobody = facts.requests["rejected"].all()
    if nobody or (facts.concurrency is not None and find_window(facts).kind == WHOLE_RUN):
        raise _nothing(job, facts)
    return observe(job, facts, run.asked)


def load_shared(config: Mapping[str, Any]) -> Job:
    """The job of a configuration; orders of a recording are looked up once for runs in turn."""
    job = load(config)
    return replace(job, tables=_shared_tables(job.recording))


@lru_cache(maxsize=1)
def _shared_tables(recording: Recording):
    return tables_of(recording)


def _nothing(job: Job, facts: Facts) -> InputError:
    """What to say of a run that came to nothing."""
    requests, server = facts.requests, job.settings.server
    rejected = requests["rejected"]
    if not rejected.any():
        return InputError(
            f"num_prompts: {len(rejected)} requests never fill a batch of "
            f"{facts.concurrency}; accepted: more, or texts of more than one token"
        )
    enough = "as many as the prompts and outputs of the file take"
    if job.lengths is None:  # the last output is never held
        tokens = requests["prompt_tokens"] + job.recording["output_len"][requests["sequence"]] - 1
        blocks = -(-int(tokens[rejected].max()) // server.kv_block)
        enough = f"at least {blocks * server.kv_block}"
    return InputError(
        f"server.kv_tokens is {server.kv_tokens} in blocks of {server.kv_block}: "
        f"{np.count_nonzero(rejected)} of {len(rejected)} requests can never fit and are rejected; "
        f"accepted: null, or {enough}"
    )


def observe(job: Job, facts: Facts, asked: Asked) -> Result:
    """What a finished run comes to; percentiles are those of its summary."""
    window, requests = find_window(facts), facts.requests
    counted, numbers = measured(facts, window), RunSums.of(facts, window).throughput()
    times = {name: values[counted] for name, values in request_times(requests).items()}
    limits, prompts = asked.request_limits, np.unique(requests["sequence"])
    good = np.zeros(len(counted), bool)
    good[counted] = meets(limits, times) if limits else True
    closed = facts.concurrency is not None
    growth, growing = (0.0, False) if closed else _growth(requests["arrival_s"][counted], times)
    if ITL in asked.limits:
        times[ITL] = chunk_gaps(facts, window)
    known_ms = {name: values[~np.isnan(values)] * 1e3 for name, values in times.items()}
    sums, inside, steps = _sums(facts, window, prompts), window.steps(facts), facts.steps
    row, arrival_s = np.searchsorted(prompts, requests["sequence"]), requests["arrival_s"]
    span_s = float(np.nanmax(arrival_s) - np.nanmin(arrival_s))
    arriving = (len(arrival_s) - 1) / span_s if span_s > 0 else 0.0
    rate, rounds = job.settings.request_rate, steps["batch"][inside].sum()
    return Result(
        clients=facts.concurrency,
        requests=len(counted),
        judged=int(counted.sum()),
        rejected=int(requests["rejected"].sum()),
        full=closed and window.kind != WHOLE_RUN,
        seconds=window.seconds if closed else span_s,
        stay_s=float(times["e2el"].mean()) if counted.any() else 0.0,
        growth=growth,
        growing=growing,
        arriving=rate if rate < math.inf else arriving,
        request_throughput=numbers["request_throughput"],
        output_throughput=numbers["output_throughput"],
        levels_ms={
            name: float(np.percentile(ms, asked.percentile)) if len(ms) else None
            for name, ms in known_ms.items()
        },
        missed={
            name: float((known_ms[name] > limit).mean()) if len(known_ms[name]) else 0.0
            for name, limit in asked.limits.items()
        },
        most_running=int(steps["batch"].max(initial=0)),
        shares=_time_shares(facts, steps["step_s"]),
        window_shares=_time_shares(facts, steps["step_s"] * inside),
        nodes=float(steps["draft_nodes"][inside].sum() / rounds) if rounds else None,
        drafting=float(steps["drafted"][inside].mean()) if inside.any() else 0.0,
        prompts=prompts.tolist(),
        tokens=sums.amount.tolist(),
        inside_s=sums.per.tolist(),
        asked=np.bincount(row, counted | requests["rejected"], len(prompts)).tolist(),
        good=np.bincount(row, good, len(prompts)).tolist(),
    )


def _sums(facts: Facts, window: Window, prompts: np.ndarray) -> Sums:
    """Tokens inside the window and seconds in the server inside it, by prompt."""
    columns = facts.requests | {"window_tokens": window_tokens(facts, window)}
    ends = ~np.isnan(columns["finish_s"])  # a rejected request takes no time
    names = ("sequence", "arrival_s", "finish_s", "window_tokens")
    kept = {name: columns[name][ends] for name in names}
    return throughput_sums(kept, (window.start_s, window.end_s), 1, prompts)


def _time_shares(facts: Facts, step_s: np.ndarray) -> dict[str, float]:
    """Share of step time by where it came from: measured, interpolated, modelled, clamped."""
    source, total = facts.steps["source"], float(step_s.sum())
    held = {kind.name.lower(): (source & int(kind)) != 0 for kind in Source}
    return {name: float(step_s[own].sum()) / total if total else 0.0 for name, own in held.items()}


# ---------------- Whether an open loop is in its steady state, or its queue grows.
# A load above what the server gets through by a share d lengthens the queue by d seconds every
# second, so that requests that come a second later stay d seconds longer (the fluid limit of a
# queue; D. Gross, J. Shortle, J. Thompson, C. Harris, Fundamentals of Queueing Theory, 4th ed.,
# 2008, section 1.6). By Little's law the number of requests in the server then grows as well,
# running ones and waiting ones together.


GROWTH = 0.01  # seconds per second: an overload of one per cent
NOISE = 2.0  # standard errors that a rise must exceed
LEFT_OUT = 0.1  # of the requests, the first: they met an empty server
BATCHES = 5  # of each half, whose means say how noisy its mean is


@dataclass(frozen=True, slots=True)
class Trend:
    """How much longer requests stay in the second half than in the first."""

    growth: float  # seconds of stay per second of time
    certain: bool  # whether the rise is more than noise

    @property
    def growing(self) -> bool:
        return self.certain and self.growth > GROWTH


def trend(arrival_s: np.ndarray, stay_s: np.ndarray) -> Trend:
    """The trend of `stay_s` (n,) over `arrival_s` (n,), ascending; the first tenth is left out.

    The means of the halves' batches give the noise (the method of batch means): neighbours wait in
    the same queue, and are no independent samples.
    """
    kept = slice(int(LEFT_OUT * len(stay_s)), None)
    (early, late), (first, second) = (np.array_split(one[kept], 2) for one in (arrival_s, stay_s))
    if min(len(first), len(second)) < BATCHES:
        return Trend(0.0, False)
    rise_s, span_s = float(second.mean() - first.mean()), float(late.mean() - early.mean())
    variance = 0.0  # of the rise
    for half in (first, second):
        means = np.array([part.mean() for part in np.array_split(half, BATCHES)])
        variance += float(means.var(ddof=1) / BATCHES)
    growth = rise_s / span_s if span_s > 0 else 0.0
    return Trend(growth, rise_s > NOISE * float(np.sqrt(variance)))


def _growth(arrival_s: np.ndarray, times: Mapping[str, np.ndarray]) -> tuple[float, bool]:
    """The rise of TTFT and of E2EL over a run's arrivals, whichever is more.

    Requests that wait grow TTFT. Where every request is taken in at once, the batch grows, and
    with it the time that a request stays.
    """
    trends = [trend(arrival_s, times[name]) for name in ("ttft", "e2el")]
    growing = [one for one in trends if one.growing]
    return max(one.growth for one in growing or trends), bool(growing)


# ---------------- The load of runs that are compared: closed loops over recorded texts.


def check_closed_loop(settings: Settings, task: str) -> None:
    """Raise InputError unless runs are closed loops over recorded texts."""
    if not settings.workload.recorded:
        raise InputError(
            f"workload.path is {settings.workload.path!r}; accepted with task={task}: null, it "
            "serves recorded texts"
        )
    if not settings.closed_loop:
        raise InputError(
            f"request_rate is {settings.request_rate:g}; accepted with task={task}: inf, every run "
            "is a closed loop"
        )


def fair_requests(clients: int, prompts: int) -> int:
    """Requests of a closed loop whose full batch sees every one of `prompts` texts."""
    return max(64, 6 * clients, 2 * clients + min(prompts, MOST_PROMPTS))
