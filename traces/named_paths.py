"""Paths that a file names: they lead to files below given folders, nowhere else."""

from __future__ import annotations

from pathlib import Path


def below(name: str, *folders: Path) -> Path | None:
    """`name`, relative to the first folder, where it leads below one of them; None otherwise.

    Links are followed before it is judged. None also for what no path can be: a NUL, half a
    surrogate pair, a name too long, links in a circle.
    """
    try:
        found = (folders[0] / name).resolve()
        inside = any(found.is_relative_to(folder.resolve()) for folder in folders)
        found.exists()  # OSError for a name that is too long
    except (OSError, ValueError, RuntimeError):
        return None
    return folders[0] / name if inside else None
