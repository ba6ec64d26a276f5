"""Vectorised checks that name the first offending array entry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traces.errors import InputError


def fail_where(
    bad: np.ndarray,
    array: np.ndarray,
    name: str,
    source: str,
    accepted: str | Callable[[tuple[int, ...]], str],
) -> None:
    """InputError for the first entry of `array` where `bad` (same shape) is true."""
    if not bad.any():
        return
    index = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
    wanted = accepted(index) if callable(accepted) else accepted
    shown = ", ".join(map(str, index))
    raise InputError(f"{source}: array {name}[{shown}] is {array[index]}, expected {wanted}")


def refuse_not_finite(array: np.ndarray, name: str, source: str) -> None:
    """Refuse NaN and infinities; integers pass."""
    if array.dtype.kind == "f" and array.size:
        bad = ~np.isfinite(array)
        fail_where(bad, array, name, source, "a finite number")


def refuse_tokens(array: np.ndarray, name: str, source: str, vocab_size: int) -> None:
    """Refuse token ids outside 0..vocab_size - 1."""
    if array.size and (int(array.max()) >= vocab_size or int(array.min()) < 0):
        bad = (array < 0) | (array >= vocab_size)
        fail_where(bad, array, name, source, f"a token in 0..{vocab_size - 1}")


def refuse_positive(array: np.ndarray, name: str, source: str) -> None:
    """Refuse log-probabilities above 0."""
    if array.size and array.max() > 0:
        fail_where(array > 0, array, name, source, "a log-probability <= 0")
