"""Validation of a whole recording, run on every read.

Order: metadata, presence and shapes, sequence layout, then the draft scores
(`traces.recordings.validate`). Every refusal is one line naming file, array and index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.recordings.meta import check_meta
from traces.recordings.recording import row_blocks
from traces.recordings.schema import (
    EXTRA_PREFIXES,
    KNOWN,
    PADDING,
    SPLITS,
    ArraySpec,
    required_arrays,
)
from traces.recordings.tree import node_depths, path_nodes

Arrays = Mapping[str, np.ndarray]

# ---------------- Vectorised checks that name the first offending array entry.


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


def refuse_not_finite(arrays: Arrays, name: str, source: str) -> None:
    """Refuse NaN, infinities and numbers that become infinite in use; integers pass."""
    array = arrays[name]
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


# ---------------- Validation of the tree encoding's structure.


def check_tree(meta: dict[str, Any], depths: int, arrays: Arrays, source: str) -> None:
    """Raise InputError at the first malformed tree; log-probabilities are finite and <= 0."""
    parent = arrays["tree_parent"]
    refuse_tokens(arrays["tree_token"], "tree_token", source, meta["vocab_size"])
    _check_parents(parent, source)
    _check_siblings(arrays, source)
    following = arrays["anchor_pos"].astype(np.int64)[:, None] + 1
    depth = node_depths(parent)
    fail_where(
        depth >= depths,
        parent,
        "tree_parent",
        source,
        f"a parent above depth {depths} (D={depths})",
    )
    _check_path(arrays, arrays["tokens"][following + np.arange(depths)], source)


def _check_parents(parent: np.ndarray, source: str) -> None:
    """Parents come before children; unused slots only at the end of a row."""
    unused = parent == PADDING
    late = ~unused & (np.maximum.accumulate(unused, axis=1))
    fail_where(late, parent, "tree_parent", source, f"{PADDING}, as an unused slot comes before it")
    index = np.arange(parent.shape[1])
    bad = (parent < PADDING) | (parent >= index)
    fail_where(
        bad,
        parent,
        "tree_parent",
        source,
        lambda i: f"an earlier node, -1 (root) or {PADDING} (unused), below {i[1]}",
    )


def _check_siblings(arrays: Arrays, source: str) -> None:
    """Siblings are distinct tokens in falling order of log-probability."""
    token, logq = arrays["tree_token"], arrays["tree_logq"]
    parent = arrays["tree_parent"].astype(np.int64)
    order = np.argsort(parent, axis=1, kind="stable")
    grouped = np.take_along_axis(parent, order, axis=1)
    siblings = (grouped[:, 1:] == grouped[:, :-1]) & (grouped[:, 1:] != PADDING)
    values = np.take_along_axis(logq, order, axis=1)
    rising = _scatter(siblings & (values[:, 1:] > values[:, :-1]), order)
    fail_where(rising, logq, "tree_logq", source, "at most that of the sibling before it")
    _check_sibling_sums(logq, parent, source)
    order = np.lexsort((token, parent), axis=1)
    grouped = np.take_along_axis(parent, order, axis=1)
    ids = np.take_along_axis(token, order, axis=1)
    same = (grouped[:, 1:] == grouped[:, :-1]) & (ids[:, 1:] == ids[:, :-1])
    twice = _scatter(same & (grouped[:, 1:] != PADDING), order)
    fail_where(twice, token, "tree_token", source, "a token no earlier sibling has")


def _check_sibling_sums(logq: np.ndarray, parent: np.ndarray, source: str) -> None:
    """Probabilities of the children of one node add up to at most 1."""
    rows, nodes = parent.shape
    start = np.arange(rows)[:, None] * (nodes + 1)  # groups of a row: the root's, each node's
    used = parent != PADDING
    group = start + np.where(used, parent, 0) + 1
    mass = np.where(used, np.exp(logq, dtype=np.float32), 0)
    total = np.bincount(group.ravel(), mass.ravel(), rows * (nodes + 1))
    most = most_mass(np.bincount(group.ravel(), used.ravel(), rows * (nodes + 1)))
    over = used & (total > most)[group]
    fail_where(
        over,
        logq,
        "tree_logq",
        source,
        lambda i: (
            f"siblings that add up to a probability of at most {most[group[i]]:.4g}, not "
            f"{total[group[i]]:.4g}"
        ),
    )


def _scatter(bad: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Flags of entries 1.. of the reordered rows, back in their own places."""
    flags = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(flags, order[:, 1:], bad, axis=1)
    return flags


