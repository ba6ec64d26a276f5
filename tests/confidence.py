"""Synthetic recordings with a confidence head."""

from __future__ import annotations

import numpy as np

from traces.recordings.files import build_recording
from traces.recordings.recording import Recording

HEAD = ("confidence_hidden", "confidence_parent", "confidence_bias")


def with_confidence(recording: Recording, seed: int = 3) -> Recording:
    """The recording of encoding hidden with a random confidence head."""
    rng = np.random.default_rng(seed)
    width, rank = recording["hidden"].shape[2], recording["markov_w1"].shape[1]
    parts = (rng.normal(size=width) * 0.6, rng.normal(size=rank), np.array([0.3]))
    head = {name: part.astype(np.float32) for name, part in zip(HEAD, parts, strict=True)}
    return build_recording(dict(recording.meta), dict(recording.arrays) | head, "with head")
