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


ROUNDING = 2.0**-8  # of a bfloat16, relative and at most; of a float16 it is 2^-11
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


def most_mass(entries: int | np.ndarray) -> float | np.ndarray:
    """What K >= 1 recorded probabilities of one law add up to, at most: K^(2^-8).

    A law's own add up to at most 1. Rounding l = ln p <= 0 to a float with t significant bits
    changes it by at most 2^-t |l|, so p becomes at most p^(1 - u), u = 2^-t. x^(1 - u) is concave:
    K of them add up to most where all are 1 / K, to K (1 / K)^(1 - u) = K^u. t is 11 for float16,
    which recordings are written in, and 8 for bfloat16, which many engines compute in; the latter
    is allowed, whatever the file's type holds it in. 1.011 for 16 entries, 1.022 for 256, below
    1.05 up to 2^18. The logarithms of float32 laws are off by some 1e-6, far less than 2^(2^-8).
    """
    return np.maximum(entries, 1) ** ROUNDING