def _check_path(arrays: Arrays, realised: np.ndarray, source: str) -> None:
    nodes = path_nodes(arrays["tree_token"], arrays["tree_parent"], realised)
    absent = nodes < 0
    if absent.any():
        anchor, depth = (int(i) for i in np.argwhere(absent)[0])
        raise InputError(
            f"{source}: array tree_token[{anchor}] lacks realised token {realised[anchor, depth]}"
            f" at depth index {depth}, expected the realised path among the nodes"
        )


# ---------------- Validation of draft and target scores, by encoding.


# Two recordings of one log-probability, each rounded to float16 (half a step is 2^-7 at 16..32)
# or computed by another kernel, differ by less; a row shifted by one position differs by more.
AGREEMENT = 0.1


def check_scores(meta: dict[str, Any], depths: int, arrays: Arrays, source: str) -> None:
    """Raise InputError at the first score that cannot be one; shapes are known to be right."""
    for name in ("pool_logprob", "path_logq", "tree_logq"):
        if name in arrays:
            refuse_positive(arrays[name], name, source)
    if "target_margin" in arrays:
        margin = arrays["target_margin"]
        fail_where(margin < 0, margin, "target_margin", source, "a top-2 logit margin >= 0")
    if "confidence" in arrays:
        confidence = arrays["confidence"]
        outside = (confidence < 0) | (confidence > 1)
        fail_where(outside, confidence, "confidence", source, "a probability")
    if meta["encoding"] == "pool":
        _check_pool(meta, arrays, source)
    elif meta["encoding"] == "tree":
        check_tree(meta, depths, arrays, source)


def _check_pool(meta: dict[str, Any], arrays: Arrays, source: str) -> None:
    tokens, logprob = arrays["pool_token"], arrays["pool_logprob"]
    refuse_tokens(tokens, "pool_token", source, meta["vocab_size"])
    rising = np.zeros(logprob.shape, dtype=bool)
    rising[..., 1:] = logprob[..., 1:] > logprob[..., :-1]
    accepted = "at most the entry before it (falling log-probabilities)"
    fail_where(rising, logprob, "pool_logprob", source, accepted)
    _refuse_duplicates(tokens, source)
    _check_sums(logprob, source)
    _check_path_in_pool(arrays, bool(meta.get("per_round")), source)


def _check_sums(logprob: np.ndarray, source: str) -> None:
    """Probabilities of one row are part of a law."""
    total, most = _mass(logprob), most_mass(logprob.shape[-1])
    over = np.zeros(logprob.shape, dtype=bool)
    over[..., 0] = total > most
    fail_where(
        over,
        logprob,
        "pool_logprob",
        source,
        lambda i: (
            f"a row that adds up to a probability of at most {most:.4g}, not {total[i[:2]]:.4g}"
        ),
    )


def _mass(logprob: np.ndarray) -> np.ndarray:
    """Probability of every row, (A, D) float64."""
    return np.exp(logprob, dtype=np.float32).sum(axis=-1, dtype=np.float64)


