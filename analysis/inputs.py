"""What a command line names: finished runs, validations, calibrations, profiles, recordings.

A folder is searched for the files it holds below it; a file is taken by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.compare import BASELINE, Comparison, compare
from analysis.reliability import ENDING, Reliability, read_reliability
from analysis.summaries import FILE_NAME, Summary, read_summary
from analysis.validation import FILE_NAME as VALIDATION
from analysis.validation import Validation, read_validation
from traces.common.errors import InputError
from traces.common.json import read_json

RECORDING = ".safetensors"
_BOUNDS, _MANIFEST = "specdec-bounds", "specdec-recording-manifest"
_KINDS = (
    f"folders with {FILE_NAME}, {VALIDATION} or *{ENDING} below them, a profile's .csv, "
    f"a recording's {RECORDING} or manifest"
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that was named, read and checked; files of the same path once."""

    summaries: tuple[Summary, ...] = ()
    validations: tuple[Validation, ...] = ()
    calibrations: tuple[Reliability, ...] = ()
    profiles: tuple[Path, ...] = ()  # .csv
    recordings: tuple[Path, ...] = ()
    comparisons: tuple[Comparison, ...] = field(default=(), repr=False)

    @property
    def labels(self) -> list[str]:
        """Every policy's label once."""
        return list(dict.fromkeys(label for one in self.comparisons for label in one.labels))


def read_inputs(paths: Sequence[str | Path], baseline: str = BASELINE) -> Inputs:
    """Read what `paths` name.

    Raises:
        InputError: a path that is missing or holds nothing of use, or a file that is damaged.
    """
    found: dict[str, dict[Path, Path]] = {}
    for path in map(Path, paths):
        for kind, file in _find(path):
            found.setdefault(kind, {})[file.resolve()] = file
    files = {kind: [one for _, one in sorted(group.items())] for kind, group in found.items()}
    summaries = tuple(read_summary(path.resolve()) for path in files.get("run", ()))
    return Inputs(
        summaries,
        tuple(read_validation(path) for path in files.get("validation", ())),
        tuple(read_reliability(path) for path in files.get("calibration", ())),
        tuple(files.get("profile", ())),
        tuple(files.get("recording", ())),
        tuple(compare(summaries, baseline)),
    )


def _find(path: Path) -> list[tuple[str, Path]]:
    if path.is_dir():
        found = list(_below(path))
        if not found:
            raise InputError(f"{path}: nothing to draw below this folder; accepted: {_KINDS}")
        return found
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder; accepted: {_KINDS}")
    return [(_kind(path), path)]


def _below(folder: Path) -> Iterable[tuple[str, Path]]:
    for kind, pattern in (
        ("run", FILE_NAME),
        ("validation", VALIDATION),
        ("calibration", f"*{ENDING}"),
    ):
        yield from ((kind, path) for path in sorted(folder.rglob(pattern)))


def _kind(path: Path) -> str:
    if path.name == FILE_NAME:
        return "run"
    if path.suffix == RECORDING:
        return "recording"
    if path.suffix == ".csv":
        return "profile"
    data = read_json(path, "a summary, validation, calibration or manifest")
    kinds = {
        "specdec-summary": "run",
        "specdec-validation": "validation",
        "specdec-calibration": "calibration",
        _MANIFEST: "recording",
    }
    form = data.get("format") if isinstance(data, dict) else None
    if form == _BOUNDS:
        raise InputError(f"{path}: bounds are read by: python -m analysis reach RUNS --bounds FILE")
    if form not in kinds:
        raise InputError(f"{path}: format is {form!r}; accepted: {_KINDS}")
    return kinds[form]
