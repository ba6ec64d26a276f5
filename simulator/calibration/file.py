"""Calibrations on disk: `<recording>.calibration.json`, one file for one recording.

`python -m simulator task=calibrate` writes them; policies take one by its path, or fit their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from simulator.calibration.edge_map import EdgeMap
from simulator.calibration.fit import DRAWS, SPLIT, Calibration, Fit, fit_calibration
from simulator.calibration.isotonic import IsotonicMap
from simulator.calibration.platt import Platt
from simulator.results.files import write_files
from traces.common.errors import InputError
from traces.common.json import loads
from traces.recordings.recording import Recording

# ---------------- Strict checks of JSON files: every key there, of its kind, and no other.


NUMBER = int | float
NUMBERS = list
_NAMES = {
    str: "a text",
    int: "a whole number",
    NUMBER: "a number",
    NUMBERS: "a list of numbers",
    dict: "an object",
}
_SHOWN = 60  # characters of a refused value


def load_json(path: Path, format_name: str) -> dict[str, Any]:
    """The object in the file; InputError unless its `format` is `format_name`."""
    try:
        data = loads(path.read_text(encoding="utf-8"), constants=False)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a {format_name} file") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
    found = data.get("format") if isinstance(data, dict) else data
    if not isinstance(data, dict) or found != format_name:
        refuse(path, "format", found, repr(format_name))
    return data


def check_keys(node: Mapping[str, Any], kinds: Mapping[str, Any], path: Path, at: str = "") -> None:
    """Raise InputError naming file, key and value of the first fault in `node`.

    kinds: of every key; a mapping stands for an object with those keys, `dict` for any object.
    """
    for key in [*kinds, *node]:
        if key not in kinds or key not in node:
            what = "missing" if key in kinds else "unknown"
            key = key if key.isprintable() else ascii(key)
            raise InputError(f"{path}: {at}{key} is {what}; accepted: {', '.join(kinds)}")
    for key, kind in kinds.items():
        below = isinstance(kind, Mapping)
        _check_kind(node[key], dict if below else kind, path, at + key)
        if below:
            check_keys(node[key], kind, path, f"{at}{key}.")


def _check_kind(value: Any, kind: Any, path: Path, key: str) -> None:
    numbers = kind is not NUMBERS or (isinstance(value, list) and all(map(_is_number, value)))
    if not isinstance(value, kind) or isinstance(value, bool) or not numbers:
        refuse(path, key, value, _NAMES[kind])


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def refuse(path: Path, key: str, value: Any, accepted: str) -> NoReturn:
    """Raise the InputError about one value."""
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    raise InputError(f"{path}: {key} is {text}; accepted: {accepted}")


if TYPE_CHECKING:
    from simulator.calibration.lab import Lab

FORMAT, VERSION = "specdec-calibration", 1
ENDING = ".calibration.json"
_KINDS: dict[str, Any] = {
    "format": str,
    "version": int,
    "recording": {"name": str, "content_hash": str, "temperature": NUMBER},
    "order": {"scores": str, "ties": str, "nodes": int, "branch": int},
    "draws": str,
    "split": str,
    "platt": {"a": NUMBER, "b": NUMBER},
    "edge_map": {"a": NUMBER, "b": NUMBER, "depth": NUMBERS, "rank": NUMBER},
    "path_map": {"sigma": NUMBERS, "survival": NUMBERS},
    "measured": dict,
}
_FIXED = {"version": VERSION, "draws": DRAWS, "split": SPLIT}
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
    """Write the file whole or not at all; `measured` by split (`simulator.calibration.errors`)."""
    fit = calibration.fit
    parts = {
        "recording": _of(fit, _KINDS["recording"]) | {"name": fit.recording},
        "order": _of(fit.order, _KINDS["order"]),
        "platt": _of(calibration.platt, _KINDS["platt"]),
        "edge_map": _of(calibration.edge_map, _KINDS["edge_map"]),
        "path_map": _of(calibration.path, _KINDS["path_map"]),
        "measured": measured,
    }
    data = {"format": FORMAT, **_FIXED} | parts
    text = json.dumps({key: data[key] for key in _KINDS}, indent=1, allow_nan=False) + "\n"
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), text)  # one line each
    write_files(path.parent, {path.name: lambda part: part.write_text(text, encoding="utf-8")})


def _of(source: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(source, name, None) for name in names}


def read_calibration(
    path: str | os.PathLike, recording: Recording | None = None, force: bool = False
) -> Calibration:
    """The calibration at `path`, for use with `recording` (None: with any).

    Raises InputError naming the file, the key and its value for what is no whole calibration, and
    for one of another content than `recording`'s unless `force`: `forced_from` then names it. One
    of the same content that states another temperature is no calibration of either.
    """
    path = Path(path)
    calibration = _read(path)
    fit = calibration.fit
    if recording is None:
        return calibration
    if fit.content_hash == recording.content_hash:
        if fit.temperature != recording.temperature:
            accepted = f"{recording.temperature!r}, that of {recording.source}"
            refuse(path, "recording.temperature", fit.temperature, accepted)
        return calibration
    if not force:
        raise InputError(
            f"{path}: recording.content_hash is {fit.content_hash[:12]} (of {fit.recording}), but"
            f" {recording.source} has {recording.content_hash[:12]}; accepted: its own calibration,"
            " or this one with force_calibration: true"
        )
    return replace(calibration, forced_from=fit.recording)


def _read(path: Path) -> Calibration:
    data = load_json(path, FORMAT)
    check_keys(data, _KINDS, path)
    for key, accepted in _FIXED.items():
        if data[key] != accepted:
            refuse(path, key, data[key], repr(accepted))
    numbers = {key: _floats(data[key]) for key in ("platt", "edge_map", "path_map")}
    fit = _fit(data, path)
    calibration = Calibration(
        fit=fit,
        platt=Platt(**numbers["platt"]),
        edge_map=_named(path, "edge_map", lambda: EdgeMap(**numbers["edge_map"])),
        path=_named(path, "path_map", lambda: IsotonicMap(**numbers["path_map"])),
        source=str(path),
    )
    _named(path, "platt", lambda: calibration.order)  # refuses what orders cannot take
    return calibration


def _floats(node: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as floats, lists as tuples; a whole number beyond all floats is infinite."""
    return {
        name: tuple(map(_float, value)) if isinstance(value, list) else _float(value)
        for name, value in node.items()
    }


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _fit(data: Mapping[str, Any], path: Path) -> Fit:
    source, order = data["recording"], data["order"]
    fit = Fit(
        recording=source["name"],
        content_hash=source["content_hash"],
        temperature=_float(source["temperature"]),
        nodes=order["nodes"],
        branch=order["branch"],
    )
    made = _of(_named(path, "order", lambda: fit.order), order)
    for key, value in order.items():
        if value != made[key]:
            refuse(path, f"order.{key}", value, repr(made[key]))
    return fit


def _named(path: Path, key: str, make: Callable[[], Any]) -> Any:
    """What `make` returns; its complaint with the file and the key."""
    try:
        return make()
    except InputError as error:
        raise InputError(f"{path}: {key}: {error}") from None
