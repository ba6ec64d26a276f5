"""Shard manifests: several files of one (target, drafter, temperature), read as one recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.common.files import below
from traces.common.json import loads
from traces.recordings.recording import Recording
from traces.recordings.schema import MANIFEST_FORMAT, SHARED_ARRAYS, VERSION, narrowed

# What makes shards one recording; every other key is taken from the first shard.
_AGREE = (
    *("pair", "temperature", "encoding", "target", "drafter", "block_semantics", "vocab_size"),
    *("eos_token", "banned_tokens", "shared_head", "dtype", "generation"),
)


def shard_paths(path: Path) -> list[Path]:
    """Files named by the manifest at `path`, relative to its folder; InputError if malformed."""
    try:
        manifest = loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{path}: no such file") from None
    except ValueError as error:
        raise InputError(f"{path}: manifest is not JSON: {error}") from None
    manifest = manifest if isinstance(manifest, dict) else {}
    if manifest.get("format") != MANIFEST_FORMAT:
        raise InputError(
            f"{path}: format is {manifest.get('format')!r:.60}, expected {MANIFEST_FORMAT!r}"
        )
    if manifest.get("version") != VERSION:
        raise InputError(f"{path}: version is {manifest.get('version')!r:.60}, expected {VERSION}")
    shards = manifest.get("shards")
    if not isinstance(shards, list) or not shards:
        raise InputError(f"{path}: shards is {shards!r:.60}, expected a list of file names")
    found = [_shard(name, path) for name in shards]
    if len({shard.resolve() for shard in found}) < len(found):
        raise InputError(f"{path}: shards names a file twice")
    return found


def _shard(name: Any, path: Path) -> Path:
    """The file of one entry; links out of the manifest's folder are refused like other paths."""
    named = isinstance(name, str) and name.endswith(".safetensors")
    plain = named and not Path(name).is_absolute() and ".." not in Path(name).parts
    found = below(name, path.parent) if plain else None
    if found is None:
        shown = ascii(name)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise InputError(f"{path}: shard {shown}, expected a .safetensors file below the manifest")
    return found


def concatenate(shards: Sequence[Recording], source: str) -> Recording:
    """One recording of all sequences of `shards`, in order, domains joined by name.

    Every shard is valid already. Raises InputError when shards are not of one kind.
    """
    first = shards[0]
    for shard in shards[1:]:
        _check_agree(first, shard)
    domains = list(dict.fromkeys(name for shard in shards for name in shard.domains))
    if len(domains) > 256:
        raise InputError(f"{source}: {len(domains)} domains in all shards, expected at most 256")
    meta = {**first.meta, "domains": domains}
    arrays = {}
    for name in first.arrays:
        joined = first[name] if name in SHARED_ARRAYS else _join(name, shards, domains)
        arrays[name] = narrowed(name, joined, first.vocab_size)
    return Recording(meta, arrays, source)


def _join(name: str, shards: Sequence[Recording], domains: list[str]) -> np.ndarray:
    parts = [shard[name] for shard in shards]
    if name == "domain":
        renumber = [np.array([domains.index(d) for d in shard.domains]) for shard in shards]
        parts = [index[part] for index, part in zip(renumber, parts, strict=True)]
    if name in ("seq_offset", "anchor_pos"):
        shift = np.cumsum([0] + [len(shard["tokens"]) for shard in shards])
        parts = [part + start for part, start in zip(parts, shift, strict=False)]
    if name == "seq_offset":  # each shard's first offset is the end of the one before
        parts = [parts[0]] + [part[1:] for part in parts[1:]]
    return np.concatenate(parts)


def _check_agree(first: Recording, other: Recording) -> None:
    keys = (*_AGREE, "seed") if first.temperature > 0 else _AGREE  # above 0 seeds key the draws
    for key in keys:
        if first.meta[key] != other.meta[key]:
            raise InputError(
                f"{other.source}: metadata {key} is {other.meta[key]!r}, but {first.source} has"
                f" {first.meta[key]!r}; shards of one manifest must agree"
            )
    differ = sorted(set(first.arrays) ^ set(other.arrays))
    if differ:
        raise InputError(f"{other.source}: array {differ[0]} is not in every shard of the manifest")
    if first.depths != other.depths:
        raise InputError(
            f"{other.source}: {other.depths} depths, but {first.source} {first.depths}"
        )
    for name in first.arrays:
        _check_rows(name, first, other)


def _check_rows(name: str, first: Recording, other: Recording) -> None:
    mine, theirs = first[name], other[name]
    same = mine.shape[1:] == theirs.shape[1:] and mine.dtype == theirs.dtype
    if name in SHARED_ARRAYS:
        same = same and np.array_equal(mine, theirs)
    if not same:
        raise InputError(f"{other.source}: array {name} does not match that of {first.source}")
