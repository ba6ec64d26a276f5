"""Small recordings that the tests of orders share, two of them full of exact ties."""

from __future__ import annotations

import numpy as np

from tests.synthetic import make_hidden, make_pool
from traces.recordings.files import build_recording


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _tied_pool():
    """Log-probabilities cut to multiples of 1/2, so path sums are exact and often equal."""
    recording = make_pool(_rng(3), depths=3, pool=5, lengths=[12] * 6)
    rounded = {name: np.floor(recording[name] * 2) / 2 for name in ("pool_logprob", "path_logq")}
    return build_recording(recording.meta, dict(recording.arrays) | rounded, "tied pool")


def _tied_hidden():
    """Integer factors (so logits are exact), and every token has a twin with the same rows."""
    recording = make_hidden(_rng(4), depths=3, vocab=24, lengths=[12] * 6)
    arrays = dict(recording.arrays)
    arrays["hidden"] = np.round(arrays["hidden"])
    for name, scale in (("head", 1), ("markov_w1", 2), ("markov_w2", 1)):
        whole = np.round(arrays[name] * scale)
        arrays[name] = np.concatenate([whole[:12], whole[:12]])
    return build_recording(recording.meta, arrays, "tied hidden")


def order_recordings() -> dict:
    """By name: random pool and hidden recordings of 66 anchors, and those with ties."""
    return {
        "pool": make_pool(_rng(1), lengths=[12] * 6),
        "hidden": make_hidden(_rng(2), lengths=[12] * 6),
        "tied pool": _tied_pool(),
        "tied hidden": _tied_hidden(),
    }
