"""Validation of a whole recording, run on every read.

Order: metadata, presence and shapes, sequence layout, then the draft scores. Every refusal is one
line naming file, array and index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from traces.common.errors import InputError
from traces.recordings.meta import check_meta
from traces.recordings.recording import row_blocks
from traces.recordings.schema import (
    EXTRA_PREFIXES,
    KNOWN,
    PADDING,
    SPLITS,
    required_arrays,
    rows_of,
)
from traces.recordings.tree import node_depths, path_nodes

ROUNDING = 2.0**-8  # of a bfloat16, relative and at most; of a float16 it is 2^-11
LARGEST = 1e30  # of a score or weight: products of two, summed over a row, stay finite
# Two recordings of one log-probability, each rounded to float16 (half a step is 2^-7 at 16..32)
# or computed by another kernel, differ by less; a row shifted by one position differs by more.
AGREEMENT = 0.1


@dataclass(frozen=True, slots=True)
class _Arrays:
    """Arrays by name, and refusals that name the first entry at fault."""

    held: Mapping[str, np.ndarray]
    source: str

    def __getitem__(self, name: str) -> np.ndarray:
        return self.held[name]

    def wide(self, name: str) -> np.ndarray:
        """The array as int64, for sums and differences."""
        return self.held[name].astype(np.int64)

    def refuse(self, text: str) -> NoReturn:
        """Raise InputError about an array: its name, what it is, what is expected."""
        raise InputError(f"{self.source}: array {text}")

    def refuse_where(
        self, bad: np.ndarray, name: str, accepted: str | Callable[[tuple[int, ...]], str]
    ) -> None:
        """InputError for the first entry of the array where `bad` (same shape) is true.

        accepted: perhaps by index.
        """
        if bad.any():
            index = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
            wanted = accepted(index) if callable(accepted) else accepted
            shown = ", ".join(map(str, index))
            self.refuse(f"{name}[{shown}] is {self.held[name][index]}, expected {wanted}")

    def check_tokens(self, name: str, vocab_size: int) -> None:
        """Token ids are in 0..vocab_size - 1."""
        array = self.held[name]
        if array.size and (int(array.max()) >= vocab_size or int(array.min()) < 0):
            bad = (array < 0) | (array >= vocab_size)
            self.refuse_where(bad, name, f"a token in 0..{vocab_size - 1}")


def validate(
    meta: dict[str, Any],
    arrays: Mapping[str, np.ndarray],
    source: str,
    release: Callable[[], Any] = lambda: None,
) -> None:
    """Raise InputError at the first thing that is not a version 1 recording.

    release: called after every block of rows that was looked at.
    """
    check_meta(meta, source)
    whole = _Arrays(arrays, source)
    sizes = _check_shapes(meta, whole)
    _check_layout(meta, whole, sizes)
    _check_anchors(whole)
    _check_endings(meta, whole)
    for name in arrays:
        if arrays[name].dtype.kind == "f":
            _in_blocks(whole, (name,), partial(_check_finite, name=name), release)
    of_anchors = [name for name in arrays if rows_of(name) == "A"]
    _in_blocks(whole, of_anchors, partial(_check_scores, meta=meta, depths=sizes["D"]), release)


def _in_blocks(whole: _Arrays, names: Sequence[str], check, release) -> None:
    """`check` all rows of these arrays, a block at a time, with the others whole.

    One that refuses is asked again about all rows, so that it names the index in the file.
    """
    for rows in row_blocks(*(whole[name] for name in names)):
        try:
            block = {name: whole[name][rows] for name in names}
            check(_Arrays({**whole.held, **block}, whole.source))
        except InputError:
            check(whole)
            raise
        release()


# ---------------- Presence, types and shapes, and the layout of sequences.


def _check_shapes(meta: dict[str, Any], arrays: _Arrays) -> dict[str, int]:
    """Presence, dtype and shape of every array; returns the size of every dimension symbol."""
    for name in required_arrays(meta):
        if name not in arrays.held:
            arrays.refuse(
                f"{name} is missing, required with encoding {meta['encoding']},"
                f" temperature {meta['temperature']}"
            )
    sizes = {"V": meta["vocab_size"], "1": 1}
    for name in KNOWN:
        if name in arrays.held:
            _check_shape(name, arrays, sizes)
        if name == "anchor_pos":  # the common arrays come first and fix D and P
            _derive_depths(arrays, sizes)
    if meta["shared_head"] and "e" in sizes and sizes["e"] != sizes["d"]:
        arrays.refuse(
            f"target_hidden has hidden size {sizes['e']}, the shared head has {sizes['d']}"
        )
    for name, array in arrays.held.items():
        rows = rows_of(name)
        if not rows:
            listed = "*, ".join(EXTRA_PREFIXES)
            arrays.refuse(f"{name} is unknown; extra arrays are named {listed}*")
        if name not in KNOWN and (array.ndim == 0 or len(array) != sizes[rows]):
            arrays.refuse(f"{name} has shape {array.shape}, expected {rows}={sizes[rows]} rows")
    return sizes


def _check_shape(name: str, arrays: _Arrays, sizes: dict[str, int]) -> None:
    """The type and shape of a known array; adds the sizes of dimensions that it is first with."""
    array, spec = arrays[name], KNOWN[name]
    if array.dtype.kind not in ("iu" if spec.kind == "int" else "f"):
        expected = "an integer type" if spec.kind == "int" else "float16, float32 or float64"
        arrays.refuse(f"{name} has type {array.dtype}, expected {expected}")
    for symbol, size in zip(spec.dims, array.shape, strict=False):
        sizes.setdefault(symbol, sizes["S"] + 1 if symbol == "S+1" else size)
    if array.shape != tuple(sizes.get(symbol, -1) for symbol in spec.dims):
        wanted = ", ".join(f"{symbol}={sizes.get(symbol, '?')}" for symbol in spec.dims)
        arrays.refuse(f"{name} has shape {array.shape}, expected ({wanted})")


def _derive_depths(arrays: _Arrays, sizes: dict[str, int]) -> None:
    """D from the lookahead: T = sum(prompt_len + output_len) + S D, with D >= 1; then P."""
    sequences, tokens = sizes["S"], sizes["T"]
    for name, least in (("prompt_len", 0), ("output_len", 1)):
        bad = (arrays[name] < least) | (arrays[name] > tokens)
        arrays.refuse_where(bad, name, f"at least {least}, at most {tokens}")
    if sequences == 0:
        arrays.refuse("prompt_len is empty, expected at least one sequence")
    output = int(arrays.wide("output_len").sum())
    lookahead = tokens - output - int(arrays.wide("prompt_len").sum())
    if lookahead < sequences or lookahead % sequences:
        arrays.refuse(
            f"tokens has {tokens} entries, {lookahead} beyond the prompts and outputs, expected"
            f" D >= 1 lookahead tokens for each of {sequences} sequences"
        )
    sizes["D"] = lookahead // sequences
    sizes["P"] = output + lookahead


def _check_layout(meta: dict[str, Any], arrays: _Arrays, sizes: dict[str, int]) -> None:
    lengths = arrays.wide("prompt_len") + arrays["output_len"] + sizes["D"]
    expected = np.concatenate([[0], np.cumsum(lengths)])
    offset = arrays["seq_offset"]
    outside = (offset < 0) | (offset > sizes["T"])
    arrays.refuse_where(outside, "seq_offset", f"in 0..{sizes['T']}")
    falling = np.concatenate([[False], np.diff(arrays.wide("seq_offset")) < 0])
    arrays.refuse_where(falling, "seq_offset", "at least the offset before it")
    note = "prompt + output + lookahead lengths summed"
    arrays.refuse_where(offset != expected, "seq_offset", lambda i: f"{expected[i]} ({note})")
    arrays.check_tokens("tokens", sizes["V"])
    for name, names in (("domain", meta["domains"]), ("split", SPLITS)):
        outside = (arrays[name] < 0) | (arrays[name] >= len(names))
        arrays.refuse_where(outside, name, f"in 0..{len(names) - 1} ({', '.join(names)})")


def _check_anchors(arrays: _Arrays) -> None:
    """Anchors are outputs 0..L-2 of every sequence, in order."""
    counts = arrays.wide("output_len") - 1
    first = arrays.wide("seq_offset")[:-1] + arrays["prompt_len"]
    start = np.concatenate([[0], np.cumsum(counts)])
    expected = np.repeat(first - start[:-1], counts) + np.arange(start[-1])
    positions, which = arrays["anchor_pos"], "outputs 0..L-2 of every sequence"
    if len(positions) != len(expected):
        arrays.refuse(
            f"anchor_pos has {len(positions)} entries, expected {len(expected)} ({which})"
        )
    arrays.refuse_where(
        positions != expected, "anchor_pos", lambda i: f"{expected[i]} ({which}, in order)"
    )


def _check_endings(meta: dict[str, Any], arrays: _Arrays) -> None:
    """Output L-1 is an end-of-sequence token or the max_new_tokens cut, and no earlier one is."""
    limit = meta["generation"]["max_new_tokens"]
    length, tokens, eos = arrays.wide("output_len"), arrays["tokens"], meta["eos_token"]
    arrays.refuse_where(length > limit, "output_len", f"at most max_new_tokens {limit}")
    if eos is None or meta["generation"].get("ignore_eos", False):
        return
    is_eos = np.isin(tokens, eos)
    early = np.zeros(len(tokens), dtype=bool)
    early[arrays["anchor_pos"]] = is_eos[arrays["anchor_pos"]]
    arrays.refuse_where(early, "tokens", "no end-of-sequence token before the last output")
    last = arrays.wide("seq_offset")[:-1] + arrays["prompt_len"] + length - 1
    unfinished = ~is_eos[last] & (length < limit)
    accepted = f"{limit} (max_new_tokens), as the last output is not eos_token {eos}"
    arrays.refuse_where(unfinished, "output_len", accepted)


# ---------------- Draft and target scores.


def _check_finite(arrays: _Arrays, name: str) -> None:
    """No NaN, infinities or numbers that become infinite in use."""
    array = arrays[name]
    bad = ~np.isfinite(array)
    if array.dtype.itemsize > 2:  # no float16 is larger
        bad |= np.abs(array) > LARGEST
    arrays.refuse_where(bad, name, f"a finite number of at most {LARGEST:g} in size")


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


def _check_scores(arrays: _Arrays, meta: dict[str, Any], depths: int) -> None:
    """Scores of anchors can be ones; shapes are known to be right."""
    for name in ("pool_logprob", "path_logq", "tree_logq"):
        if name in arrays.held and arrays[name].size and arrays[name].max() > 0:
            arrays.refuse_where(arrays[name] > 0, name, "a log-probability <= 0")
    if "target_margin" in arrays.held:
        bad = arrays["target_margin"] < 0
        arrays.refuse_where(bad, "target_margin", "a top-2 logit margin >= 0")
    if "confidence" in arrays.held:
        outside = (arrays["confidence"] < 0) | (arrays["confidence"] > 1)
        arrays.refuse_where(outside, "confidence", "a probability")
    if meta["encoding"] == "pool":
        _check_pool(arrays, meta["vocab_size"], bool(meta.get("per_round")))
    elif meta["encoding"] == "tree":
        _check_tree(arrays, meta["vocab_size"], depths)


def _realised(arrays: _Arrays, depths: int) -> np.ndarray:
    """(A, D) the tokens that follow every anchor."""
    return arrays["tokens"][arrays.wide("anchor_pos")[:, None] + 1 + np.arange(depths)]


def _check_pool(arrays: _Arrays, vocab_size: int, per_round: bool) -> None:
    logprob = arrays["pool_logprob"]
    arrays.check_tokens("pool_token", vocab_size)
    rising = np.zeros(logprob.shape, dtype=bool)
    rising[..., 1:] = logprob[..., 1:] > logprob[..., :-1]
    accepted = "at most the entry before it (falling log-probabilities)"
    arrays.refuse_where(rising, "pool_logprob", accepted)
    _refuse_duplicates(arrays)
    _check_sums(arrays)
    _check_path_in_pool(arrays, per_round)


def _refuse_duplicates(arrays: _Arrays) -> None:
    tokens = arrays["pool_token"]
    ordered = np.sort(tokens, axis=-1)
    repeated = ordered[..., 1:] == ordered[..., :-1]
    if repeated.any():
        anchor, depth = (int(i) for i in np.argwhere(repeated)[0][:2])
        bad = np.zeros(tokens.shape, dtype=bool)
        bad[anchor, depth] = True
        bad[anchor, depth, np.unique(tokens[anchor, depth], return_index=True)[1]] = False
        arrays.refuse_where(bad, "pool_token", "a token not earlier in its row")


def _check_sums(arrays: _Arrays) -> None:
    """Probabilities of one row are part of a law."""
    logprob = arrays["pool_logprob"]
    total, most = _mass(logprob), most_mass(logprob.shape[-1])
    over = np.zeros(logprob.shape, dtype=bool)
    over[..., 0] = total > most
    arrays.refuse_where(
        over,
        "pool_logprob",
        lambda i: (
            f"a row that adds up to a probability of at most {most:.4g}, not {total[i[:2]]:.4g}"
        ),
    )


def _mass(logprob: np.ndarray) -> np.ndarray:
    """Probability of every row, (A, D) float64."""
    return np.exp(logprob, dtype=np.float32).sum(axis=-1, dtype=np.float64)


def _check_path_in_pool(arrays: _Arrays, renormalised: bool) -> None:
    """`path_logq` agrees with the pool entry of the realised token, or lies below the pool.

    renormalised: a log's candidates make up the whole law, and a token that is none of them has the
    score of the last; otherwise what lies outside is part of the same law.
    """
    logprob, path = arrays["pool_logprob"], arrays["path_logq"].astype(np.float32)
    realised = _realised(arrays, logprob.shape[1])
    hit = arrays["pool_token"] == realised[..., None]
    in_pool, rank = hit.any(axis=-1), hit.argmax(axis=-1)
    entry = np.take_along_axis(logprob, rank[..., None], axis=-1)[..., 0].astype(np.float32)
    arrays.refuse_where(
        in_pool & (np.abs(path - entry) > AGREEMENT),
        "path_logq",
        lambda i: f"{entry[i]:.4g}, what pool_logprob has for the realised token",
    )
    last = logprob[..., -1].astype(np.float32)
    arrays.refuse_where(
        ~in_pool & (path > last + AGREEMENT),
        "path_logq",
        lambda i: f"at most {last[i]:.4g}, the last of the pool that lacks the realised token",
    )
    if not renormalised:  # the pool and a realised token outside it are parts of one law
        most = most_mass(logprob.shape[-1] + 1)
        total = _mass(logprob) + np.where(in_pool, 0, np.exp(path - AGREEMENT, dtype=np.float64))
        accepted = f"what its pool leaves of a probability of {most:.4g}"
        arrays.refuse_where(~in_pool & (total > most), "path_logq", accepted)


# ---------------- The tree encoding's structure.


def _check_tree(arrays: _Arrays, vocab_size: int, depths: int) -> None:
    """Log-probabilities are finite and <= 0."""
    parent = arrays["tree_parent"]
    arrays.check_tokens("tree_token", vocab_size)
    unused = parent == PADDING
    late = ~unused & np.maximum.accumulate(unused, axis=1)
    arrays.refuse_where(late, "tree_parent", f"{PADDING}, as an unused slot comes before it")
    arrays.refuse_where(
        (parent < PADDING) | (parent >= np.arange(parent.shape[1])),
        "tree_parent",
        lambda i: f"an earlier node, -1 (root) or {PADDING} (unused), below {i[1]}",
    )
    _check_siblings(arrays)
    too_deep = node_depths(parent) >= depths
    arrays.refuse_where(too_deep, "tree_parent", f"a parent above depth {depths} (D={depths})")
    realised = _realised(arrays, depths)
    absent = np.argwhere(path_nodes(arrays["tree_token"], parent, realised) < 0)
    if len(absent):
        anchor, depth = (int(i) for i in absent[0])
        arrays.refuse(
            f"tree_token[{anchor}] lacks realised token {realised[anchor, depth]} at depth index"
            f" {depth}, expected the realised path among the nodes"
        )


def _check_siblings(arrays: _Arrays) -> None:
    """Siblings are distinct tokens in falling order of log-probability, and parts of one law."""
    token, logq, parent = arrays["tree_token"], arrays["tree_logq"], arrays.wide("tree_parent")
    order = np.argsort(parent, axis=1, kind="stable")
    values = np.take_along_axis(logq, order, axis=1)
    rising = _of_siblings(values[:, 1:] > values[:, :-1], parent, order)
    arrays.refuse_where(rising, "tree_logq", "at most that of the sibling before it")
    rows, nodes = parent.shape
    start = np.arange(rows)[:, None] * (nodes + 1)  # groups of a row: the root's, each node's
    used = parent != PADDING
    group = start + np.where(used, parent, 0) + 1
    mass = np.where(used, np.exp(logq, dtype=np.float32), 0)
    total = np.bincount(group.ravel(), mass.ravel(), rows * (nodes + 1))
    most = most_mass(np.bincount(group.ravel(), used.ravel(), rows * (nodes + 1)))
    arrays.refuse_where(
        used & (total > most)[group],
        "tree_logq",
        lambda i: (
            f"siblings that add up to a probability of at most {most[group[i]]:.4g}, not "
            f"{total[group[i]]:.4g}"
        ),
    )
    order = np.lexsort((token, parent), axis=1)
    ids = np.take_along_axis(token, order, axis=1)
    twice = _of_siblings(ids[:, 1:] == ids[:, :-1], parent, order)
    arrays.refuse_where(twice, "tree_token", "a token no earlier sibling has")


def _of_siblings(bad: np.ndarray, parent: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Flags of entries 1.. of the reordered rows that are siblings of those before them.

    They are given back in their own places.
    """
    grouped = np.take_along_axis(parent, order, axis=1)
    siblings = (grouped[:, 1:] == grouped[:, :-1]) & (grouped[:, 1:] != PADDING)
    flags = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(flags, order[:, 1:], bad & siblings, axis=1)
    return flags
