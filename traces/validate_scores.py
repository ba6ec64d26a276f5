"""Validation of draft and target scores, by encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traces.checks import (
    fail_where,
    most_mass,
    refuse_not_finite,
    refuse_positive,
    refuse_tokens,
)
from traces.validate_tree import check_tree

Arrays = Mapping[str, np.ndarray]
# Two recordings of one log-probability, each rounded to float16 (half a step is 2^-7 at 16..32)
# or computed by another kernel, differ by less; a row shifted by one position differs by more.
AGREEMENT = 0.1


def check_scores(meta: dict[str, Any], arrays: Arrays, source: str) -> None:
    """Raise InputError at the first score that cannot be one; shapes are known to be right."""
    floats = [name for name in arrays if arrays[name].dtype.kind == "f"]
    for name in floats:
        refuse_not_finite(arrays[name], name, source)
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
        check_tree(meta, arrays, source)


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
