"""All figures of some comparisons, drawn whole before any file appears."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from analysis.caption import caption
from analysis.compare import Comparison
from analysis.curves import order_curves
from analysis.look import looks
from analysis.sweeps import sweeps
from traces.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
# Nothing that changes from one drawing to the next: equal results give equal bytes.
_METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}}


def draw_figures(comparisons: Sequence[Comparison], out: Path, command: str) -> list[Path]:
    """Draw every figure as PNG and PDF with a caption beside it; returns the files.

    Throughput against load for every sweep, acceptance length against budget for every setting
    that has curves. With several settings the names carry recording and profile.

    Raises:
        InputError: ``out`` cannot be written to.
    """
    from analysis.plots import STYLE, style  # matplotlib is loaded only to draw

    drawn: dict[str, tuple[Figure, str]] = {}
    with style(STYLE):
        for name, figure, text in _drawings(comparisons, command):
            drawn[_free(name, drawn)] = figure, text
        return write_figures(drawn, out)


def _drawings(comparisons: Sequence[Comparison], command: str) -> Iterator[tuple[str, Figure, str]]:
    from analysis.plots import draw_acceptance, draw_throughput

    look = looks(label for comparison in comparisons for label in comparison.labels)
    for comparison in comparisons:
        suffix = "" if len(comparisons) == 1 else _suffix(comparison)
        for sweep in sweeps(comparison):
            text = caption(sweep.sentence, comparison, command, sweep.notes)
            yield sweep.name + suffix, draw_throughput(sweep, look), text
        curves = order_curves(comparison)
        if curves.lines:
            text = caption(curves.sentence, comparison, command, curves.notes)
            yield curves.name + suffix, draw_acceptance(curves, look), text


def _suffix(comparison: Comparison) -> str:
    names = (comparison.trace["recording"], comparison.latency["profile"])
    return "".join("." + re.sub(r"[^\w-]+", "_", PurePath(name).stem) for name in names)


def _free(name: str, taken: dict) -> str:
    """The name, numbered when two settings differ in something the name does not show."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free


def write_figures(drawn: dict[str, tuple[Figure, str]], out: Path) -> list[Path]:
    """Write figures and captions by name, all or none; InputError where ``out`` takes none."""
    try:
        return _write(drawn, out)
    except OSError as error:
        raise InputError(f"{out}: cannot write figures here ({error.strerror})") from error


def _write(drawn: dict[str, tuple[Figure, str]], out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    with _staged() as staged:
        for name, (figure, text) in drawn.items():
            for kind, metadata in _METADATA.items():
                temporary = staged.add(out / f"{name}.{kind}")
                figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata)
            staged.add(out / f"{name}.txt").write_text(text, encoding="utf-8")
    return staged.files


class _Staged:
    """Files under temporary names beside their final ones."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    def add(self, path: Path) -> Path:
        self.files.append(path)
        return self.temporary(path)

    @staticmethod
    def temporary(path: Path) -> Path:
        return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def _staged() -> Iterator[_Staged]:
    """Rename everything once all is written; on an error leave nothing behind."""
    staged = _Staged()
    try:
        yield staged
        for path in staged.files:
            os.replace(staged.temporary(path), path)
    finally:
        for path in staged.files:
            staged.temporary(path).unlink(missing_ok=True)
