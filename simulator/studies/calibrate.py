"""Fit and save the calibration of a recording (`task=calibrate`).

The table shows each map's error where it was fitted and, honest, on the tuning split.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.calibration.file import FORMAT, beside, read_calibration, write_calibration
from simulator.calibration.fit import Calibration, fit_calibration
from simulator.engine.inputs import load_recording
from traces.common.errors import InputError
from traces.recordings.recording import Recording

MAPS = {
    "edge": {"q": "q", "platt": "Platt", "edge_map": "edge map"},
    "path": {"q": "q", "platt": "Platt", "edge_map": "edge map", "isotonic": "isotonic"},
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to fit on, with which trees, and where to save it."""

    recording: Recording
    nodes: int
    branch: int
    output: Path


def load(cfg: Mapping[str, Any]) -> Request:
    """Read and check the `trace` and `calibrate` nodes.

    Raises:
        InputError: a bad recording, tree, or a file that cannot or must not be written.
    """
    from simulator.orders.build import resolve_for
    from simulator.orders.specs import BestFirstOrder, OrderError

    node = {"nodes": 63, "branch": 8, "output": None} | dict(cfg.get("calibrate") or {})
    for key in ("nodes", "branch"):
        try:
            BestFirstOrder(**{key: node[key]})
        except OrderError as error:
            raise error.under("calibrate") from None
    recording = load_recording(cfg["trace"])
    try:
        resolve_for(BestFirstOrder(nodes=node["nodes"], branch=node["branch"]), recording)
    except OrderError as error:
        raise error.under("calibrate") from None
    output = node["output"]
    if output is not None and not (isinstance(output, str) and output.endswith(".json")):
        raise InputError(f"calibrate.output is {output!r}; accepted: null, or a path to a .json")
    path = beside(recording) if output is None else Path(output)
    _check_output(path, recording)
    return Request(recording, node["nodes"], node["branch"], path)


def _check_output(path: Path, recording: Recording) -> None:
    """Refuse what cannot be written, and files that are not this recording's calibration."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"calibrate.output {path} cannot be written; accepted: a usable path")
    if not path.exists():
        return
    try:
        name = read_calibration(path).fit.recording
    except InputError as error:
        raise InputError(
            f"calibrate.output exists and is not replaced: {error}; delete it to go on"
        ) from None
    if name != Path(recording.source).name:
        raise InputError(
            f"calibrate.output {path} is the {FORMAT} of {name}; accepted: a path of its own"
        )


def run(cfg: Mapping[str, Any], folder: Path | None = None) -> None:
    """Fit, save beside the recording, and print the table; nothing is written into `folder`.

    Raises:
        InputError: see `load` and `fit_calibration`.
    """
    from simulator.calibration.errors import measure
    from simulator.orders import order_table
    from simulator.policy import FITTING

    request = load(cfg)
    recording = request.recording
    calibration = fit_calibration(
        recording, lambda spec: order_table(spec, recording), request.nodes, request.branch
    )
    table = order_table(calibration.order, recording)
    splits = {split: recording.anchors_of(split) for split in FITTING}
    measured = {split: measure(calibration, table, a) for split, a in splits.items() if len(a)}
    write_calibration(request.output, calibration, measured)
    _print(recording, calibration, measured)
    print(f"wrote {request.output}")


def _print(recording: Recording, calibration: Calibration, measured: dict[str, Any]) -> None:
    from rich.console import Console

    a, b = calibration.platt
    rank, knots = calibration.edge_map.rank, len(calibration.path.sigma)
    print(
        f"Calibration of {recording.meta['pair']}, T = {recording.temperature:g}: Platt a", end=""
    )
    print(f" {a:.4f}, b {b:.4f}; edge map rank {rank:.4f}; isotonic of {knots} knots")
    for split, found in measured.items():
        print(
            f"{split}: {found['anchors']} trees, {found['edge']['count']} edges below accepted"
            f" nodes, {found['path']['count']} nodes, {found['path']['accepted']} accepted"
        )
    console = Console(highlight=False)
    console.print("\nECE; sum: of probabilities over accepted nodes, less 1")
    console.print(_table(["level", "map", *_headings(measured)], _rows(measured)))
    split, found = list(measured.items())[-1]
    console.print(f"\nECE by depth, {split} split")
    names = [f"{level} {name}" for level, maps in MAPS.items() for name in maps.values()]
    console.print(_table(["depth", "nodes", *names], _depth_rows(found)))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]):
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        left = heading in ("level", "map")
        table.add_column(heading, justify="left" if left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _headings(measured: dict[str, Any]) -> Iterator[str]:
    for split in measured:
        yield from (split, "sum")


def _rows(measured: dict[str, Any]) -> Iterator[list[str]]:
    """One row per level and map."""
    for level, maps in MAPS.items():
        for key, name in maps.items():
            cells = [level if key == "q" else "", name]
            for found in measured.values():
                ratio = found[level]["sum_ratio"][key]
                cells += [f"{found[level]['ece'][key]:.4f}"]
                cells += ["-" if ratio is None else f"{ratio - 1:+.1%}"]
            yield cells


def _depth_rows(found: dict[str, Any]) -> Iterator[list[str]]:
    columns = [found[level]["ece_by_depth"][key] for level, maps in MAPS.items() for key in maps]
    counts = found["path"]["count_by_depth"]
    for depth, (count, *values) in enumerate(zip(counts, *columns, strict=True), start=1):
        yield [
            str(depth),
            str(count),
            *("-" if value is None else f"{value:.4f}" for value in values),
        ]
