"""Shard manifests: several files of one (target, drafter, temperature), read as one recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from traces.common.errors import InputError
from traces.common.files import below
from traces.common.json import loads
from traces.common.settings import Section, key, read, whole
from traces.recordings.recording import Recording
from traces.recordings.schema import MANIFEST_FORMAT, SHARED_ARRAYS, VERSION, narrowed

# What makes shards one recording; every other key is taken from the first shard.
_AGREE = (
    *("pair", "temperature", "encoding", "target", "drafter", "block_semantics", "vocab_size"),
    *("eos_token", "banned_tokens", "shared_head", "dtype", "generation"),
)


class _Manifest(Section):
    model_config = ConfigDict(extra="ignore")

    format: Literal[MANIFEST_FORMAT]
    version: whole(VERSION, VERSION) = key(accepted=str(VERSION))
    shards: Annotated[list[Any], Field(min_length=1)] = key(accepted="a list of file names")


def shard_paths(path: Path) -> list[Path]:
    """Files named by the manifest at `path`, relative to its folder; InputError if malformed.

    Links out of the folder are refused like other paths.
    """
    try:
        manifest = loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{path}: no such file") from None
    except ValueError as error:
        raise InputError(f"{path}: manifest is not JSON: {error}") from None
    shards = []
    for name in read(_Manifest, manifest, where=str(path)).shards:
        named = isinstance(name, str) and name.endswith(".safetensors")
        plain = named and not Path(name).is_absolute() and ".." not in Path(name).parts
        found = below(name, path.parent) if plain else None
        if found is None:
            raise InputError(
                f"{path}: shard {name!a:.60}, expected a .safetensors file below the manifest"
            )
        shards.append(found)
    if len({shard.resolve() for shard in shards}) < len(shards):
        raise InputError(f"{path}: shards names a file twice")
    return shards


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
    for name in keys:
        if first.meta[name] != other.meta[name]:
            raise InputError(
                f"{other.source}: metadata {name} is {other.meta[name]!r}, but {first.source} has"
                f" {first.meta[name]!r}; shards of one manifest must agree"
            )
    differ = sorted(set(first.arrays) ^ set(other.arrays))
    if differ:
        raise InputError(f"{other.source}: array {differ[0]} is not in every shard of the manifest")
    if first.depths != other.depths:
        raise InputError(
            f"{other.source}: {other.depths} depths, but {first.source} {first.depths}"
        )
    for name in first.arrays:
        mine, theirs = first[name], other[name]
        same = mine.shape[1:] == theirs.shape[1:] and mine.dtype == theirs.dtype
        if not same or (name in SHARED_ARRAYS and not np.array_equal(mine, theirs)):
            raise InputError(f"{other.source}: array {name} does not match that of {first.source}")
