"""Counter-based Gumbel noise: one draw per (request seed, output index, token id).

token = argmax(logits + T * Gumbel) draws from softmax(logits / T); keyed this way the same request
emits the same text under every verification policy, live and replayed.
"""

from __future__ import annotations

import numpy as np


def gumbel(request_seed: int, output_index: int, vocab_size: int) -> np.ndarray:
    """Gumbel(0, 1) noise (vocab_size,) float64 for one output position.

    Philox-4x64 keyed by (request seed, output index); the token id is the position in the stream,
    so the noise of a token does not depend on the vocabulary's size.
    """
    stream = np.random.Generator(np.random.Philox(key=[request_seed, output_index]))
    uniform = (stream.integers(0, 1 << 53, vocab_size) + 0.5) / (1 << 53)  # never 0 or 1
    return -np.log(-np.log(uniform))


def keyed_draw(logits: np.ndarray, temperature: float, request_seed: int, output_index: int) -> int:
    """The token of one position; logits (V,). Temperature 0 is the argmax (ties: smaller id)."""
    if temperature == 0:
        return int(np.argmax(logits))
    noise = gumbel(request_seed, output_index, len(logits))
    return int(np.argmax(np.asarray(logits, np.float64) + temperature * noise))
