"""Where a round's random tokens come from: keyed by request and position, or one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulator.orders import Draws as Drafts
from traces.common.keyed_noise import keyed_draw


class Draws(Protocol):
    """The target's tokens, and the drafter's where it samples."""

    def rows(self, logits: np.ndarray, seeds: np.ndarray, output_index: np.ndarray) -> np.ndarray:
        """The tokens (n,) of n outputs, from logits (n, V) float64 without the banned tokens."""

    def drafts(self, seeds: np.ndarray, output_index: np.ndarray) -> Drafts:
        """Where the sampled drafts of a step come from; output_index (b,) of the roots."""


@dataclass(frozen=True, slots=True)
class KeyedDraws:
    """Greedy at temperature 0; above it, noise keyed by request seed and output index.

    The same request then emits the same text under every policy.
    """

    temperature: float

    def rows(self, logits: np.ndarray, seeds: np.ndarray, output_index: np.ndarray) -> np.ndarray:
        asked = zip(logits, seeds.tolist(), output_index.tolist(), strict=True)
        return np.array([keyed_draw(row, self.temperature, *key) for row, *key in asked], np.int64)

    def drafts(self, seeds: np.ndarray, output_index: np.ndarray) -> Drafts:
        return Drafts(seeds, output_index)


@dataclass(frozen=True, slots=True)
class IndependentDraws:
    """Draws from softmax(logits / temperature), each with fresh noise of one random stream."""

    temperature: float
    rng: np.random.Generator

    def rows(self, logits: np.ndarray, seeds: np.ndarray, output_index: np.ndarray) -> np.ndarray:
        return (logits / self.temperature + self.rng.gumbel(size=logits.shape)).argmax(-1)

    def drafts(self, seeds: np.ndarray, output_index: np.ndarray) -> Drafts:
        return Drafts(seeds, output_index, self.rng)
