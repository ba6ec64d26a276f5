"""Fit and save the calibration of a recording (`task=calibrate`).

The table shows each map's error where it was fitted and, honest, on the tuning split.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simulator.calibration.file import FORMAT, beside, read_calibration, write_calibration
from simulator.calibration.fit import fit_calibration
from simulator.engine.inputs import load_recording
from simulator.orders.build import resolve_for
from simulator.orders.specs import BestFirstOrder, OrderError
from simulator.studies.report import digits
from simulator.studies.settings import Calibrate
from traces.common.errors import InputError
from traces.common.settings import read
from traces.common.table import BLANK, Table, emit
from traces.recordings.recording import Recording

EDGE_MAPS = {"q": "q", "platt": "Platt", "edge_map": "edge map"}
MAPS = {"edge": EDGE_MAPS, "path": EDGE_MAPS | {"isotonic": "isotonic"}}
LEVELS = [(level, key, name) for level, maps in MAPS.items() for key, name in maps.items()]


def load(cfg: Mapping[str, Any]) -> tuple[Recording, Calibrate, Path]:
    """Read and check the `trace` and `calibrate` nodes: what to fit on, how, and where to save it.

    Raises:
        InputError: a bad recording, tree, or a file that cannot or must not be written.
    """
    asked, recording = read(Calibrate, cfg.get("calibrate") or {}), load_recording(cfg["trace"])
    try:
        resolve_for(BestFirstOrder(nodes=asked.nodes, branch=asked.branch), recording)
    except OrderError as error:
        raise error.under("calibrate") from None
    output = asked.output
    if output is not None and not output.endswith(".json"):
        raise InputError(f"calibrate.output is {output!r}; accepted: null, or a path to a .json")
    path = beside(recording) if output is None else Path(output)
    folder = next((one for one in path.parents if one.exists()), path.parent)
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"calibrate.output {path} cannot be written; accepted: a usable path")
    if path.exists():
        _check_own(path, recording)
    return recording, asked, path


def _check_own(path: Path, recording: Recording) -> None:
    """Refuse a file that is not this recording's calibration."""
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
    from simulator.calibration.fit import measure
    from simulator.orders import order_table
    from simulator.policy import FITTING

    recording, asked, output = load(cfg)
    calibration = fit_calibration(
        recording, lambda spec: order_table(spec, recording), asked.nodes, asked.branch
    )
    table = order_table(calibration.order, recording)
    splits = {split: recording.anchors_of(split) for split in FITTING}
    measured = {split: measure(calibration, table, a) for split, a in splits.items() if len(a)}
    write_calibration(output, calibration, measured)
    a, b = calibration.platt
    rank, knots = calibration.edge_map.rank, len(calibration.path.sigma)
    print(
        f"Calibration of {recording.meta['pair']}, T = {recording.temperature:g}: Platt a {a:.4f}, "
        f"b {b:.4f}; edge map rank {rank:.4f}; isotonic of {knots} knots"
    )
    for split, found in measured.items():
        print(
            f"{split}: {found['anchors']} trees, {found['edge']['count']} edges below accepted"
            f" nodes, {found['path']['count']} nodes, {found['path']['accepted']} accepted"
        )
    emit(_tables(measured), "table")
    print(f"wrote {output}")


def _tables(measured: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """A row per level and map, then the last split's errors by depth."""
    rows = []
    for level, key, name in LEVELS:
        row = [level if key == "q" else "", name]
        for found in measured.values():
            ratio = found[level]["sum_ratio"][key]
            row += [f"{found[level]['ece'][key]:.4f}"]
            row += [BLANK if ratio is None else f"{ratio - 1:+.1%}"]
        rows.append(row)
    heads = ["level", "map", *(one for split in measured for one in (split, "sum"))]
    caption = "ECE; sum: of probabilities over accepted nodes, less 1"
    yield Table(heads, rows, caption=caption, align="ll" + "r" * (len(heads) - 2))
    split, found = list(measured.items())[-1]
    columns = [found[level]["ece_by_depth"][key] for level, key, _ in LEVELS]
    counts = found["path"]["count_by_depth"]
    rows = [
        [str(depth), str(count), *(digits(value, 4) for value in values)]
        for depth, (count, *values) in enumerate(zip(counts, *columns, strict=True), start=1)
    ]
    heads = ["depth", "nodes", *(f"{level} {name}" for level, _, name in LEVELS)]
    yield Table(heads, rows, caption=f"ECE by depth, {split} split", align="r" * len(heads))
