"""The settings of one run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from simulator.results.goodput import parse_goodput
from traces.common.errors import InputError

if TYPE_CHECKING:
    from traces.profiles.header import ProfileHeader

PREFILLS = ("whole", "chunked")
SCHEDULINGS = ("fcfs", "shortest_first")
ROUTINGS = ("round_robin", "least_loaded", "join_shortest_queue")
CHUNK = 2048  # tokens of a step where prompts are read in chunks and nothing else is said


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One replica's limits and rules, and how many there are.

    Raises InputError naming the key, its value and what is accepted.
    """

    max_num_seqs: int = 256
    kv_tokens: int | None = None  # of a replica; None: as many as asked for
    gpu_memory_gb: float | None = None  # of each GPU, in place of kv_tokens
    gpu_memory_utilization: float = 0.9
    kv_block: int = 16
    watermark: float = 0.01
    prefill: str = "whole"
    mixed: bool = False
    max_num_batched_tokens: int | None = None
    scheduling: str = "fcfs"
    replicas: int = 1
    router: str = "round_robin"
    lag: int = 0

    def __post_init__(self) -> None:
        for name, least in (("max_num_seqs", 1), ("kv_block", 1), ("replicas", 1), ("lag", 0)):
            _whole_of_server_settings(name, getattr(self, name), least)
        for name in ("kv_tokens", "max_num_batched_tokens"):
            if getattr(self, name) is not None:
                _whole_of_server_settings(name, getattr(self, name), 1, ", or null")
        for name, accepted in (
            ("prefill", PREFILLS),
            ("scheduling", SCHEDULINGS),
            ("router", ROUTINGS),
        ):
            if getattr(self, name) not in accepted:
                _refuse(name, getattr(self, name), ", ".join(accepted))
        if not isinstance(self.mixed, bool):
            _refuse("mixed", self.mixed, "true, false")
        share = self.watermark
        if not _is_number(share) or not 0 <= share < 1:
            _refuse("watermark", share, "a share of the blocks from 0 to below 1")
        if self.kv_tokens is not None and self.kv_tokens < self.kv_block:
            _refuse("kv_tokens", self.kv_tokens, f"at least one block of {self.kv_block}")
        self._check_memory()
        self._check_budget()

    def _check_memory(self) -> None:
        memory, share = self.gpu_memory_gb, self.gpu_memory_utilization
        if memory is not None and (not _is_number(memory) or not 0 < memory <= 1e6):
            _refuse("gpu_memory_gb", memory, "gigabytes of each GPU above 0, or null")
        if memory is not None and self.kv_tokens is not None:
            _refuse("gpu_memory_gb", memory, "null where server.kv_tokens is given")
        if not _is_number(share) or not 0 < share <= 1:
            _refuse("gpu_memory_utilization", share, "a share above 0, up to 1")

    def _check_budget(self) -> None:
        budget = self.max_num_batched_tokens
        if self.prefill == "whole":
            if budget is not None:
                _refuse("max_num_batched_tokens", budget, "null with server.prefill=whole")
            return
        if budget is None:
            object.__setattr__(self, "max_num_batched_tokens", max(CHUNK, self.max_num_seqs))
        elif self.mixed and budget < self.max_num_seqs:
            _refuse(
                "max_num_batched_tokens",
                budget,
                f"at least server.max_num_seqs ({self.max_num_seqs}): every root is in a step",
            )

    def with_memory(self, header: ProfileHeader) -> ServerSettings:
        """With the tokens that the GPUs of a profile hold, where their memory is given.

        Raises:
            InputError: a profile that does not know its model's shape, or no room for a block.
        """
        if self.gpu_memory_gb is None:
            return self
        from simulator.cost.kv_memory import kv_tokens_of

        try:
            tokens = kv_tokens_of(header, self.gpu_memory_gb, self.gpu_memory_utilization)
        except InputError as error:
            raise InputError(f"server.{error}") from None
        return replace(self, kv_tokens=tokens, gpu_memory_gb=None)

    @property
    def plain(self) -> bool:
        """Whether nothing is limited, mixed, late or shared: one replica, whole prompts."""
        same = ("max_num_seqs", "kv_block", "watermark", "router", "gpu_memory_utilization")
        return all(
            getattr(self, item.name) == item.default
            for item in fields(self)
            if item.name not in same
        )


