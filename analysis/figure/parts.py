"""What the files of this folder hand back, and what they share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING
from zlib import crc32

from analysis.compare import Block, Comparison, Load
from analysis.look import Look
from analysis.notes import Note, notes
from analysis.sweeps import WHAT_IF

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOT_DRAWN = ("TTFT", "TPOT", "speedup")  # notes on columns of tables
_LONGEST = 60  # characters of what sets a setting apart, in names of files


class Missing(Exception):
    """The given files lack what a figure shows; the message says what."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure and its caption."""

    name: str  # of its files, without the ending
    figure: Figure = field(repr=False)
    sentence: str  # what it shows
    remarks: tuple[str, ...]  # how to read its marks
    facts: tuple[Note, ...]  # what it rests on
    comparison: Comparison | None = field(default=None, repr=False)  # whose setting it shows

    def caption(self, command: str) -> str:
        """The text beside it."""
        facts = [f"{heading}: {text}" for heading, text in self.facts]
        return "\n".join([self.sentence, *self.remarks, "", *facts, f"command: {command}", ""])


@dataclass(frozen=True, slots=True)
class Setting:
    """One comparison to be drawn, with the looks of everything that is drawn beside it."""

    comparison: Comparison
    look: Mapping[str, Look]
    suffix: str = ""  # of names, where there are several settings

    def drawing(
        self, name: str, figure: Figure, sentence: str, remarks: Sequence[str] = ()
    ) -> Drawing:
        facts = tuple(note for note in notes(self.comparison) if note[0] not in _NOT_DRAWN)
        named = name + self.suffix
        return Drawing(named, figure, sentence, tuple(remarks), facts, self.comparison)

    @property
    def remarks(self) -> list[str]:
        """What must stand in a figure itself, short."""
        what_if = self.comparison.runs[0].data["what_if"]
        return [WHAT_IF] if what_if else []

    def by_load(self) -> Iterator[tuple[str, Block]]:
        """Every load with what tells its figure's name from the others'."""
        blocks = self.comparison.blocks
        for block in blocks:
            yield "" if len(blocks) == 1 else load_suffix(block.load), block


def load_suffix(load: Load) -> str:
    """``.c16`` of a closed loop of 16, ``.r2.5_b1_c64`` of arrivals, with their ramp."""
    if load.closed:
        return f".c{load.max_concurrency}"
    gaps = "file" if load.of_file else f"b{load.burstiness:g}"
    ramp = f"_ramp{load.ramp}" if load.ramp else ""
    return f".r{load.request_rate:g}_{gaps}_c{load.max_concurrency}{ramp}"


def file_name(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", text)


def setting_suffix(comparison: Comparison) -> str:
    """Recording, profile and what else differs, as names of files tell several settings apart."""
    names = (comparison.trace["recording"], comparison.latency["profile"])
    found = "".join("." + re.sub(r"[^\w-]+", "_", PurePath(name).stem) for name in names)
    if not comparison.differs:
        return found
    text = file_name(comparison.differs).strip("_")
    if len(text) > _LONGEST:
        number = crc32(comparison.differs.encode("utf-8", "surrogatepass"))
        text = f"{text[:_LONGEST]}.{number:08x}"
    return f"{found}.{text}"
