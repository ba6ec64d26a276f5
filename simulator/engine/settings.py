"""The settings of one run: its load, the server's limits and rules, and the traffic it serves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from simulator.results.latency import parse_goodput
from traces.common.errors import InputError
from traces.common.settings import (
    LARGEST,
    LARGEST_WHOLE,
    Condition,
    Config,
    Section,
    above,
    given,
    key,
    read,
    several,
    value_at,
    whole,
)

if TYPE_CHECKING:
    from traces.profiles.header import ProfileHeader

CHUNK = 2048  # tokens of a step where prompts are read in chunks and nothing else is said
MOST_CLIENTS = 100_000  # in a closed loop, and of a step
MOST_REQUESTS = 100_000_000  # of a run
Tokens = whole(1, 100_000_000)  # of a text


def _is_open(config: Config) -> bool:
    if config.get("task") == "capacity":
        return value_at(config, "capacity.of") == "request_rate"
    endless = config.get("request_rate", math.inf) in (math.inf, "inf")
    return not endless and value_at(config, "workload.arrivals") != "file"


OPEN_LOOP = Condition("an open loop (request_rate below inf, no file's arrivals)", _is_open)
_LIMITED = (given("server.kv_tokens", "server.gpu_memory_gb"),)


class ServerSettings(Section):
    """One replica's limits and rules, and how many there are."""

    PREFIX: ClassVar[str] = "server."

    max_num_seqs: whole(1, MOST_CLIENTS) = key(
        256, "most requests in one step of a replica; the rest wait"
    )
    kv_tokens: whole(1, 10**12) | None = key(
        None, "tokens; null: no limit. A request that can never fit is rejected and counted"
    )
    gpu_memory_gb: above(0, 1e6) | None = key(
        None, "of each GPU: tokens that fit beside the profile's model, in place of kv_tokens"
    )
    gpu_memory_utilization: above(0, 1) = key(
        0.9, "share of it that the engine takes", counts=(given("server.gpu_memory_gb"),)
    )
    kv_block: whole(1, 10**6) = key(
        16, "tokens of a block; it and watermark count where the cache is limited", counts=_LIMITED
    )
    watermark: Annotated[float, Field(ge=0, lt=1)] = key(
        0.01, "share of blocks that admission leaves free", counts=_LIMITED
    )
    prefill: Literal["whole", "chunked"] = key("whole", "whole or chunked")
    mixed: bool = False
    max_num_batched_tokens: whole(1, 10**9) | None = key(
        None, "of a step; null: 2048 with chunks, no limit for whole prompts"
    )
    scheduling: Literal["fcfs", "shortest_first"] = key(
        "fcfs", "or shortest_first, by true output length: a comparison no engine can run"
    )
    replicas: whole(1, 1024) = key(1, "data-parallel copies, each with its own cache and policy")
    router: Literal["round_robin", "least_loaded", "join_shortest_queue"] = key(
        "round_robin",
        "or least_loaded (tokens), join_shortest_queue (requests); of several replicas",
        counts=(several("server.replicas"),),
    )
    lag: whole(0, 10_000) = key(
        0, "steps by which what a policy sees is old (0: this step's load and survivals)"
    )

    @model_validator(mode="after")
    def _together(self) -> ServerSettings:
        if self.kv_tokens is not None and self.kv_tokens < self.kv_block:
            self.refuse("kv_tokens", f"at least one block of {self.kv_block}")
        if self.gpu_memory_gb is not None and self.kv_tokens is not None:
            self.refuse("gpu_memory_gb", "null where server.kv_tokens is given")
        budget = self.max_num_batched_tokens
        if self.prefill == "whole" and budget is not None:
            self.refuse("max_num_batched_tokens", "null with server.prefill=whole")
        if self.prefill == "chunked" and budget is None:
            self.__dict__["max_num_batched_tokens"] = max(CHUNK, self.max_num_seqs)
        elif self.prefill == "chunked" and self.mixed and budget < self.max_num_seqs:
            self.refuse(
                "max_num_batched_tokens",
                f"at least server.max_num_seqs ({self.max_num_seqs}): every root is in a step",
            )
        return self

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
        return self.with_(kv_tokens=tokens, gpu_memory_gb=None)

    @property
    def kv_blocks(self) -> int | None:
        """Blocks of the cache, None without a limit; what fills no block is lost."""
        return None if self.kv_tokens is None else self.kv_tokens // self.kv_block

    @property
    def plain(self) -> bool:
        """Whether nothing is limited, mixed, late or shared: one replica, whole prompts."""
        same = {"max_num_seqs", "kv_block", "watermark", "router", "gpu_memory_utilization"}
        return not self.changed() - same


