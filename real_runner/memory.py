"""Running out of memory is no fault of the program: one line, and what is done is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from traces.errors import InputError

# What allocators other than CUDA's say in a plain RuntimeError.
WORDS = (
    *("DefaultCPUAllocator", "can't allocate memory"),
    *("out of memory", "CUBLAS_STATUS_ALLOC_FAILED"),
)


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
        known = any(word in str(error) for word in WORDS)
        if known or isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        error = error.__context__
    return False
