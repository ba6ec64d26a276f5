"""What is searched for, what must be met, and how long runs are: checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.engine.inputs import choose_sequences, load_recording
from simulator.engine.run import Job, load
from simulator.engine.settings import Settings, read_settings
from simulator.engine.traffic_file import Lengths
from simulator.results.latency import parse_goodput
from simulator.studies.runs import ITL, Asked
from simulator.studies.settings import MOST_RATE, MOST_REQUESTS, Capacity
from traces.common.errors import InputError
from traces.common.settings import read

RATE, CLIENTS = "request_rate", "max_concurrency"
LEAST_RATE = 1e-3  # requests per second from which on rates are tried unless others are given
ENDLESS = (math.inf, "inf")  # rates of a closed loop
FIRST_RATE = 1.0  # where the search begins if no rate is configured
SEEDS = 5  # that are searched with, unless they are listed


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What is searched for, what must be met, and how long runs are."""

    config: Mapping[str, Any]  # of every run, but for its load, seed and number of requests
    asked: Capacity
    limits: Mapping[str, float]  # ms by objective, ITL among them
    seeds: tuple[int, ...]
    start: float
    least: float
    most: float
    available: int  # requests that there are: those of a workload's file

    @property
    def of(self) -> str:
        """RATE or CLIENTS."""
        return self.asked.of

    @property
    def whole(self) -> bool:
        """Whether loads are whole numbers."""
        return self.of == CLIENTS

    @property
    def unit(self) -> str:
        return "clients" if self.whole else "requests/s"

    @property
    def judged_by(self) -> Asked:
        """Of every run."""
        return Asked(self.limits, self.asked.percentile)

    @property
    def rule(self) -> str:
        """What a load must reach, in words."""
        if self.asked.attained is None:
            return f"p{self.asked.percentile:g} of every objective within its limit"
        return f"{self.asked.attained:.4g} of requests within every limit"

    def job(self) -> Job:
        """The checked job of the first run; its policy is not fitted yet."""
        return load(self.config_at(self.start, self.seeds[0]))

    def config_at(self, load_: float, seed: int, requests: int | None = None) -> dict[str, Any]:
        """The configuration of one run; `task=run` with it gives the same numbers."""
        own = int(load_) if self.whole else load_
        requests = requests or self.requests_at(load_)
        return {**self.config, "task": "run", self.of: own, "seed": seed, "num_prompts": requests}

    def requests_at(self, load_: float) -> int:
        """Requests that a run at a load begins with.

        Open loop: as many as arrive in `min_seconds`. Closed loop: four of six generations of
        clients at full batch. At least `min_requests` are judged, none of them a client's first.
        """
        fewest = self.asked.min_requests
        if self.whole:
            clients = int(load_)
            return min(max(6 * clients, 3 * clients + fewest), self.available)
        arriving = math.ceil(load_ * self.asked.min_seconds)
        return min(max(fewest, arriving), self.asked.max_requests, self.available)


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
    limits = parse_goodput(value, also=(ITL,))
    return {name: limits[name] for name in sorted(limits, key=lambda name: name == ITL)}


def read_plan(cfg: Mapping[str, Any]) -> SearchPlan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file.
    """
    limits = read_limits(cfg.get("goodput"))
    own = {name: limit for name, limit in limits.items() if name != ITL}
    asked = read(Capacity, cfg.get("capacity") or {})
    config = {**cfg, "goodput": own or None}
    _check_load(cfg, asked.of)
    if asked.of == RATE and cfg.get("request_rate") in ENDLESS:
        config["request_rate"] = FIRST_RATE
    settings = read_settings(config)
    least, most = _bounds(asked, settings)
    start = settings.max_concurrency if asked.of == CLIENTS else settings.request_rate
    available = MOST_REQUESTS
    if not settings.workload.recorded:
        recording = load_recording(config["trace"])
        sequences = choose_sequences(config["trace"], recording)
        available = Lengths(settings.workload, recording, sequences, MOST_REQUESTS).count
    plan = SearchPlan(
        config=config,
        asked=asked,
        limits=limits,
        seeds=asked.seeds or tuple(range(settings.seed, settings.seed + SEEDS)),
        start=min(max(start, least), most),
        least=least,
        most=most,
        available=available,
    )
    plan.job()
    _check_length(asked, limits)
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


def _bounds(asked: Capacity, settings: Settings) -> tuple[float, float]:
    """The least and the most load that are tried."""
    clients = asked.of == CLIENTS
    least, most = asked.least or (1 if clients else LEAST_RATE), asked.most
    if most is None:
        most = settings.server.max_num_seqs * settings.server.replicas if clients else MOST_RATE
    for name, value in (("least", least), ("most", most)):
        if clients and value != int(value):
            raise InputError(f"capacity.{name} is {value:g}; accepted with clients: whole numbers")
    if most < least:
        raise InputError(
            f"capacity.most is {most:g}; accepted: at least capacity.least ({least:g})"
        )
    return (int(least), int(most)) if clients else (least, most)


def _check_length(asked: Capacity, limits: Mapping[str, float]) -> None:
    """Raise InputError for runs too short for what is judged, and for a rule that cannot be."""
    if asked.max_requests < asked.min_requests:
        raise InputError(
            f"capacity.max_requests is {asked.max_requests}; accepted: at least "
            f"capacity.min_requests ({asked.min_requests})"
        )
    if asked.attained is not None and ITL in limits:
        raise InputError(
            f"capacity.attained is {asked.attained:g}; accepted with an objective for {ITL}, which "
            "is of gaps and not of requests: null, capacity.percentile judges it"
        )
    share = asked.percentile / 100 if asked.attained is None else asked.attained
    if share < 1 and asked.min_requests * (1 - share) < 1 - 1e-9:
        needed = math.ceil(1 / (1 - share) - 1e-9)
        raise InputError(
            f"capacity.min_requests is {asked.min_requests}; accepted: at least {needed}, fewer "
            f"requests cannot tell a share of {share:g}"
        )
