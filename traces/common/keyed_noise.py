"""Counter-based noise: the same request meets the same draws under every policy, live and replayed.

Text: one Gumbel draw per (request seed, output index, token id). token = argmax(logits + T Gumbel)
draws from softmax(logits / T).

Sampled drafts: one uniform draw per (request seed, output index of the anchor, slot of the tree,
use). A slot is a place for a child: the path to its parent, tokens and slot numbers from the root,
and its own number among the parent's slots. So a slot's draw depends neither on how many others
there are nor on when it is admitted.
"""

from __future__ import annotations

import numpy as np

ROOT_KEY = 0  # of the anchor's node
ACCEPT, DRAW, VERIFY = range(3)  # uses: replayed acceptance, the token, a live test of it
DRAFTS = 1  # a word of the counter that the noise of texts leaves 0
_STRIDE, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


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


def step_key(key: int, value: int) -> int:
    """The 64-bit key `key` advanced by a number from -1 on: a bijection of either.

    From a node's key and a slot's number to the slot's key, from that and the slot's token to the
    key of the node in it. The mix is SplitMix64's (Steele, Lea, Flood, OOPSLA 2014).
    """
    mixed = (key + _STRIDE * (value + 2)) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def keyed_uniform(request_seed: int, output_index: int, slot_key: int, use: int) -> float:
    """A uniform draw in (0, 1): Philox-4x64 keyed as texts are, the slot and the use its counter.

    The definition; compiled code computes the same digits (`simulator.orders.kernels.sampled`).
    """
    # as words: a list of integers on both sides of 2^63 would pass through floats
    key = np.array([request_seed, output_index], np.uint64)
    counter = np.array([use, slot_key, DRAFTS, 0], np.uint64)
    bits = np.random.Philox(key=key, counter=counter).random_raw() >> 11
    return (int(bits) + 0.5) / (1 << 53)  # never 0 or 1
