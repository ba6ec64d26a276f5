"""The recording format, version 1: names, dimensions and types of every array.

Dimensions: S sequences, T tokens, A anchors, D depths, K pool size, M nodes, V vocabulary,
P target rows (sum of output_len + D), d drafter hidden size, e target hidden size, r Markov rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FORMAT = "specdec-recording"
MANIFEST_FORMAT = "specdec-recording-manifest"
VERSION = 1
HEADER_KEY = "recording"
SPLITS = ("calibration", "tuning", "report")
ENCODINGS = ("pool", "hidden", "tree")
DRAFTER_KINDS = ("block", "semi_autoregressive")
BLOCK_SEMANTICS = ("in_place", "shifted")
ROOT = -1  # tree_parent of a node whose parent is the anchor
PADDING = -2  # tree_parent of an unused slot at the end of a tree row
NEAR_TIE = 1e-4  # top-2 margins (logits) and score differences below this are counted as near ties
NARROW_VOCAB = 65536  # token ids of vocabularies up to this size are stored as uint16


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array: its dimensions by symbol, `int` or `float`, and the type integers are stored in.

    `stored` is an integer dtype name, or "token" for the narrowest type that holds the vocabulary.
    """

    dims: tuple[str, ...]
    kind: str
    stored: str = ""


def _ints(stored: str, *dims: str) -> ArraySpec:
    return ArraySpec(dims, "int", stored)


def _floats(*dims: str) -> ArraySpec:
    return ArraySpec(dims, "float")


COMMON = {
    "prompt_len": _ints("int32", "S"),
    "output_len": _ints("int32", "S"),
    "domain": _ints("uint8", "S"),
    "split": _ints("uint8", "S"),
    "seq_offset": _ints("int64", "S+1"),
    "tokens": _ints("token", "T"),
    "anchor_pos": _ints("int64", "A"),
}
BY_ENCODING = {
    "pool": {
        "pool_token": _ints("token", "A", "D", "K"),
        "pool_logprob": _floats("A", "D", "K"),
        "path_logq": _floats("A", "D"),
    },
    "hidden": {"hidden": _floats("A", "D", "d"), "head": _floats("V", "d")},
    "tree": {
        "tree_token": _ints("token", "A", "M"),
        "tree_parent": _ints("int16", "A", "M"),
        "tree_logq": _floats("A", "M"),
    },
}
MARKOV = {"markov_w1": _floats("V", "r"), "markov_w2": _floats("V", "r")}
TARGET = {"target_hidden": _floats("P", "e"), "target_head": _floats("V", "e")}
# The confidence head behind `confidence`: logit = hidden . h + parent . markov_w1[u] + bias.
CONFIDENCE_HEAD = {
    "confidence_hidden": _floats("d"),
    "confidence_parent": _floats("r"),
    "confidence_bias": _floats("1"),
}
OPTIONAL = {"confidence": _floats("A", "D"), "target_margin": _floats("A"), **CONFIDENCE_HEAD}
# Arrays beyond these are kept when their name says what their rows are.
EXTRA_PREFIXES = {"seq_": "S", "anchor_": "A", "output_": "P"}
# Stored once per recording: shards must agree on them, all else is concatenated.
SHARED_ARRAYS = ("head", "markov_w1", "markov_w2", "target_head", *CONFIDENCE_HEAD)
KNOWN = {
    **COMMON,
    **BY_ENCODING["pool"],
    **BY_ENCODING["hidden"],
    **BY_ENCODING["tree"],
    **MARKOV,
    **TARGET,
    **OPTIONAL,
}


def rows_of(name: str) -> str:
    """The dimension that an array's rows run along; empty for an unknown name."""
    if name in KNOWN:
        return KNOWN[name].dims[0]
    return next((rows for prefix, rows in EXTRA_PREFIXES.items() if name.startswith(prefix)), "")


def required_arrays(meta: dict) -> dict[str, ArraySpec]:
    """Arrays that a recording with this (valid) metadata must hold."""
    needed = {**COMMON, **BY_ENCODING[meta["encoding"]]}
    if meta["encoding"] == "hidden" and meta["drafter"]["kind"] == "semi_autoregressive":
        needed |= MARKOV
    if meta["temperature"] > 0:
        needed["target_hidden"] = TARGET["target_hidden"]
        if not meta["shared_head"]:
            needed["target_head"] = TARGET["target_head"]
    return needed


def narrowed(name: str, array: np.ndarray, vocab_size: int) -> np.ndarray:
    """`array` in the type the format stores it in, contiguous and read-only.

    Values that do not fit keep their type, so that validation can name them.
    """
    array = np.ascontiguousarray(array)
    spec = KNOWN.get(name)
    if spec is not None and spec.kind == "int" and array.dtype.kind in "iu":
        token_type = "uint16" if vocab_size <= NARROW_VOCAB else "int32"
        stored = np.dtype(token_type if spec.stored == "token" else spec.stored)
        if array.dtype != stored:  # the stored type is not read through
            limits = np.iinfo(stored)
            fits = not array.size or (array.min() >= limits.min and array.max() <= limits.max)
            array = array.astype(stored) if fits else array
    array = array.view()
    array.flags.writeable = False
    return array
