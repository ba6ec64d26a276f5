"""Calibrations on disk: `<recording>.calibration.json`, one file for one recording.

`python -m simulator task=calibrate` writes them; policies take one by its path, or fit their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simulator.calibration.fit import SPLIT, Calibration, Fit, fit_calibration
from simulator.calibration.maps import EdgeMap, IsotonicMap, Platt
from simulator.orders.specs import MAX_NODES
from simulator.results.files import write_files
from traces.common.errors import InputError, refusal
from traces.common.json import loads
from traces.common.settings import LARGEST, Section, above, number, read, whole
from traces.recordings.recording import Recording

if TYPE_CHECKING:
    from simulator.calibration.lab import Lab

FORMAT, VERSION = "specdec-calibration", 1
DRAWS = "fixed"  # candidate sets; sampled drafts are accepted by another rule
ENDING = ".calibration.json"


class FittedOn(Section):
    """What the maps were fitted on."""

    name: str
    content_hash: str
    temperature: float


class TreeKind(Section):
    """The order of the trees, see `Fit.order`."""

    scores: Literal["auto"]
    ties: Literal["tick"]
    nodes: whole(1, MAX_NODES)
    branch: whole(1, MAX_NODES)


class PlattNumbers(Section):
    """Of `Platt`; a slope that falls would put unlikely siblings before likely ones."""

    a: above(0, LARGEST)
    b: number(-LARGEST, LARGEST)


class CalibrationFile(Section):
    """The whole file."""

    format: Literal["specdec-calibration"]
    version: Literal[1]
    recording: FittedOn
    order: TreeKind
    draws: Literal["fixed"]
    split: Literal["calibration"]
    platt: PlattNumbers
    edge_map: EdgeMap
    path_map: IsotonicMap
    measured: dict[str, Any]


_fitted: dict[str, Calibration] = {}  # by content: the policies of a sweep share one


def calibration_for(
    lab: Lab, path: str | os.PathLike | None = None, force: bool = False
) -> Calibration:
    """The calibration in the file at `path`, or (None) one fitted on the calibration split now.

    For a policy's settings `calibration` and `force_calibration`. Raises InputError for values
    they cannot have, a file that `read_calibration` refuses, or where no fit exists.
    """
    if not isinstance(path, str | os.PathLike | None):
        raise InputError(f"policy.calibration is {path!r}; accepted: null, or a path to a file")
    if not isinstance(force, bool):
        raise InputError(f"policy.force_calibration is {force!r}; accepted: true or false")
    if path is not None:
        return read_calibration(path, lab.recording, force)
    key = lab.recording.content_hash
    if key not in _fitted:
        _fitted[key] = fit_calibration(lab.recording, lab.table)
    return _fitted[key]


def beside(recording: Recording) -> Path:
    """Where the calibration of a recording that was read from a file belongs."""
    path = Path(recording.source)
    return path.with_name(path.stem + ENDING)


def write_calibration(path: Path, calibration: Calibration, measured: Mapping[str, Any]) -> None:
    """Write the file whole or not at all; `measured` by split (`fit.measure`)."""
    fit = calibration.fit
    data = {
        "format": FORMAT,
        "version": VERSION,
        "recording": _of(fit, FittedOn) | {"name": fit.recording},
        "order": _of(fit.order, TreeKind),
        "draws": DRAWS,
        "split": SPLIT,
        "platt": _of(calibration.platt, PlattNumbers),
        "edge_map": calibration.edge_map.model_dump(),
        "path_map": calibration.path.model_dump(),
        "measured": measured,
    }
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), text)  # one line each
    write_files(path.parent, {path.name: lambda part: part.write_text(text, encoding="utf-8")})


def _of(source: Any, part: type[Section]) -> dict[str, Any]:
    return {name: getattr(source, name, None) for name in part.model_fields}


def read_calibration(
    path: str | os.PathLike, recording: Recording | None = None, force: bool = False
) -> Calibration:
    """The calibration at `path`, for use with `recording` (None: with any).

    Raises InputError naming the file, the key and its value for what is no whole calibration, and
    for one of another content than `recording`'s unless `force`: `forced_from` then names it. One
    of the same content that states another temperature is no calibration of either.
    """
    path = Path(path)
    try:
        data = loads(path.read_text(encoding="utf-8"), constants=False)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a {FORMAT} file") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
    found = read(CalibrationFile, data, where=str(path))
    source = found.recording
    size = (found.order.nodes, found.order.branch)
    calibration = Calibration(
        fit=Fit(source.name, source.content_hash, source.temperature, *size),
        platt=Platt(found.platt.a, found.platt.b),
        edge_map=found.edge_map,
        path=found.path_map,
        source=str(path),
    )
    fit = calibration.fit
    if recording is None:
        return calibration
    if fit.content_hash == recording.content_hash:
        if fit.temperature != recording.temperature:
            accepted = f"{recording.temperature!r}, that of {recording.source}"
            raise InputError(
                f"{path}: {refusal('recording.temperature', fit.temperature, accepted)}"
            )
        return calibration
    if not force:
        raise InputError(
            f"{path}: recording.content_hash is {fit.content_hash[:12]} (of {fit.recording}), but"
            f" {recording.source} has {recording.content_hash[:12]}; accepted: its own calibration,"
            " or this one with force_calibration: true"
        )
    return replace(calibration, forced_from=fit.recording)
