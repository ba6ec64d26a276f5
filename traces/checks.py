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


# Probabilities of one law add up to at most 1: to 1.28 when logarithms were rounded to halves.
SLACK = 1.3
LARGEST = 1e30  # of a score or weight: products of two, summed over a row, stay finite


def refuse_not_finite(array: np.ndarray, name: str, source: str) -> None:
    """Refuse NaN, infinities and numbers that become infinite in use; integers pass."""
    if array.dtype.kind == "f" and array.size:
        bad = ~np.isfinite(array)
        if array.dtype.itemsize > 2:  # no float16 is larger
            bad |= np.abs(array) > LARGEST
        fail_where(bad, array, name, source, f"a finite number of at most {LARGEST:g} in size")


def refuse_tokens(array: np.ndarray, name: str, source: str, vocab_size: int) -> None:
    """Refuse token ids outside 0..vocab_size - 1."""
    if array.size and (int(array.max()) >= vocab_size or int(array.min()) < 0):
        bad = (array < 0) | (array >= vocab_size)
        fail_where(bad, array, name, source, f"a token in 0..{vocab_size - 1}")


def refuse_positive(array: np.ndarray, name: str, source: str) -> None:
    """Refuse log-probabilities above 0."""
    if array.size and array.max() > 0:
        fail_where(array > 0, array, name, source, "a log-probability <= 0")
