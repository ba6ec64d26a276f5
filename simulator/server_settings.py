"""How a server schedules: the `server` group of the configuration, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from traces.errors import InputError

if TYPE_CHECKING:
    from simulator.cost.header import ProfileHeader

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
            _whole(name, getattr(self, name), least)
        for name in ("kv_tokens", "max_num_batched_tokens"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1, ", or null")
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
        from simulator.cost.memory import kv_tokens_of

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


def _whole(name: str, value: Any, least: int, more: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _refuse(name, value, f"a whole number of at least {least}{more}")


def _refuse(name: str, value: Any, accepted: str) -> None:
    raise InputError(f"server.{name} is {value!r}; accepted: {accepted}")
