"""The settings of the search, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.engine.inputs import choose_sequences, load_recording
from simulator.engine.run import Job, load
from simulator.engine.settings import Settings, read_settings
from simulator.engine.traffic_file import Lengths
from simulator.results.goodput import parse_goodput
from simulator.studies.contest.plan import Section
from traces.common.errors import InputError

ITL = "itl"  # judged over gaps, not over requests: no objective of a request's goodput


def read_limits(value: Any) -> dict[str, float]:
    """Objectives in ms from `goodput`, which may name `itl` besides those of a request.

    Raises:
        InputError: no objective, an unknown one, one named twice, or a bad limit.
    """
    if value is None:
        raise InputError(
            "goodput is null; accepted with task=capacity: objectives in milliseconds, such as "
            '"ttft:500 tpot:50 itl:100"'
        )
    words = _words(value)
    gaps = [word for word in words if word.partition(":")[0] == ITL]
    rest = [word for word in words if word not in gaps]
    limits = {} if gaps and not rest else parse_goodput(rest or value)
    if len(gaps) > 1:
        raise InputError(f"goodput is {value!r}; accepted: {ITL} once")
    if gaps:
        number = gaps[0].partition(":")[2]
        limits = limits | {ITL: parse_goodput([f"e2el:{number}"])["e2el"]}
    return limits


def _words(value: Any) -> list[str]:
    """``NAME:LIMIT`` for each objective; nothing for what `parse_goodput` will refuse."""
    if isinstance(value, Mapping):
        value = [value]
    parts = value.split() if isinstance(value, str) else value
    if not isinstance(parts, list):
        return []
    words = []
    for part in parts:
        pairs = [f"{k}:{v}" for k, v in part.items()] if isinstance(part, Mapping) else [str(part)]
        words += pairs
    return words


RATE, CLIENTS = "request_rate", "max_concurrency"
LEAST_RATE, MOST_RATE = 1e-3, 1e6  # requests per second that are tried unless others are given
ENDLESS = (math.inf, "inf")  # rates of a closed loop
FIRST_RATE = 1.0  # where the search begins if no rate is configured
SEEDS = 5  # that are searched with, unless they are listed
MOST_REQUESTS = 100_000  # of a run, which is held in memory


@dataclass(frozen=True, slots=True)
class Plan:
    """What is searched for, what must be met, and how long runs are."""

    config: Mapping[str, Any]  # of every run, but for its load, seed and number of requests
    of: str  # RATE or CLIENTS
    limits: Mapping[str, float]  # ms by objective, ITL among them
    percentile: float  # of every objective that must lie within it
    attained: float | None  # instead: share of requests that meet all objectives
    seeds: tuple[int, ...]
    tolerance: float
    start: float
    least: float
    most: float
    min_seconds: float
    min_requests: int
    max_requests: int
    available: int  # requests that there are: those of a workload's file
    workers: int

    @property
    def whole(self) -> bool:
        """Whether loads are whole numbers."""
        return self.of == CLIENTS

    @property
    def unit(self) -> str:
        return "clients" if self.whole else "requests/s"

    @property
    def request_limits(self) -> dict[str, float]:
        """Objectives of a request, in ms."""
        return {name: limit for name, limit in self.limits.items() if name != ITL}

    @property
    def rule(self) -> str:
        """What a load must reach, in words."""
        if self.attained is None:
            return f"p{self.percentile:g} of every objective within its limit"
        return f"{self.attained:.4g} of requests within every limit"

    def config_at(self, load: float, seed: int, requests: int) -> dict[str, Any]:
        """The configuration of one run."""
        own = int(load) if self.whole else load
        return {**self.config, self.of: own, "seed": seed, "num_prompts": requests}

    def requests_at(self, load: float) -> int:
        """Requests that a run at `load` begins with.

        Open loop: as many as arrive in `min_seconds`. Closed loop: four of six generations of
        clients at full batch. At least `min_requests` are judged, none of them a client's first.
        """
        if self.whole:
            clients = int(load)
            return min(max(6 * clients, 3 * clients + self.min_requests), self.available)
        arriving = math.ceil(load * self.min_seconds)
        return min(max(self.min_requests, arriving), self.max_requests, self.available)


def read_plan(cfg: Mapping[str, Any]) -> Plan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file.
    """
    limits = read_limits(cfg.get("goodput"))
    own = {name: limit for name, limit in limits.items() if name != ITL}
    section = Section(cfg, "capacity")
    of = section.one_of("of", (RATE, CLIENTS))
    config = {**cfg, "goodput": own or None}
    _check_load(cfg, of)
    if of == RATE and cfg.get("request_rate") in ENDLESS:
        config["request_rate"] = FIRST_RATE
    settings = read_settings(config)
    least, most = _bounds(section, settings, of)
    fewest = section.whole("min_requests", 1)
    plan = Plan(
        config=config,
        of=of,
        limits=limits,
        percentile=section.number("percentile", 0, 100),
        attained=section.number("attained", 0, 1, optional=True, closed=True),
        seeds=section.seeds("seeds", settings.seed, SEEDS),
        tolerance=section.number("tolerance", 0, 1),
        start=_start(settings, of, least, most),
        least=least,
        most=most,
        min_seconds=section.number("min_seconds", 0, 1e9),
        min_requests=fewest,
        max_requests=section.whole("max_requests", fewest),
        available=_available(config, settings),
        workers=section.whole("workers", 1),
    )
    _check(plan)
    return plan


