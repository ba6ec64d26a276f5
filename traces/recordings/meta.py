"""Checks of a recording's metadata: every key the format names, unknown keys left alone."""

from __future__ import annotations

import math
from typing import Any

from traces.common.errors import InputError
from traces.common.json import loads
from traces.recordings.schema import (
    BLOCK_SEMANTICS,
    DRAFTER_KINDS,
    ENCODINGS,
    FORMAT,
    SPLITS,
    VERSION,
)

MOST_TOKENS = 2**31  # of a vocabulary: ids are stored as int32


def parse_meta(text: str, source: str) -> dict[str, Any]:
    """Metadata from the JSON string of a file header, not yet checked."""
    try:
        meta = loads(text)
    except ValueError as error:
        raise InputError(f"{source}: metadata is not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise InputError(f"{source}: metadata is a JSON {type(meta).__name__}, expected an object")
    return meta


def check_meta(meta: dict[str, Any], source: str) -> None:
    """Raise InputError naming the first metadata key that is missing or has a bad value."""
    _require(meta, "format", source, lambda v: v == FORMAT, repr(FORMAT))
    _require(meta, "version", source, lambda v: _is_int(v) and v == VERSION, f"{VERSION}")
    _require_choice(meta, "encoding", source, ENCODINGS)
    _require_choice(meta, "block_semantics", source, BLOCK_SEMANTICS)
    for key in ("dtype", "recorder_version", "text_license", "pair"):
        _require(meta, key, source, _is_text, "a non-empty string")
    _require(meta, "shared_head", source, lambda v: isinstance(v, bool), "true or false")
    _require(meta, "seed", source, lambda v: _is_int(v) and v >= 0, "an integer >= 0")
    _require(meta, "temperature", source, _is_temperature, "a finite number >= 0")
    _require(meta, "domains", source, _is_names, "a list of 1 to 256 distinct names")
    _require(meta, "generation", source, lambda v: isinstance(v, dict), "an object")
    if "splits" in meta:  # the order in which `split` indexes them is the format's
        _require(meta, "splits", source, lambda v: v == list(SPLITS), f"{list(SPLITS)}")
    _check_models(meta, source)
    _check_tokens(meta, source)
    _check_generation(meta["generation"], source)
    _check_encoding_fits(meta, source)


def _check_models(meta: dict[str, Any], source: str) -> None:
    for model in ("target", "drafter"):
        _require(meta, model, source, lambda v: isinstance(v, dict), "an object")
        for key in ("name", "sha256"):
            _require(meta[model], key, source, _is_text, "a non-empty string", f"{model}.")
    _require_choice(meta["drafter"], "kind", source, DRAFTER_KINDS, "drafter.")


def _check_tokens(meta: dict[str, Any], source: str) -> None:
    _require(
        meta,
        "vocab_size",
        source,
        lambda v: _is_int(v) and 2 <= v <= MOST_TOKENS,
        f"an integer from 2 to {MOST_TOKENS}",
    )
    vocab = meta["vocab_size"]

    def is_token(value: Any) -> bool:
        return _is_int(value) and 0 <= value < vocab

    def is_tokens(value: Any) -> bool:
        return isinstance(value, list) and all(is_token(v) for v in value)

    inside = f"in 0..{vocab - 1}"
    _require(
        meta,
        "eos_token",
        source,
        lambda v: v is None or is_token(v) or is_tokens(v),
        f"a token {inside}, a list of them, or null",
    )
    _require(meta, "banned_tokens", source, is_tokens, f"a list of tokens {inside}")


def _check_generation(generation: dict[str, Any], source: str) -> None:
    _require(
        generation,
        "max_new_tokens",
        source,
        lambda v: _is_int(v) and v >= 1,
        "an integer >= 1",
        "generation.",
    )


def _check_encoding_fits(meta: dict[str, Any], source: str) -> None:
    """What an encoding cannot express: a pool row has no parent, a tree no full head."""
    encoding, kind = meta["encoding"], meta["drafter"]["kind"]
    if encoding == "pool" and kind != "block":
        raise InputError(
            f"{source}: metadata drafter.kind is {kind!r}, encoding pool accepts 'block' only"
        )
    if meta["shared_head"] and encoding != "hidden":
        raise InputError(
            f"{source}: metadata shared_head is true, but encoding {encoding} carries no head"
        )


def _require(mapping, key, source, accepts, expected, prefix="") -> None:
    if key not in mapping:
        raise InputError(f"{source}: metadata {prefix}{key} is missing, expected {expected}")
    if not accepts(mapping[key]):
        shown = repr(mapping[key])
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise InputError(f"{source}: metadata {prefix}{key} is {shown}, expected {expected}")


def _require_choice(mapping, key, source, choices, prefix="") -> None:
    expected = "one of " + ", ".join(choices)
    _require(mapping, key, source, lambda v: isinstance(v, str) and v in choices, expected, prefix)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    """Whether a value is a text that can be printed in one line."""
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _is_temperature(value: Any) -> bool:
    return (_is_int(value) or isinstance(value, float)) and math.isfinite(value) and value >= 0


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= 256
        and all(_is_text(v) for v in value)
        and len(set(value)) == len(value)
    )
