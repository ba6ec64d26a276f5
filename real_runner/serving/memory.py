"""Running out of memory is no fault of the program: one line, and what is done is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from traces.errors import InputError

# What allocators other than CUDA's say in a plain RuntimeError.
WORDS = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@contextmanager
def enough_memory(advice: Callable[[], str]) -> Iterator[None]:
    """Turn an allocator's error into an InputError that ends with `advice()`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not ran_out(error):
            raise
        reason = (str(error).splitlines() or [""])[0].strip()
        raise InputError(f"out of memory ({reason[:160]}); {advice()}") from error


def ran_out(error: BaseException) -> bool:
    """Whether an allocator raised it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(word in str(error) for word in WORDS)