def _check_load(cfg: Mapping[str, Any], of: str) -> None:
    """Raise InputError where the configured load contradicts what is searched for."""
    if (cfg.get("workload") or {}).get("arrivals") == "file":
        raise InputError(
            "workload.arrivals is file; accepted with task=capacity: load, the search sets the rate"
        )
    if of == CLIENTS and cfg.get("request_rate", math.inf) not in ENDLESS:
        raise InputError(
            f"request_rate is {cfg['request_rate']}; accepted with capacity.of={CLIENTS}: inf"
        )
    if cfg.get("num_prompts") is not None:
        raise InputError(
            f"num_prompts is {cfg['num_prompts']}; accepted with task=capacity: null, every run is "
            "as long as capacity.min_seconds and min_requests say"
        )


def _bounds(section: Section, settings: Settings, of: str) -> tuple[float, float]:
    """The least and the most load that are tried."""
    if of == CLIENTS:
        least = section.whole("least", 1, optional=True) or 1
        most = section.whole("most", 1, optional=True)
        most = most or settings.max_num_seqs * settings.server.replicas
    else:
        least = section.number("least", 0, MOST_RATE, optional=True) or LEAST_RATE
        most = section.number("most", 0, MOST_RATE, optional=True, closed=True) or MOST_RATE
    if most < least:
        section.refuse("most", f"at least capacity.least ({least:g})")
    return least, most


def _available(config: Mapping[str, Any], settings: Settings) -> int:
    """Requests that a workload's file holds, as far as they matter."""
    if settings.workload.recorded:
        return MOST_REQUESTS
    recording = load_recording(config["trace"])
    sequences = choose_sequences(config["trace"], recording)
    return Lengths(settings.workload, recording, sequences, MOST_REQUESTS).count


def _start(settings: Settings, of: str, least: float, most: float) -> float:
    """Where the search begins: the configured load."""
    start = settings.max_concurrency if of == CLIENTS else settings.request_rate
    return min(max(start, least), most)


def _check(plan: Plan) -> None:
    load_job(plan, plan.start, plan.seeds[0])
    if plan.max_requests > MOST_REQUESTS:
        raise InputError(
            f"capacity.max_requests is {plan.max_requests}; accepted: up to {MOST_REQUESTS}"
        )
    share = plan.percentile / 100 if plan.attained is None else plan.attained
    if plan.attained is not None and ITL in plan.limits:
        raise InputError(
            f"capacity.attained is {plan.attained:g}; accepted with an objective for {ITL}, which "
            "is of gaps and not of requests: null, capacity.percentile judges it"
        )
    if share < 1 and plan.min_requests * (1 - share) < 1 - 1e-9:
        needed = math.ceil(1 / (1 - share) - 1e-9)
        raise InputError(
            f"capacity.min_requests is {plan.min_requests}; accepted: at least {needed}, fewer "
            f"requests cannot tell a share of {share:g}"
        )


def load_job(plan: Plan, load_: float, seed: int, requests: int | None = None) -> Job:
    """The checked job of one run; its policy is not fitted yet."""
    requests = plan.requests_at(load_) if requests is None else requests
    return load(plan.config_at(load_, seed, requests))
