"""The one record type shared by all corpus domains, the held-out rule, and draws."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Example:
    """One task: a prompt ending in a newline and the text that should follow it."""

    domain: str
    prompt: str
    completion: str


def is_heldout(text: str) -> bool:
    """Return whether a stable hash places ``text`` in the held-out tenth."""
    return zlib.crc32(text.encode()) % 10 == 0


def pick(rng: np.random.Generator, options):
    """Return one element of a sequence, uniformly."""
    return options[int(rng.integers(len(options)))]


def pick_distinct(rng: np.random.Generator, options, count: int) -> list:
    """Return ``count`` different elements of a sequence."""
    return [options[int(i)] for i in rng.permutation(len(options))[:count]]


def between(rng: np.random.Generator, low: int, high: int) -> int:
    """Return an integer in the closed range [low, high]."""
    return int(rng.integers(low, high + 1))
