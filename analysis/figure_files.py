"""Figures as files: all of them appear, or none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.look import DPI
from traces.common.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Nothing that changes from one drawing to the next: equal results give equal bytes.
METADATA = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None, "Creator": None},
}
KINDS = ("png", "pdf", "svg")  # of every figure, whatever command draws it


def write_figures(drawn: Mapping[str, tuple[Figure, str]], out: Path) -> list[Path]:
    """Write figures and captions by name, all or none; InputError where ``out`` takes none."""
    try:
        return _write(drawn, out)
    except OSError as error:
        raise InputError(f"{out}: cannot write figures here ({error.strerror})") from error


def written(paths: Sequence[Path]) -> Iterator[str]:
    """Files in words, those that differ in their ending alone together."""
    for stem, files in groupby(paths, key=lambda path: path.with_suffix("")):
        endings = [path.suffix[1:] for path in files]
        yield f"{stem}.{endings[0] if len(endings) == 1 else '{' + ','.join(endings) + '}'}"


def _write(drawn: Mapping[str, tuple[Figure, str]], out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    with staged() as files:
        for name, (figure, text) in drawn.items():
            for kind in KINDS:
                temporary = files.add(out / f"{name}.{kind}")
                figure.savefig(temporary, format=kind, dpi=DPI, metadata=METADATA[kind])
            files.add(out / f"{name}.txt").write_text(text, encoding="utf-8")
    return files.paths


class _Staged:
    """Files under temporary names beside their final ones."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def add(self, path: Path) -> Path:
        self.paths.append(path)
        return self.temporary(path)

    @staticmethod
    def temporary(path: Path) -> Path:
        return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def staged() -> Iterator[_Staged]:
    """Rename everything once all is written; on an error leave nothing behind."""
    files = _Staged()
    try:
        yield files
        for path in files.paths:
            os.replace(files.temporary(path), path)
    finally:
        for path in files.paths:
            files.temporary(path).unlink(missing_ok=True)
