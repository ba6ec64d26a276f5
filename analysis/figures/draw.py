"""Every kind of figure by name: what it is drawn of, those that the given files allow, and files.

A figure whose data they lack is left out with one line that says what is missing; one that was
asked for is an error then, and nothing is written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from zlib import crc32

import pandas

from analysis.compare.comparison import BASELINE, PARTLY, Comparison, compare
from analysis.compare.loads import Load
from analysis.look import DPI, Look, looks
from analysis.read.calibrations import ENDING, Reliability, read_reliability
from analysis.read.runs import FILE_NAME, runs_at
from analysis.read.validations import FILE_NAME as VALIDATION
from analysis.read.validations import Validation, read_validation
from analysis.text.notes import Note, notes
from traces.common.errors import InputError
from traces.common.files import replacing
from traces.common.json import read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Module below this package, function, whether it is of one setting or of everything, and title.
KINDS = {
    "domains": ("domains", "draw_domains", True, "speedup by domain"),
    "acceptance": ("budget", "draw_acceptance_lengths", True, "acceptance length by budget"),
    "budget": ("budget", "draw_budgets", True, "speedup by budget, of width sweeps"),
    "throughput": ("load", "draw_throughputs", True, "throughput and speedup by load"),
    "goodput": ("load", "draw_goodputs", True, "goodput by load"),
    "pareto": ("load", "draw_paretos", True, "tokens/s/GPU against tokens/s/user"),
    "nodes": ("budget", "draw_nodes", True, "nodes per request by batch size"),
    "time": ("time", "draw_times", True, "where a round's time goes"),
    "latency": ("latency", "draw_latencies", False, "verify time by packed tokens"),
    "prefix_mass": ("mass", "draw_masses", False, "sorted prefix mass"),
    "reliability": ("reliability", "draw_reliabilities", False, "reliability diagrams"),
    "live": ("live", "draw_validations", False, "predicted against live"),
}
# Nothing that changes from one drawing to the next: equal results give equal bytes.
METADATA = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None, "Creator": None},
}
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
    remarks: Sequence[str]  # how to read its marks
    facts: Sequence[Note] = ()  # what it rests on
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
        facts = [note for note in notes(self.comparison) if note[0] not in _NOT_DRAWN]
        return Drawing(name + self.suffix, figure, sentence, remarks, facts, self.comparison)

    def remarks(self, hollow: pandas.Series | None = None) -> list[str]:
        """What must stand in a figure itself, short; `hollow`: which of its marks are."""
        what_if = self.comparison.first["what_if"]
        found = ["what-if: another model's step times"] if what_if else []
        if hollow is not None and hollow.any():
            found.append(f"hollow: >{PARTLY:.0%} of time modelled or clamped")
        return found

    def by_load(self) -> Iterator[tuple[str, Load, pandas.DataFrame]]:
        """Every load with its rows, and what tells its figure's name from the others'."""
        blocks = self.comparison.blocks
        for load, rows in blocks:
            yield "" if len(blocks) == 1 else load.suffix, load, rows


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
        if path.is_dir():
            files = [(kind, file) for kind, one in _PATTERNS.items() for file in path.rglob(one)]
            if not files:
                raise InputError(f"{path}: nothing to draw below this folder; accepted: {_KINDS}")
        else:
            files = [(_kind(path), path)]
        for kind, file in files:
            found.setdefault(kind, {})[file.resolve()] = file
    of = {kind: [one for _, one in sorted(group.items())] for kind, group in found.items()}
    runs = runs_at(of.get("run", ()))
    return Inputs(
        compare(runs, baseline),
        [read_validation(path) for path in of.get("validation", ())],
        [read_reliability(path) for path in of.get("calibration", ())],
        of.get("profile", ()),
        of.get("recording", ()),
        runs,
    )


def _kind(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder; accepted: {_KINDS}")
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


def chosen(only: Sequence[str] | None) -> list[str]:
    """Names of figures in the order given, every one without any; InputError for others."""
    names = [name for text in only or () for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise InputError(f"--only {name}; accepted: {', '.join(KINDS)}")
    if only and not names:
        raise InputError(f"--only names no figure; accepted: {', '.join(KINDS)}")
    return list(dict.fromkeys(names)) or list(KINDS)


def draw(inputs: Inputs, names: Sequence[str], strict: bool, say=None) -> list[Drawing]:
    """The named figures. Matplotlib is loaded with the first, so only to draw.

    Args:
        strict: whether one that cannot be drawn at all is an error.
        say: takes a line on each that is left out; standard error where not given.
    """
    from analysis.figures.drawing import style

    say = say or (lambda line: print(line, file=sys.stderr))
    look = looks(label for one in inputs.comparisons for label in one.labels)
    several = len(inputs.comparisons) > 1
    settings = [Setting(one, look, _suffix(one) if several else "") for one in inputs.comparisons]
    found: list[Drawing] = []
    for name in names:
        module, function, of_setting, _ = KINDS[name]
        scopes = settings if of_setting else [inputs]
        drawn, missing = [], [] if scopes else ["no run was given"]
        for scope in scopes:
            try:
                with style():
                    drawn += getattr(import_module(f"analysis.figures.{module}"), function)(scope)
            except Missing as error:
                where = f"{scope.comparison.title}: " if len(scopes) > 1 else ""
                missing.append(f"{where}{error}")
        if strict and not drawn:
            raise InputError(f"--only {name}: {missing[0]}")
        for reason in dict.fromkeys(missing):
            say(f"left out {name}: {reason}")
        found += drawn
    return found


def file_name(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", text)


def _suffix(comparison: Comparison) -> str:
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


def write(drawn: Sequence[Drawing], out: Path, command: str) -> list[Path]:
    """Figures and captions as files, all or none; names that are taken get a number.

    Raises:
        InputError: `out` takes none.
    """
    from analysis.figures.drawing import style

    paths: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        with style(), ExitStack() as stack:  # renames all of them once each is written
            for one in drawn:
                number, name = 1, one.name
                while out / f"{name}.txt" in paths:
                    number += 1
                    name = f"{one.name}.{number}"
                paths += [out / f"{name}.{kind}" for kind in (*METADATA, "txt")]
                *pictures, text = (stack.enter_context(replacing(path)) for path in paths[-4:])
                for temporary, (kind, metadata) in zip(pictures, METADATA.items(), strict=True):
                    one.figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata)
                text.write_text(one.caption(command), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot write figures here ({error.strerror})") from error
    return paths
