"""Recordings by name: those shipped in `traces/data`, or any path."""

from __future__ import annotations

import os
from pathlib import Path

from traces.common.errors import InputError, near
from traces.common.json import loads
from traces.recordings.files import read_recording
from traces.recordings.recording import Recording
from traces.recordings.schema import MANIFEST_FORMAT

DATA = Path(__file__).parents[1] / "data"


def known_recordings(folder: Path = DATA) -> dict[str, Path]:
    """Name to path of every shipped recording, by name.

    A manifest goes before a file of the same name, and stands for its shards.
    """
    manifests = {path: _shards(path) for path in folder.glob("*.json")}
    parts = {folder / name for names in manifests.values() for name in names or ()}
    found = {path.stem: path for path in folder.glob("*.safetensors") if path not in parts}
    found |= {path.stem: path for path, names in manifests.items() if names is not None}
    return dict(sorted(found.items()))


def _shards(path: Path) -> list[str] | None:
    """Shard names of a manifest, None for any other file; `read_recording` checks the rest."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if MANIFEST_FORMAT not in text:
        return None
    try:
        shards = loads(text)["shards"]
        return [name for name in shards if isinstance(name, str)]
    except (ValueError, KeyError, TypeError):
        return []


def recording_path(name_or_path: str | os.PathLike, folder: Path = DATA) -> Path:
    """The file behind a shipped name or a path; InputError listing the known names, near first."""
    known = known_recordings(folder)
    text = os.fspath(name_or_path)
    if text in known:
        return known[text]
    if Path(text).is_file():
        return Path(text)
    names = ", ".join(dict.fromkeys((*near(text, known), *known))) or "none are shipped"
    raise InputError(f"{text}: no such recording, expected a file or one of: {names}")


def find_recording(name_or_path: str | os.PathLike) -> Recording:
    """The validated recording of that name in `traces/data`, or at that path."""
    return read_recording(recording_path(name_or_path))