class WorkloadSettings(Section):
    """A file of traffic and what is changed of it; without a path the recorded texts as they are.

    name: a label.
    """

    PREFIX: ClassVar[str] = "workload."

    name: str | None = key(None, exclude=True)
    prompt_tokens: Tokens | None = key(
        None, "tokens of every prompt, for its cost; null: the recorded prompts' own"
    )
    path: str | None = key(None, accepted="a path, or null")
    format: str = key("auto", "or azure, burstgpt, mooncake, sharegpt, csv")
    arrivals: Literal["load", "file"] = key(
        "load", "file: requests come when the file says; load: by request_rate or max_concurrency"
    )
    time_scale: above(0, LARGEST) = key(1.0, "times are multiplied by it: 2 halves the rate")
    max_gap_s: above(0, LARGEST) | None = key(None, "longer silences are cut to it, and counted")
    max_prompt_tokens: Tokens | None = key(None, "longer ones are cut to it, and counted")
    max_output_tokens: Tokens | None = None
    min_output_tokens: Tokens = 1
    characters_per_token: above(0, 1e6) | None = key(
        None, "of ShareGPT's texts; or the path of a tokenizer.json below"
    )
    tokenizer: str | None = key(None, accepted="a path, or null")

    @model_validator(mode="after")
    def _together(self) -> WorkloadSettings:
        most, changed = self.max_output_tokens, self.changed() - {"name"}
        if self.name == "file" and self.path is None:
            self.refuse("path", "with workload=file the path of a file of requests")
        if most is not None and most < self.min_output_tokens:
            self.refuse("max_output_tokens", "at least workload.min_output_tokens, or null")
        if self.path is not None and self.prompt_tokens is not None:
            self.refuse("prompt_tokens", "null with workload.path, whose they are")
        for name in changed & {"time_scale", "max_gap_s"} if self.arrivals == "load" else ():
            accepted = "1.0" if name == "time_scale" else "null"
            self.refuse(name, f"{accepted} with workload.arrivals=load")
        if self.path is None and changed - {"prompt_tokens"}:
            self.refuse("path", "with other workload settings a file of requests")
        return self

    @property
    def recorded(self) -> bool:
        """Whether the recorded texts are served as they are."""
        return self.path is None


class TraceSettings(Section):
    """Which recorded drafts are served."""

    PREFIX: ClassVar[str] = "trace."

    recording: str = key(accepted="a name, or a path to a file")
    split: Any = key("report", read_by="run published bounds capacity")
    domains: Any = key(None, read_by="run rtable published bounds claims capacity recommend")
    at_temperature: Any = None


def _checked_rate(value: float) -> float:
    if value == math.inf or 1e-6 <= value <= LARGEST:
        return value
    raise ValueError


Rate = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
    AfterValidator(_checked_rate),
]
_EVERY_LOAD = "run capacity recommend"


class LoadSettings(Section):
    """Settings that choose no option of a group, in the words of vLLM's serving benchmark."""

    max_concurrency: whole(1, MOST_CLIENTS) | None = key(
        16,
        "closed loop: clients; open loop: cap on running requests, null for none",
        read_by="run published capacity recommend",
    )
    request_rate: Rate = key(
        math.inf,
        "requests per second; inf: closed loop, every client waits for its last request",
        accepted=f"requests per second from 1e-06 to {LARGEST:g}, or inf",
        read_by=_EVERY_LOAD,
    )
    burstiness: above(0, LARGEST) = key(
        1.0,
        "open loop: gamma shape of the gaps between arrivals; 1: Poisson, below 1: burstier",
        read_by=_EVERY_LOAD,
        counts=(OPEN_LOOP,),
    )
    num_prompts: whole(1, MOST_REQUESTS) | None = key(
        None,
        "requests; null: closed loop max(64, 6 x max_concurrency), open loop 256",
        read_by="run published recommend",
    )
    ramp: whole(0, MOST_REQUESTS) = key(
        0,
        "open loop: completions at either end that the window leaves out (warm-up, cool-down)",
        read_by=_EVERY_LOAD,
    )
    seed: whole(0, LARGEST_WHOLE) = key(
        0,
        "of the order of prompts and the gaps between arrivals",
        read_by="run published tournament claims capacity recommend",
    )
    goodput: Any = key(
        None, 'objectives in milliseconds, such as "ttft:500 tpot:50"', read_by=_EVERY_LOAD
    )


class Settings(LoadSettings):
    """LoadSettings, server and traffic of one run."""

    server: ServerSettings = ServerSettings()
    workload: WorkloadSettings = WorkloadSettings()

    @field_validator("goodput", mode="before")
    @classmethod
    def _limits(cls, value: Any) -> dict[str, float] | None:
        return parse_goodput(value)

    @model_validator(mode="after")
    def _together(self) -> Settings:
        if self.workload.arrivals == "file" and self.request_rate < math.inf:
            self.refuse(
                "request_rate",
                "with workload.arrivals=file inf (the file says when requests come; "
                "workload.time_scale changes its rate)",
            )
        if self.closed_loop and self.ramp:
            self.refuse(
                "ramp",
                "in a closed loop 0 (its window leaves out as many completions as there are "
                "clients)",
            )
        if self.closed_loop and self.max_concurrency is None:
            self.refuse(
                "max_concurrency",
                f"a whole number from 1 to {MOST_CLIENTS} (null needs a finite request_rate)",
            )
        return self

    @property
    def closed_loop(self) -> bool:
        """Whether a fixed number of clients wait for their requests."""
        return math.isinf(self.request_rate) and self.workload.arrivals == "load"

    @property
    def capacity(self) -> int:
        """Most requests in one step of a replica, as the load has them."""
        most = self.server.max_num_seqs
        return min(most, self.max_concurrency or most)

    @property
    def requests(self) -> int:
        """Requests of the run.

        By default enough that four of six generations of clients run at full batch, and short.
        """
        if self.num_prompts is not None:
            return self.num_prompts
        return max(64, 6 * self.max_concurrency) if self.closed_loop else 256


GROUPS = ("policy", "trace", "latency", "server")
OPTIONAL = ("workload",)  # groups that may be left out
SCALARS = (*LoadSettings.model_fields, "temperature", "task")


def read_settings(cfg: Mapping[str, Any]) -> Settings:
    """Load, server and traffic of a composed configuration; its other keys are not looked at."""
    nodes = {name: cfg.get(name) or {} for name in ("server", "workload")}
    return read(
        Settings, {name: cfg[name] for name in LoadSettings.model_fields if name in cfg} | nodes
    )
