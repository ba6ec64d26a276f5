"""Recordings by name: those shipped in `traces/data`, or any path."""

from __future__ import annotations

import os
from pathlib import Path

from traces.errors import InputError
from traces.io import read_recording
from traces.recording import Recording
from traces.schema import MANIFEST_FORMAT

DATA = Path(__file__).parent / "data"


def known_recordings(folder: Path = DATA) -> dict[str, Path]:
    """Name to path of every shipped recording, by name.

    A manifest goes before a file of the same name; shards in folders below are not listed.
    """
    found = {path.stem: path for path in folder.glob("*.safetensors")}
    found |= {path.stem: path for path in folder.glob("*.json") if _is_manifest(path)}
    return dict(sorted(found.items()))


def _is_manifest(path: Path) -> bool:
    return MANIFEST_FORMAT in path.read_text(encoding="utf-8", errors="replace")


def recording_path(name_or_path: str | os.PathLike, folder: Path = DATA) -> Path:
    """The file behind a shipped name or a path; InputError listing the known names."""
    known = known_recordings(folder)
    text = os.fspath(name_or_path)
    if text in known:
        return known[text]
    if Path(text).is_file():
        return Path(text)
    names = ", ".join(known) or "none are shipped"
    raise InputError(f"{text}: no such recording, expected a file or one of: {names}")


def find_recording(name_or_path: str | os.PathLike) -> Recording:
    """The validated recording of that name in `traces/data`, or at that path."""
    return read_recording(recording_path(name_or_path))
