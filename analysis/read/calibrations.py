"""Reading what the simulator's task `calibrate` measured: how far probabilities are off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pandas
from pydantic import Field, model_validator

from analysis.read.files import Count, Number, Positive, Schema, Text, checked, node
from traces.common.errors import InputError
from traces.common.json import read_json

ENDING = ".calibration.json"
MAPS = {"edge": ("q", "platt", "edge_map"), "path": ("q", "platt", "edge_map", "isotonic")}
SPLITS = ("tuning", "calibration")  # the honest one first: maps are fitted on the other
FEW = 10  # accepted or rejected of a bin; its share says little with less of either

Probability = Annotated[float, Field(ge=0, le=1)]


class _Bins(Schema):
    mean: Annotated[list[Probability], Field(min_length=1)]
    count: list[Positive]
    accepted: list[Count]

    @model_validator(mode="after")
    def _fits(self):
        if not len(self.mean) == len(self.count) == len(self.accepted):
            raise ValueError("has not as many of mean, count and accepted")
        for accepted, count in zip(self.accepted, self.count, strict=True):
            if accepted > count:
                raise ValueError(f"has {accepted} accepted of {count}")
        return self


class _Level(Schema):
    count: Positive
    accepted: Count
    ece: dict[str, Probability | None]
    bins: dict[str, _Bins]
    log_bins: dict[str, _Bins]

    @model_validator(mode="after")
    def _adds_up(self):
        for name in self.ece.keys() & self.bins.keys() & self.log_bins.keys():
            check_map(self, name)
        return self


class _Measured(Schema):
    anchors: Count
    edge: _Level
    path: _Level

    @model_validator(mode="after")
    def _has_maps(self):
        for level, names in MAPS.items():
            own = getattr(self, level)
            for name in names:
                if own.ece.get(name) is None or name not in own.bins.keys() & own.log_bins.keys():
                    raise ValueError(f"lacks {level}.{name}: ece, bins and log_bins")
        return self


class _Calibration(Schema):
    format: Literal["specdec-calibration"]
    version: Literal[1]
    recording: node(name=Text, temperature=Number, content_hash=str)
    order: node(nodes=Count)
    measured: dict[str, _Measured]


@dataclass(frozen=True, slots=True)
class Curve:
    """One map at one level.

    Bins are frames by rising probability: ``mean`` of the probabilities, ``count``, ``accepted``,
    ``share`` accepted, and whether there are ``few`` of either kind.
    """

    ece: float
    bins: pandas.DataFrame = field(repr=False)  # of equal width, those of the ECE
    log_bins: pandas.DataFrame = field(repr=False)  # four per decade


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


def read_reliability(path: Path, split: str | None = None) -> Reliability:
    """The measurements of `split` in a calibration file; InputError naming the first fault.

    split: None for the tuning split, which nothing was fitted on, if it is there.
    """
    data = checked(_Calibration, read_json(path, "a calibration"), path)
    known = [name for name in SPLITS if name in data.measured]
    split = split or next(iter(known), SPLITS[0])
    if split not in known:
        has = ", ".join(known) or "none"
        raise InputError(f"{path}: no measurements of the {split} split, has {has}")
    found, recording = data.measured[split], data.recording
    levels = {level: getattr(found, level) for level in MAPS}
    curves = {
        level: {
            name: Curve(own.ece[name], _frame(own.bins[name]), _frame(own.log_bins[name]))
            for name in MAPS[level]
        }
        for level, own in levels.items()
    }
    return Reliability(
        name=Path(recording.name).stem,
        temperature=recording.temperature,
        content_hash=recording.content_hash,
        nodes=data.order.nodes,
        split=split,
        anchors=found.anchors,
        count={level: own.count for level, own in levels.items()},
        curves=curves,
    )


def _frame(bins: _Bins) -> pandas.DataFrame:
    found = pandas.DataFrame(bins.model_dump())
    rejected = found["count"] - found["accepted"]
    few = found["accepted"].clip(upper=rejected) < FEW
    return found.assign(share=found["accepted"] / found["count"], few=few)


def check_map(level: _Level, name: str) -> None:
    """ValueError unless a map's bins add up to the level's counts, and to its ECE."""
    for kind in (level.bins[name], level.log_bins[name]):
        for key in ("count", "accepted"):
            total = sum(getattr(kind, key))
            if total != getattr(level, key):
                raise ValueError(
                    f"{key} is {getattr(level, key)!r:.40}, expected {total}, the sum of {name}'s "
                    "bins"
                )
    bins, ece = level.bins[name], level.ece[name]
    columns = zip(bins.mean, bins.count, bins.accepted, strict=True)
    off = sum(abs(accepted - mean * count) for mean, count, accepted in columns) / level.count
    if ece is not None and abs(off - ece) > 1e-6:  # means are written with a few digits
        raise ValueError(f"ece.{name} is {ece!r}, expected {off:.6g} of its bins")
