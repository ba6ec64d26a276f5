"""The settings of one run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from simulator.goodput import parse_goodput
from simulator.server_settings import ServerSettings, read_server
from simulator.workload_settings import RECORDED, WorkloadSettings, read_workload
from traces.errors import InputError

TASKS = (
    "run",
    "rtable",
    "published",
    "bounds",
    "calibrate",
    "tournament",
    "claims",
    "capacity",
    "recommend",
)
LARGEST = 1e300  # of numbers that must stay finite in what is computed from them
GROUPS = ("policy", "trace", "latency", "server")
OPTIONAL = ("workload",)  # groups that may be left out
OF_TASKS = TASKS[1:]  # settings of one task
SCALARS = (
    "max_concurrency",
    "request_rate",
    "burstiness",
    "num_prompts",
    "ramp",
    "seed",
    "goodput",
    "temperature",
    "task",
)
KNOWN = {
    "trace": ("recording", "split", "domains", "at_temperature"),
    "server": tuple(item.name for item in fields(ServerSettings)),
    "workload": ("name", *(item.name for item in fields(WorkloadSettings))),
    "rtable": ("split", "nodes"),
    "published": ("fit_domain", "table"),
    "bounds": ("nodes", "branch", "scores", "batches"),
    "calibrate": ("nodes", "branch", "output"),
    "tournament": (
        "candidate",
        "rivals",
        "profiles",
        "traces",
        "domains",
        "concurrency",
        "seeds",
        "num_prompts",
        "split_tune",
        "split_report",
        "resamples",
        "workers",
    ),
    "claims": ("traces", "profiles", "concurrency", "resamples"),
    "capacity": (
        "of",
        "percentile",
        "attained",
        "seeds",
        "tolerance",
        "least",
        "most",
        "min_seconds",
        "min_requests",
        "max_requests",
        "workers",
    ),
    "recommend": (
        "policies",
        "concurrency",
        "attained",
        "tuning_seeds",
        "seeds",
        "split_tune",
        "split_report",
        "resamples",
        "workers",
    ),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Load, server limit and seed of one run.

    Raises InputError naming the key, its value and what is accepted.
    """

    max_concurrency: int | None = 16
    request_rate: float = math.inf
    burstiness: float = 1.0
    num_prompts: int | None = None
    seed: int = 0
    goodput: Mapping[str, float] | None = None
    max_num_seqs: int = 256  # of `server`, where that is not given
    server: ServerSettings | None = None
    workload: WorkloadSettings = RECORDED
    ramp: int = 0  # completions at either end of an open loop that its window leaves out

    def __post_init__(self) -> None:
        if self.server is None:
            object.__setattr__(self, "server", ServerSettings(max_num_seqs=self.max_num_seqs))
        object.__setattr__(self, "max_num_seqs", self.server.max_num_seqs)
        _whole("max_concurrency", self.max_concurrency, 1, "a whole number of at least 1", True)
        _whole("num_prompts", self.num_prompts, 1, "a whole number of at least 1", True)
        _whole("seed", self.seed, 0, "a whole number of at least 0")
        _whole("ramp", self.ramp, 0, "a whole number of at least 0")
        object.__setattr__(self, "request_rate", _rate(self.request_rate))
        _positive("burstiness", self.burstiness)
        object.__setattr__(self, "goodput", parse_goodput(self.goodput))
        if self.workload.arrivals == "file" and self.request_rate < math.inf:
            raise InputError(
                f"request_rate is {self.request_rate:g}; accepted with workload.arrivals=file: inf "
                "(the file says when requests come; workload.time_scale changes its rate)"
            )
        if self.closed_loop and self.ramp:
            raise InputError(
                f"ramp is {self.ramp}; accepted in a closed loop: 0 (its window leaves out as many "
                "completions as there are clients)"
            )
        if self.closed_loop and self.max_concurrency is None:
            raise InputError(
                "max_concurrency is null; accepted: a whole number of at least 1 (null needs a "
                "finite request_rate)"
            )

    @property
    def closed_loop(self) -> bool:
        """Whether a fixed number of clients wait for their requests."""
        return math.isinf(self.request_rate) and self.workload.arrivals == "load"

    @property
    def capacity(self) -> int:
        """Most requests in one step of a replica."""
        return min(self.max_num_seqs, self.max_concurrency or self.max_num_seqs)

    @property
    def requests(self) -> int:
        """Requests of the run.

        By default enough that four of six generations of clients run at full batch, and short.
        """
        if self.num_prompts is not None:
            return self.num_prompts
        return max(64, 6 * self.max_concurrency) if self.closed_loop else 256


def read_settings(cfg: Mapping[str, Any]) -> Settings:
    """Settings of a composed configuration; its other keys are checked for unknown names too."""
    check_keys(cfg)
    others = ("task", "temperature")  # the trace's, see `inputs.settled`
    load = {key: cfg[key] for key in SCALARS if key in cfg and key not in others}
    server, workload = read_server(cfg.get("server")), read_workload(cfg.get("workload"))
    return Settings(**load, server=server, workload=workload)


def check_keys(cfg: Mapping[str, Any]) -> None:
    """Raise InputError naming the first key of the configuration that nothing reads."""
    _known("", cfg, (*GROUPS, *OPTIONAL, *SCALARS, *OF_TASKS))
    for group in (*GROUPS, *OPTIONAL, *OF_TASKS):
        node = cfg.get(group)
        missing = node is None and group in GROUPS
        if missing or not isinstance(node, Mapping | None):
            raise InputError(f"{group} is {node!r}; accepted: {group}=OPTION, see --help")
        if group in KNOWN:
            _known(f"{group}.", node or {}, KNOWN[group])
    task = cfg.get("task", "run")
    if task not in TASKS:
        raise InputError(f"task is {task!r}; accepted: {', '.join(TASKS)}")


def _known(prefix: str, node: Mapping[str, Any], accepted: tuple[str, ...]) -> None:
    for key in node:
        if key not in accepted:
            names = ", ".join(prefix + name for name in accepted)
            raise InputError(f"unknown key {prefix}{key}; accepted: {names}")


def _whole(name: str, value: Any, least: int, accepted: str, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} is {value!r}; accepted: {accepted}")


def _positive(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value <= LARGEST):
        raise InputError(f"{name} is {value!r}; accepted: a finite number above 0")


def _rate(value: Any) -> float:
    value = math.inf if value == "inf" else value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value == math.inf or 1e-6 <= value <= LARGEST):
        raise InputError(
            f"request_rate is {value!r}; accepted: requests per second from 1e-6, or inf"
        )
    return float(value)
