"""What every kind of figure hands back, and what it is drawn of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from zlib import crc32

import pandas

from analysis.compare.comparison import BASELINE, PARTLY, Comparison, compare
from analysis.compare.loads import Load
from analysis.look import Look
from analysis.read.calibrations import ENDING, Reliability, read_reliability
from analysis.read.runs import FILE_NAME, runs_at
from analysis.read.validations import FILE_NAME as VALIDATION
from analysis.read.validations import Validation, read_validation
from analysis.text.notes import Note, notes
from traces.common.errors import InputError
from traces.common.json import read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHAT_IF = "what-if: another model's step times"
HOLLOW = f"Hollow markers: more than {PARTLY:.0%} of the step time is modelled or clamped."
BANDS = "Bands: 95 % Student-t intervals over seeds."
_NOT_DRAWN = ("TTFT", "TPOT", "speedup")  # notes on columns of tables
_LONGEST = 60  # characters of what sets a setting apart, in names of files
_RECORDING = ".safetensors"
_KINDS = (
    f"folders with {FILE_NAME}, {VALIDATION} or *{ENDING} below them, a profile's .csv, "
    f"a recording's {_RECORDING} or manifest"
)
_PATTERNS = {"run": FILE_NAME, "validation": VALIDATION, "calibration": f"*{ENDING}"}
_FORMATS = {
    "specdec-summary": "run",
    "specdec-validation": "validation",
    "specdec-calibration": "calibration",
    "specdec-recording-manifest": "recording",
}


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

    def remarks(self, hollow: pandas.Series | None = None) -> list[str]:
        """What must stand in a figure itself, short; `hollow`: which of its marks are."""
        found = [WHAT_IF] if self.comparison.first["what_if"] else []
        if hollow is not None and hollow.any():
            found.append(f"hollow: >{PARTLY:.0%} of time modelled or clamped")
        return found

    def by_load(self) -> Iterator[tuple[str, Load, pandas.DataFrame]]:
        """Every load with its rows, and what tells its figure's name from the others'."""
        blocks = self.comparison.blocks
        for load, rows in blocks:
            yield "" if len(blocks) == 1 else load.suffix, load, rows


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


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a command line names, read and checked; files of the same path once."""

    comparisons: Sequence[Comparison] = ()
    validations: Sequence[Validation] = ()
    calibrations: Sequence[Reliability] = ()
    profiles: Sequence[Path] = ()  # .csv
    recordings: Sequence[Path] = ()
    runs: pandas.DataFrame = field(default_factory=pandas.DataFrame, repr=False)  # of all settings


def read_inputs(paths: Sequence[str | Path], baseline: str = BASELINE) -> Inputs:
    """Read what `paths` name: a folder is searched for the files it holds below it.

    Raises:
        InputError: a path that is missing or holds nothing of use, or a file that is damaged.
    """
    found: dict[str, dict[Path, Path]] = {}
    for path in map(Path, paths):
        for kind, file in _find(path):
            found.setdefault(kind, {})[file.resolve()] = file
    files = {kind: [one for _, one in sorted(group.items())] for kind, group in found.items()}
    runs = runs_at(files.get("run", ()))
    return Inputs(
        compare(runs, baseline),
        [read_validation(path) for path in files.get("validation", ())],
        [read_reliability(path) for path in files.get("calibration", ())],
        files.get("profile", ()),
        files.get("recording", ()),
        runs,
    )


def _find(path: Path) -> list[tuple[str, Path]]:
    if path.is_dir():
        found = [(kind, file) for kind, one in _PATTERNS.items() for file in path.rglob(one)]
        if not found:
            raise InputError(f"{path}: nothing to draw below this folder; accepted: {_KINDS}")
        return found
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder; accepted: {_KINDS}")
    return [(_kind(path), path)]


def _kind(path: Path) -> str:
    if path.name == FILE_NAME:
        return "run"
    if path.suffix in (_RECORDING, ".csv"):
        return "recording" if path.suffix == _RECORDING else "profile"
    data = read_json(path, "a summary, validation, calibration or manifest")
    form = data.get("format") if isinstance(data, dict) else None
    if form == "specdec-bounds":
        raise InputError(f"{path}: bounds are read by: python -m analysis reach RUNS --bounds FILE")
    if not isinstance(form, str) or form not in _FORMATS:
        raise InputError(f"{path}: format is {form!r}; accepted: {_KINDS}")
    return _FORMATS[form]