def _refuse_duplicates(tokens: np.ndarray, source: str) -> None:
    ordered = np.sort(tokens, axis=-1)
    repeated = ordered[..., 1:] == ordered[..., :-1]
    if not repeated.any():
        return
    anchor, depth = (int(i) for i in np.argwhere(repeated)[0][:2])
    row = tokens[anchor, depth]
    seen_before = np.ones(len(row), dtype=bool)
    seen_before[np.unique(row, return_index=True)[1]] = False
    bad = np.zeros(tokens.shape, dtype=bool)
    bad[anchor, depth] = seen_before
    fail_where(bad, tokens, "pool_token", source, "a token not earlier in its row")


def _check_path_in_pool(arrays: Arrays, renormalised: bool, source: str) -> None:
    """`path_logq` agrees with the pool entry of the realised token, or lies below the pool.

    renormalised: a log's candidates make up the whole law, and a token that is none of them has the
    score of the last; otherwise what lies outside is part of the same law.
    """
    depths = arrays["pool_token"].shape[1]
    following = arrays["anchor_pos"].astype(np.int64)[:, None] + 1 + np.arange(depths)
    realised = arrays["tokens"][following]  # (A, D)
    hit = arrays["pool_token"] == realised[..., None]
    in_pool = hit.any(axis=-1)
    rank = hit.argmax(axis=-1)
    path = arrays["path_logq"].astype(np.float32)
    logprob = arrays["pool_logprob"]
    entry = np.take_along_axis(logprob, rank[..., None], axis=-1)[..., 0].astype(np.float32)
    apart = in_pool & (np.abs(path - entry) > AGREEMENT)
    fail_where(
        apart,
        path,
        "path_logq",
        source,
        lambda i: f"{entry[i]:.4g}, what pool_logprob has for the realised token",
    )
    last = logprob[..., -1].astype(np.float32)
    above = ~in_pool & (path > last + AGREEMENT)
    fail_where(
        above,
        path,
        "path_logq",
        source,
        lambda i: f"at most {last[i]:.4g}, the last of the pool that lacks the realised token",
    )
    if not renormalised:
        _check_outside(logprob, path, ~in_pool, source)


def _check_outside(logprob: np.ndarray, path: np.ndarray, outside: np.ndarray, source: str) -> None:
    """The pool and a realised token outside it are parts of one law."""
    most = most_mass(logprob.shape[-1] + 1)
    total = _mass(logprob) + np.where(outside, np.exp(path - AGREEMENT, dtype=np.float64), 0)
    fail_where(
        outside & (total > most),
        path,
        "path_logq",
        source,
        lambda i: f"what its pool leaves of a probability of {most:.4g}",
    )


def validate(
    meta: dict[str, Any],
    arrays: Arrays,
    source: str,
    release: Callable[[], Any] = lambda: None,
) -> None:
    """Raise InputError at the first thing that is not a version 1 recording.

    release: called after every block of rows that was looked at.
    """
    check_meta(meta, source)
    sizes = _check_shapes(meta, arrays, source)
    _check_layout(meta, arrays, sizes, source)
    _check_anchors(arrays, source)
    _check_endings(meta, arrays, source)
    for name in arrays:
        if arrays[name].dtype.kind == "f":
            _in_blocks(arrays, (name,), partial(refuse_not_finite, name=name), source, release)
    of_anchors = [name for name in arrays if _rows_of(name) == "A"]
    _in_blocks(arrays, of_anchors, partial(check_scores, meta, sizes["D"]), source, release)


def _rows_of(name: str) -> str:
    """The dimension that an array's rows run along."""
    if name in KNOWN:
        return KNOWN[name].dims[0]
    return next((rows for prefix, rows in EXTRA_PREFIXES.items() if name.startswith(prefix)), "")


def _in_blocks(arrays: Arrays, names: Sequence[str], check, source: str, release) -> None:
    """`check` all rows of these arrays, a block at a time, with the others whole.

    One that refuses is asked again about all rows, so that it names the index in the file.
    """
    for rows in row_blocks(*(arrays[name] for name in names)):
        try:
            check({**arrays, **{name: arrays[name][rows] for name in names}}, source=source)
        except InputError:
            check(arrays, source=source)
            raise
        release()


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
