"""Validation of a whole recording, run on every read.

Order: metadata, presence and shapes, sequence layout, then the draft scores
(`traces.validate_scores`). Every refusal is one line naming file, array and index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traces.checks import fail_where, refuse_not_finite, refuse_tokens
from traces.errors import InputError
from traces.meta import check_meta
from traces.schema import EXTRA_PREFIXES, KNOWN, SPLITS, ArraySpec, required_arrays
from traces.validate_scores import check_scores

Arrays = Mapping[str, np.ndarray]


def validate(meta: dict[str, Any], arrays: Arrays, source: str) -> None:
    """Raise InputError at the first thing that is not a version 1 recording."""
    check_meta(meta, source)
    sizes = _check_shapes(meta, arrays, source)
    _check_layout(meta, arrays, sizes, source)
    _check_anchors(arrays, source)
    _check_endings(meta, arrays, source)
    check_scores(meta, arrays, source)


def _check_shapes(meta: dict[str, Any], arrays: Arrays, source: str) -> dict[str, int]:
    """Presence, dtype and shape of every array; returns the size of every dimension symbol."""
    for name in required_arrays(meta):
        if name not in arrays:
            raise InputError(
                f"{source}: array {name} is missing, required with encoding {meta['encoding']},"
                f" temperature {meta['temperature']}"
            )
    sizes = {"V": meta["vocab_size"], "1": 1}
    for name in [name for name in KNOWN if name in arrays]:
        _check_array(name, arrays[name], KNOWN[name], sizes, source)
        if name == "anchor_pos":  # the common arrays come first and fix D and P
            _derive_depths(arrays, sizes, source)
    if meta["shared_head"] and "e" in sizes and sizes["e"] != sizes["d"]:
        raise InputError(
            f"{source}: array target_hidden has hidden size {sizes['e']}, the shared head has"
            f" {sizes['d']}"
        )
    for name in [name for name in arrays if name not in KNOWN]:
        _check_extra(name, arrays[name], sizes, source)
    return sizes


def _check_array(name, array, spec: ArraySpec, sizes: dict[str, int], source: str) -> None:
    kinds = "iu" if spec.kind == "int" else "f"
    if array.dtype.kind not in kinds:
        expected = "an integer type" if spec.kind == "int" else "float16, float32 or float64"
        raise InputError(f"{source}: array {name} has type {array.dtype}, expected {expected}")
    for symbol, size in zip(spec.dims, array.shape, strict=False):
        if symbol == "S+1":
            sizes.setdefault("S+1", sizes["S"] + 1)
        sizes.setdefault(symbol, size)
    if array.shape != tuple(sizes.get(symbol, -1) for symbol in spec.dims):
        wanted = ", ".join(f"{symbol}={sizes.get(symbol, '?')}" for symbol in spec.dims)
        raise InputError(f"{source}: array {name} has shape {array.shape}, expected ({wanted})")


def _derive_depths(arrays: Arrays, sizes: dict[str, int], source: str) -> None:
    """D from the lookahead: T = sum(prompt_len + output_len) + S D, with D >= 1; then P."""
    sequences, tokens = sizes["S"], sizes["T"]
    for name, least in (("prompt_len", 0), ("output_len", 1)):
        bad = (arrays[name] < least) | (arrays[name] > tokens)
        fail_where(bad, arrays[name], name, source, f"at least {least}, at most {tokens}")
    if sequences == 0:
        raise InputError(f"{source}: array prompt_len is empty, expected at least one sequence")
    output = int(arrays["output_len"].sum(dtype=np.int64))
    lookahead = tokens - output - int(arrays["prompt_len"].sum(dtype=np.int64))
    if lookahead < sequences or lookahead % sequences:
        raise InputError(
            f"{source}: array tokens has {tokens} entries, {lookahead} beyond the prompts and"
            f" outputs, expected D >= 1 lookahead tokens for each of {sequences} sequences"
        )
    sizes["D"] = lookahead // sequences
    sizes["P"] = output + lookahead


def _check_extra(name: str, array: np.ndarray, sizes: dict[str, int], source: str) -> None:
    prefix = next((prefix for prefix in EXTRA_PREFIXES if name.startswith(prefix)), None)
    if prefix is None:
        raise InputError(
            f"{source}: array {name} is unknown; extra arrays are named seq_*, anchor_* or output_*"
        )
    rows = sizes[EXTRA_PREFIXES[prefix]]
    if array.ndim == 0 or len(array) != rows:
        raise InputError(
            f"{source}: array {name} has shape {array.shape}, expected"
            f" {EXTRA_PREFIXES[prefix]}={rows} rows"
        )
    refuse_not_finite(array, name, source)


def _check_layout(meta: dict[str, Any], arrays: Arrays, sizes: dict[str, int], source: str) -> None:
    lengths = arrays["prompt_len"].astype(np.int64) + arrays["output_len"] + sizes["D"]
    expected = np.concatenate([[0], np.cumsum(lengths)])
    offset = arrays["seq_offset"]
    outside = (offset < 0) | (offset > sizes["T"])
    fail_where(outside, offset, "seq_offset", source, f"in 0..{sizes['T']}")
    falling = np.concatenate([[False], np.diff(offset.astype(np.int64)) < 0])
    fail_where(falling, offset, "seq_offset", source, "at least the offset before it")
    wrong = offset != expected
    note = "prompt + output + lookahead lengths summed"
    fail_where(wrong, offset, "seq_offset", source, lambda i: f"{expected[i]} ({note})")
    refuse_tokens(arrays["tokens"], "tokens", source, sizes["V"])
    for name, names in (("domain", meta["domains"]), ("split", SPLITS)):
        outside = (arrays[name] < 0) | (arrays[name] >= len(names))
        accepted = f"in 0..{len(names) - 1} ({', '.join(names)})"
        fail_where(outside, arrays[name], name, source, accepted)


def _check_anchors(arrays: Arrays, source: str) -> None:
    """Anchors are outputs 0..L-2 of every sequence, in order."""
    counts = arrays["output_len"].astype(np.int64) - 1
    first = arrays["seq_offset"][:-1].astype(np.int64) + arrays["prompt_len"]
    start = np.concatenate([[0], np.cumsum(counts)])
    expected = np.repeat(first - start[:-1], counts) + np.arange(start[-1])
    positions = arrays["anchor_pos"]
    if len(positions) != len(expected):
        raise InputError(
            f"{source}: array anchor_pos has {len(positions)} entries, expected {len(expected)}"
            " (outputs 0..L-2 of every sequence)"
        )
    fail_where(
        positions != expected,
        positions,
        "anchor_pos",
        source,
        lambda i: f"{expected[i]} (outputs 0..L-2 of every sequence, in order)",
    )


def _check_endings(meta: dict[str, Any], arrays: Arrays, source: str) -> None:
    """Output L-1 is an end-of-sequence token or the max_new_tokens cut, and no earlier one is."""
    limit = meta["generation"]["max_new_tokens"]
    length = arrays["output_len"].astype(np.int64)
    fail_where(length > limit, length, "output_len", source, f"at most max_new_tokens {limit}")
    eos = meta["eos_token"]
    if eos is None or meta["generation"].get("ignore_eos", False):
        return
    tokens = arrays["tokens"]
    is_eos = np.isin(tokens, eos)
    early = np.zeros(len(tokens), dtype=bool)
    early[arrays["anchor_pos"]] = is_eos[arrays["anchor_pos"]]
    fail_where(early, tokens, "tokens", source, "no end-of-sequence token before the last output")
    last = arrays["seq_offset"][:-1].astype(np.int64) + arrays["prompt_len"] + length - 1
    unfinished = ~is_eos[last] & (length < limit)
    accepted = f"{limit} (max_new_tokens), as the last output is not eos_token {eos}"
    fail_where(unfinished, length, "output_len", source, accepted)
