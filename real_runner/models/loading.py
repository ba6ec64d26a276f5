"""The live pair a configuration names: the small one, or checkpoints of other models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from real_runner.engine.models import LiveDrafter, LivePair
from real_runner.settings import choice
from traces.common.errors import InputError


def load_live(config: Mapping[str, Any]) -> LivePair:
    """Load `pair`, or `target` with `drafter`, on `device` in `dtype`.

    Raises:
        InputError: what is missing, does not fit together, or is not available here.
    """
    device, dtype = place(config)
    if config["target"] is None:
        from real_runner.models.small.load import SHIPPED, load_pair

        return load_pair(Path(config["pair"] or SHIPPED), device, dtype)
    from real_runner.models.hub.load import load_checkpoint_pair

    return load_checkpoint_pair(config["target"], config["drafter"], device, dtype)


def place(config: Mapping[str, Any]) -> tuple[torch.device, torch.dtype]:
    """Where and in what a pair runs, by `device`, `dtype` and `threads`, which it sets.

    Raises:
        InputError: a device or a type that is not there.
    """
    device = device_of(config["device"])
    dtype = getattr(torch, config["dtype"])
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    if device.type == "cuda":
        # cuDNN's attention builds a plan for every new shape, and trees bring one each step.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device, dtype


def device_of(value: str) -> torch.device:
    """cpu or cuda; auto takes cuda where there is one."""
    if value == "cuda" and not torch.cuda.is_available():
        raise InputError("device is 'cuda', but PyTorch sees no CUDA device; accepted here: cpu")
    if value == "auto":
        value = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(value)


def chosen_drafter(pair: LivePair, config: Mapping[str, Any]) -> LiveDrafter:
    """The one drafter of a pair that has one, or the small pair's `drafter` kind."""
    if config["target"] is not None and len(pair.drafters) == 1:
        return next(iter(pair.drafters.values()))
    return pair.drafters[choice("drafter", config["drafter"], tuple(pair.drafters))]


# What allocators other than CUDA's say in a plain RuntimeError.
WORDS = "DefaultCPUAllocator|can't allocate memory|out of memory|CUBLAS_STATUS_ALLOC_FAILED"


@contextmanager
def enough_memory(advice: Callable[[], str]) -> Iterator[None]:
    """Turn an allocator's error into an InputError that ends with `advice()`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not ran_out(error):
            raise
        raise InputError(f"{said(error)}; {advice()}") from error


def said(error: BaseException) -> str:
    """The allocator's own words, in one line."""
    reason = (str(error).splitlines() or [""])[0].strip()
    return f"out of memory ({reason[:160]})"


def ran_out(error: BaseException | None) -> bool:
    """Whether an allocator raised it; a graph capture that runs out raises another on its way."""
    while error is not None:
        known = re.search(WORDS, str(error))
        if known or isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        error = error.__context__
    return False
