"""Reliability diagrams: what a drafter's probabilities, raw and calibrated, come to.

Reads the files that the simulator's task `calibrate` writes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.common.errors import InputError
from traces.common.json import read_json

FORMAT, VERSION = "specdec-calibration", 1
ENDING = ".calibration.json"
MAPS = {
    "edge": ("q", "platt", "edge_map"),
    "path": ("q", "platt", "edge_map", "isotonic"),
}
SPLITS = ("tuning", "calibration")  # the honest one first: maps are fitted on the other
FEW = 10  # accepted or rejected of a bin; its share says little with less of either


@dataclass(frozen=True, slots=True)
class Bin:
    """Probabilities that are nearly the same: their mean, and how many were accepted."""

    mean: float
    count: int
    accepted: int

    @property
    def share(self) -> float:
        return self.accepted / self.count

    @property
    def few(self) -> bool:
        return min(self.accepted, self.count - self.accepted) < FEW


@dataclass(frozen=True, slots=True)
class Curve:
    """One map at one level; bins by rising probability."""

    ece: float
    bins: tuple[Bin, ...]  # of equal width, those of the ECE
    log_bins: tuple[Bin, ...]  # four per decade


@dataclass(frozen=True, slots=True)
class Reliability:
    """One file, one split; curves by level (edge, path) and map."""

    name: str  # of the recording, without its ending
    temperature: float
    content_hash: str
    nodes: int
    split: str
    anchors: int
    count: Mapping[str, int]  # edges below accepted nodes, nodes
    curves: Mapping[str, Mapping[str, Curve]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Words of `python -m analysis reliability`."""
    parser.add_argument("files", metavar="FILE", nargs="+", help=f"RECORDING{ENDING}")
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), help="folder for figures (default: figures)"
    )
    parser.add_argument(
        "--split", choices=SPLITS, help="default: tuning, which nothing was fitted on, if there"
    )


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Draw one figure per file, as PNG, PDF and SVG with its caption; returns what was written.

    Raises InputError, and writes nothing, for a file that holds no such measurements.
    """
    from analysis.figure_files import write_figures
    from analysis.plots import STYLE, style
    from analysis.reliability_plots import draw_reliability

    found = [read_reliability(Path(file), args.split) for file in args.files]
    drawn: dict[str, Any] = {}
    with style(STYLE):
        for one in found:
            name = f"reliability.{re.sub(r'[^A-Za-z0-9_-]+', '_', one.name)}"
            if name in drawn:
                raise InputError(f"two files are of {one.name}; accepted: one for each recording")
            drawn[name] = draw_reliability(one), caption(one, command)
        return write_figures(drawn, args.out)


def caption(one: Reliability, command: str) -> str:
    """The text beside a figure."""
    sentence, remarks, notes = caption_parts(one)
    facts = (f"{heading}: {text}" for heading, text in notes)
    return "\n".join([sentence, *remarks, "", *facts, f"command: {command}", ""])


def caption_parts(one: Reliability) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """What is shown, how to read it, and (heading, text) of what it rests on."""
    fitted = "held out, maps are fitted on the calibration split"
    split = fitted if one.split != "calibration" else "the split that the maps are fitted on"
    sentence = (
        "Share accepted against estimated probability (dotted: equal), with the expected "
        "calibration error (ECE) over 15 bins of equal width."
    )
    remarks = (
        f"Left: edges, the children of accepted nodes; {one.count['edge']} in bins of equal width. "
        f"Right: path survival of every node of the tree, products of those edges; "
        f"{one.count['path']} in four bins per decade, those without an accepted node not drawn. "
        f"Hollow: fewer than {FEW} accepted or {FEW} rejected.",
        "q: the drafter's probability; Platt: sigmoid(a logit q + b); depth, rank: with terms for "
        "both; isotonic: one monotone curve of Platt's path survival.",
    )
    recording = (
        f"{one.name} ({one.content_hash[:12]}), temperature {one.temperature:g}, "
        f"{one.split} split ({split}); {one.anchors} best-first trees of {one.nodes} nodes"
    )
    return sentence, remarks, (("recording", recording),)


def read_reliability(path: Path, split: str | None = None) -> Reliability:
    """The measurements of `split` in a calibration file; InputError naming the first fault."""
    data = read_json(path, "a calibration")
    try:
        return _reliability(data, split)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__} {error}"
        raise InputError(f"{path}: damaged ({what}), expected a whole calibration") from None


def _reliability(data: Any, split: str | None) -> Reliability:
    for key, accepted in (("format", FORMAT), ("version", VERSION)):
        if data[key] != accepted:
            raise InputError(f"{key} is {data[key]!r}, expected {accepted!r}")
    measured, recording = data["measured"], data["recording"]
    known = [name for name in SPLITS if name in measured]
    split = split or next(iter(known), SPLITS[0])
    if split not in known:
        raise InputError(f"no measurements of the {split} split, has {', '.join(known) or 'none'}")
    found = measured[split]
    curves = {
        level: {name: _curve(found[level], name, f"{split}.{level}") for name in names}
        for level, names in MAPS.items()
    }
    return Reliability(
        name=Path(recording["name"]).stem,
        temperature=float(recording["temperature"]),
        content_hash=str(recording["content_hash"]),
        nodes=int(data["order"]["nodes"]),
        split=split,
        anchors=int(found["anchors"]),
        count={level: int(found[level]["count"]) for level in MAPS},
        curves=curves,
    )


def _curve(node: Mapping[str, Any], name: str, where: str) -> Curve:
    ece = node["ece"][name]
    if isinstance(ece, bool) or not isinstance(ece, int | float) or not 0 <= ece <= 1:
        raise InputError(f"measured.{where}.ece.{name} is {ece!r}, expected 0 to 1")
    kinds = [_bins(node[kind][name], f"{where}.{kind}.{name}") for kind in ("bins", "log_bins")]
    for bins in kinds:
        for key in ("count", "accepted"):
            total = sum(getattr(one, key) for one in bins)
            if total != node[key]:
                raise InputError(
                    f"measured.{where}.{key} is {node[key]!r:.40}, expected {total}, the sum of "
                    f"{name}'s bins"
                )
    off = sum(abs(one.accepted - one.mean * one.count) for one in kinds[0]) / node["count"]
    if abs(off - ece) > 1e-6:  # means are written with a few digits
        raise InputError(f"measured.{where}.ece.{name} is {ece!r}, expected {off:.6g} of its bins")
    return Curve(float(ece), *kinds)


def _bins(node: Mapping[str, Any], where: str) -> tuple[Bin, ...]:
    columns = (node["mean"], node["count"], node["accepted"])
    if not columns[0] or len({len(column) for column in columns}) != 1:
        raise InputError(f"measured.{where}: mean, count, accepted, expected as many, at least one")
    bins = tuple(Bin(*row) for row in zip(*columns, strict=True))
    for one in bins:
        whole = type(one.count) is int and type(one.accepted) is int
        if not (whole and 0 <= one.mean <= 1 and 0 <= one.accepted <= one.count > 0):
            raise InputError(
                f"measured.{where}: {one.accepted} accepted of {one.count} at {one.mean}, expected"
                " a probability and no more accepted than there are"
            )
    return bins
