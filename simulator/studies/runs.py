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
from simulator.studies.steady import trend
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
    growth: Annotated[
        float, Field(allow_inf_nan=False, strict=True)
    ]  # s/s by which TTFT or E2EL rises
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

    def sums(self, good: bool, rows: np.ndarray, prompts: int) -> Sums:
        """Throughput in tokens, or in good requests, by prompt: (prompts,), this run's at `rows`.

        The value is the run's own number: its window's tokens, or requests within every limit, per
        second; but in an open loop good requests are the share of those that come, because how
        long the last ones take is no matter of the rate.
        """
        if self.clients is None:
            scale, per = (self.arriving if good else self.request_throughput or 0.0), self.asked
        else:  # a client's first request takes its place but is not judged
            scale, per = self.clients * (self._unjudged() if good else 1.0), self.inside_s
        amount = np.array(self.good if good else self.tokens)
        return placed(rows, prompts, amount * scale, per)

    def _unjudged(self) -> float:
        """Requests that ended in a closed loop's window over those judged of them."""
        ended = (self.request_throughput or 0.0) * sum(self.inside_s) / self.clients
        return ended / self.judged if self.judged else 0.0


def placed(rows: np.ndarray, prompts: int, amount: Any, per: Any) -> Sums:
    """Sums by prompt of a run that served those at `rows` of `prompts`."""
    found = np.zeros((2, prompts))
    found[:, rows] = amount, per
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
        raise _rejection(job, facts) or InputError(
            f"num_prompts: {len(facts.requests['request'])} requests never fill a batch of "
            f"{facts.concurrency}; accepted: more, or texts of more than one token"
        )
    return observe(job, facts, run.asked)


def load_shared(config: Mapping[str, Any]) -> Job:
    """The job of a configuration; orders of a recording are looked up once for runs in turn."""
    job = load(config)
    return replace(job, tables=_shared_tables(job.recording))


@lru_cache(maxsize=1)
def _shared_tables(recording: Recording):
    return tables_of(recording)


def observe(job: Job, facts: Facts, asked: Asked) -> Result:
    """What a finished run comes to; percentiles are those of its summary."""
    window, requests = find_window(facts), facts.requests
    counted, numbers = measured(facts, window), RunSums.of(facts, window).throughput()
    times = {name: values[counted] for name, values in request_times(requests).items()}
    if ITL in asked.limits:
        times[ITL] = chunk_gaps(facts, window)
    limits, prompts = asked.request_limits, np.unique(requests["sequence"])
    good = np.zeros(len(counted), bool)
    good[counted] = meets(limits, times) if limits else True
    closed = facts.concurrency is not None
    growth, growing = (0.0, False) if closed else _growth(facts, counted)
    sums, inside = _sums(facts, window, prompts), window.steps(facts)
    row = np.searchsorted(prompts, requests["sequence"])
    drafted = facts.steps["drafted"][inside]
    return Result(
        clients=facts.concurrency,
        requests=len(counted),
        judged=int(counted.sum()),
        rejected=int(requests["rejected"].sum()),
        full=closed and window.kind != WHOLE_RUN,
        seconds=window.seconds if closed else _span(facts),
        stay_s=float(times["e2el"].mean()) if counted.any() else 0.0,
        growth=growth,
        growing=growing,
        arriving=_arriving(job.settings, facts),
        request_throughput=numbers["request_throughput"],
        output_throughput=numbers["output_throughput"],
        levels_ms={name: _level(seconds, asked.percentile) for name, seconds in times.items()},
        missed={name: _beyond(times[name], limit) for name, limit in asked.limits.items()},
        most_running=int(facts.steps["batch"].max(initial=0)),
        shares=_time_shares(facts, facts.steps["step_s"]),
        window_shares=_time_shares(facts, facts.steps["step_s"] * inside),
        nodes=_nodes(facts, inside),
        drafting=float(drafted.mean()) if len(drafted) else 0.0,
        prompts=prompts.tolist(),
        tokens=sums.amount.tolist(),
        inside_s=sums.per.tolist(),
        asked=np.bincount(row, counted | requests["rejected"], len(prompts)).tolist(),
        good=np.bincount(row, good, len(prompts)).tolist(),
    )


def _level(seconds: np.ndarray, percentile: float) -> float | None:
    """In ms; requests of one token have no TPOT."""
    seconds = seconds[~np.isnan(seconds)]
    return float(np.percentile(seconds * 1e3, percentile)) if len(seconds) else None


def _beyond(seconds: np.ndarray, limit_ms: float) -> float:
    seconds = seconds[~np.isnan(seconds)]
    return float((seconds * 1e3 > limit_ms).mean()) if len(seconds) else 0.0


def _span(facts: Facts) -> float:
    arrival_s = facts.requests["arrival_s"]
    return float(np.nanmax(arrival_s) - np.nanmin(arrival_s))


def _arriving(settings: Settings, facts: Facts) -> float:
    if settings.request_rate < math.inf:
        return settings.request_rate
    span_s = _span(facts)
    return (len(facts.requests["arrival_s"]) - 1) / span_s if span_s > 0 else 0.0


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


def _sums(facts: Facts, window: Window, prompts: np.ndarray) -> Sums:
    """Tokens inside the window and seconds in the server inside it, by prompt."""
    columns = facts.requests | {"window_tokens": window_tokens(facts, window)}
    ends = ~np.isnan(columns["finish_s"])  # a rejected request takes no time
    names = ("sequence", "arrival_s", "finish_s", "window_tokens")
    kept = {name: columns[name][ends] for name in names}
    return throughput_sums(kept, (window.start_s, window.end_s), 1, prompts)


def _nodes(facts: Facts, inside: np.ndarray) -> float | None:
    rounds = facts.steps["batch"][inside].sum()
    return float(facts.steps["draft_nodes"][inside].sum() / rounds) if rounds else None


def _time_shares(facts: Facts, step_s: np.ndarray) -> dict[str, float]:
    """Share of step time by where it came from: measured, interpolated, modelled, clamped."""
    source, total = facts.steps["source"], float(step_s.sum())
    held = {kind.name.lower(): (source & int(kind)) != 0 for kind in Source}
    return {name: float(step_s[own].sum()) / total if total else 0.0 for name, own in held.items()}


def _rejection(job: Job, facts: Facts) -> InputError | None:
    """What to say of a run that came to nothing because requests were rejected; None: none was."""
    server, rejected = job.settings.server, facts.requests["rejected"]
    if not rejected.any():
        return None
    return InputError(
        f"server.kv_tokens is {server.kv_tokens} in blocks of {server.kv_block}: "
        f"{np.count_nonzero(rejected)} of {len(rejected)} requests can never fit and are rejected; "
        f"accepted: null, or {_enough(job, facts, rejected)}"
    )


def _enough(job: Job, facts: Facts, rejected: np.ndarray) -> str:
    """Tokens that would hold the largest of them; the last output is never held."""
    if job.lengths is not None:
        return "as many as the prompts and outputs of the file take"
    outputs = job.recording["output_len"][facts.requests["sequence"]]
    largest = int((facts.requests["prompt_tokens"] + outputs)[rejected].max()) - 1
    block = job.settings.server.kv_block
    return f"at least {-(-largest // block) * block}"


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