def read_server(node: Mapping[str, Any] | None) -> ServerSettings:
    """Settings of a `server` node whose names are known."""
    return ServerSettings(**(node or {}))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole_of_server_settings(name: str, value: Any, least: int, more: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _refuse(name, value, f"a whole number of at least {least}{more}")


def _refuse(name: str, value: Any, accepted: str) -> None:
    raise InputError(f"server.{name} is {value!r}; accepted: {accepted}")


ARRIVALS = ("load", "file")


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """A file of traffic and what is changed of it; without a path the recorded texts as they are.

    Raises InputError naming the key, its value and what is accepted.
    """

    prompt_tokens: int | None = None  # of every recorded text, in place of its own
    path: str | None = None
    format: str = "auto"
    arrivals: str = "load"  # file: when the file says; load: by request_rate or max_concurrency
    time_scale: float = 1.0  # times are multiplied by it: 2 halves the rate
    max_gap_s: float | None = None
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    min_output_tokens: int = 1
    characters_per_token: float | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        for name in ("path", "tokenizer"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                _refuse_of_workload_settings(name, value, "a path, or null")
        if not isinstance(self.format, str):
            _refuse_of_workload_settings("format", self.format, "auto, or a format's name")
        if self.arrivals not in ARRIVALS:
            _refuse_of_workload_settings("arrivals", self.arrivals, ", ".join(ARRIVALS))
        _number("time_scale", self.time_scale, optional=False)
        for name in ("max_gap_s", "characters_per_token"):
            _number(name, getattr(self, name), optional=True)
        for name in ("prompt_tokens", "max_prompt_tokens", "max_output_tokens"):
            _whole_of_workload_settings(name, getattr(self, name), optional=True)
        _whole_of_workload_settings("min_output_tokens", self.min_output_tokens, optional=False)
        self._check_together()

    def _check_together(self) -> None:
        most = self.max_output_tokens
        if most is not None and most < self.min_output_tokens:
            _refuse_of_workload_settings(
                "max_output_tokens", most, "at least workload.min_output_tokens, or null"
            )
        of_file = [item for item in fields(self) if item.name != "prompt_tokens"]
        changed = any(getattr(self, item.name) != item.default for item in of_file)
        if self.path is not None and self.prompt_tokens is not None:
            _refuse_of_workload_settings(
                "prompt_tokens", self.prompt_tokens, "null with workload.path, whose they are"
            )
        if self.arrivals == "load":
            for name, none in (("time_scale", 1.0), ("max_gap_s", None)):
                if getattr(self, name) != none:
                    accepted = "1.0" if none else "null"
                    _refuse_of_workload_settings(
                        name, getattr(self, name), f"{accepted} with workload.arrivals=load"
                    )
        if self.path is None and changed:
            raise InputError(
                "workload.path is null; accepted with other workload settings: a file of requests"
            )

    @property
    def recorded(self) -> bool:
        """Whether the recorded texts are served as they are."""
        return self.path is None


def read_workload(node: Mapping[str, Any] | None) -> WorkloadSettings:
    """Settings of a `workload` node whose names are known; its `name` is a label."""
    given = {key: value for key, value in (node or {}).items() if key != "name"}
    if (node or {}).get("name") == "file" and given.get("path") is None:
        _refuse_of_workload_settings(
            "path", None, "with workload=file the path of a file of requests"
        )
    return WorkloadSettings(**given)


def _number(name: str, value: Any, optional: bool) -> None:
    if value is None and optional:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        _refuse_of_workload_settings(
            name, value, "a finite number above 0" + (", or null" if optional else "")
        )


def _whole_of_workload_settings(name: str, value: Any, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        _refuse_of_workload_settings(
            name, value, "a whole number of at least 1" + (", or null" if optional else "")
        )


def _refuse_of_workload_settings(name: str, value: Any, accepted: str) -> None:
    raise InputError(f"workload.{name} is {value!r}; accepted: {accepted}")


RECORDED = WorkloadSettings()  # the recorded texts as they are


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
