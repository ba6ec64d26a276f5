"""Measured points, to be compared with predictions: a small JSON format (`specdec-points`, 1).

`{"format", "version", "importer", "source", "files": [{"name", "sha256"}], "lacks": [...],
"points": [{"label", "file", "policy", "model", "max_concurrency", "request_rate", "burstiness",
"facts", "metrics"}]}`. A load: `request_rate` "inf" with `max_concurrency` is a closed loop, a
number is an open one, and null says that the source does not state it. `metrics` are numbers under
the names of this project's summaries where they mean the same, under the source's own otherwise.
The objectives of goodput, where known, are the fact `goodput`: `tpot:50 e2el:2000`, milliseconds.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator

from traces.common.errors import MOST, InputError, near, refusal
from traces.common.files import replacing
from traces.common.settings import Many, Section, above, key, number, read, whole
from traces.importers.files import ImportReport, InputFile, check_out, printable, read_sources
from traces.importers.node import is_number
from traces.importers.profile import checked_count, checked_texts

FORMAT = "specdec-points"
VERSION = 1
MOST_REQUESTS = 10**9
OBJECTIVES = "goodput"  # the fact that states them
_OBJECTIVE = re.compile(r"\b(ttft|tpot|e2el):(\d{1,12}(?:\.\d{1,12})?)")


def rate(value: Any) -> float:
    """Requests per second above 0; `inf`, as a word or a number, for a closed loop."""
    if value in ("inf", math.inf):
        return math.inf
    if not is_number(value) or not 0 < value < MOST_REQUESTS:
        raise ValueError
    return float(value)


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return printable(text)


RATE = 'requests per second above 0, or "inf"'
Text = Annotated[str, AfterValidator(_text)]
Metrics = Annotated[dict[str, number(0, 1e300)], Field(min_length=1)]


class Point(Section):
    """One measurement: at one load, under one policy."""

    label: Text
    metrics: Metrics = key(accepted="a mapping of at least one name to numbers from 0")
    file: Text | None = None
    policy: Text | None = None  # None: not stated, compared with every policy
    model: Text | None = None
    max_concurrency: whole(1, MOST_REQUESTS) | None = None
    # inf: a closed loop; None: not stated
    request_rate: Annotated[float, PlainValidator(rate)] | None = key(None, accepted=RATE)
    burstiness: above(0, MOST_REQUESTS) | None = None
    facts: dict[str, str | int | float | bool | None] = key(
        {}, accepted="a mapping of names to texts, numbers, true, false or null"
    )

    @property
    def objectives(self) -> dict[str, float] | None:
        """Milliseconds by latency that `request_goodput` asks for; None: not stated."""
        return objectives_in(self.facts.get(OBJECTIVES))

    @property
    def closed(self) -> bool:
        """Whether a fixed number of clients sent the requests."""
        return self.request_rate == math.inf and self.max_concurrency is not None

    @property
    def open(self) -> bool:
        """Whether requests came at a rate."""
        return self.request_rate is not None and self.request_rate < math.inf


@dataclass(frozen=True, slots=True)
class PointsFile:
    """The points of one file, and what their source does not say."""

    path: Path
    importer: str
    source: str
    lacks: tuple[str, ...]
    points: tuple[Point, ...]


def write_points(
    args: argparse.Namespace,
    stated: Stated,
    sources: Sequence[InputFile],
    lacks: Sequence[str],
    points: Sequence[Point],
    lines: Sequence[str],
) -> ImportReport:
    """Write the file under a temporary name and rename it; `lines`: what was read."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "importer": args.format,
        "source": stated.source,
        "files": [one.described for one in sources],
        "lacks": list(lacks),
        "points": [
            one.model_dump() | ({"request_rate": "inf"} if one.request_rate == math.inf else {})
            for one in points
        ],
    }
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return ImportReport(tuple(lines), tuple(lacks), (args.out,), stated.warnings)


class _Head(Section):
    model_config = ConfigDict(extra="ignore")

    format: Literal[FORMAT] = key(accepted=f"{FORMAT}, of `python -m traces import`")
    version: whole(VERSION, VERSION) = key(accepted=str(VERSION))  # true is none
    importer: Text
    source: Text
    lacks: Many[Text]


def read_points(path: Path) -> PointsFile:
    """A checked file of points.

    Raises:
        InputError: naming file, key path and value.
    """
    (source,) = read_sources([path])
    root = source.json()
    head = read(_Head, root.value, where=root.source)
    nodes = root.require("points", "a list")
    points = [read(Point, one.value, f"{one.at}.", one.source) for one in nodes.entries()]
    if not points:
        nodes.refuse("at least one point")
    return PointsFile(path, head.importer, head.source, head.lacks, tuple(points))


def objectives_in(text: object) -> dict[str, float] | None:
    """Objectives written as `tpot:50 e2el:2000`; None for anything else."""
    found = _OBJECTIVE.findall(text) if isinstance(text, str) else []
    whole = " ".join(f"{name}:{value}" for name, value in found)
    if not found or whole != " ".join(str(text).split()) or len(dict(found)) < len(found):
        return None
    return {name: float(value) for name, value in found}


# ---------------- Options of the formats that become measured points.


POLICIES = Path(__file__).parents[2] / "conf" / "policy"  # a file for each, by name
_TEXTS = ("policy", "model", "source")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the command line says about every point."""

    policy: str | None
    model: str | None
    source: str
    max_concurrency: int | None
    request_rate: float | None
    burstiness: float | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """About a policy that nothing shipped is called: a run of one's own may be."""
        shipped = [path.stem for path in sorted(POLICIES.glob("*.yaml"))]
        if not shipped or self.policy is None or re.split(r"[ (,]", self.policy)[0] in shipped:
            return ()
        found = near(self.policy, shipped)[:MOST]
        note = f" (near it: {', '.join(found)})" if found else ""
        return (
            f"--policy is {self.policy!r:.60}, which no shipped policy is called{note}: it stands "
            "beside runs of a policy of that name alone",
        )

    def added(self, point: Point) -> Point:
        """The point with what its file does not state.

        Raises:
            InputError: the file states something else.
        """
        changes = {}
        for name in ("policy", "model", "max_concurrency", "request_rate", "burstiness"):
            given, own = getattr(self, name), getattr(point, name)
            if given is not None and own not in (None, given):
                option = "--" + name.replace("_", "-")
                raise InputError(
                    f"{option} is {given}, but {point.file} has {own}; accepted: no {option}"
                )
            changes[name] = own if given is None else given
        loop = self.max_concurrency is not None and changes["request_rate"] is None
        return point.with_(**changes | ({"request_rate": math.inf} if loop else {}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a file may leave out."""
    parser.add_argument("--policy", help="that was measured, as this project names it")
    parser.add_argument("--model", help="target model that was measured")
    parser.add_argument("--source", default="unstated", help="who measured")
    parser.add_argument("--max-concurrency", type=int, help="clients of a closed loop, or the cap")
    parser.add_argument("--request-rate", help="requests per second, or inf")
    parser.add_argument("--burstiness", help="of the gaps between requests (1: Poisson)")


def read_options(args: argparse.Namespace) -> tuple[list[InputFile], Stated]:
    """The files, and what the command line states.

    Raises:
        InputError: a bad path or option.
    """
    sources = read_sources(args.files)
    check_out(args.out, ".json", sources)
    texts = checked_texts(args, _TEXTS)
    stated = Stated(
        **texts,
        max_concurrency=checked_count("--max-concurrency", args.max_concurrency),
        request_rate=_number(args, "request_rate", RATE),
        burstiness=_number(args, "burstiness", "a finite number above 0"),
    )
    return sources, stated


def _number(args: argparse.Namespace, name: str, accepted: str) -> float | None:
    text = getattr(args, name)
    try:
        value = None if text is None else rate(float(text))
        if value == math.inf and name != "request_rate":
            raise ValueError
        return value
    except ValueError:
        option = "--" + name.replace("_", "-")
        raise InputError(refusal(option, printable(text), accepted)) from None


def load_lacks(points: Sequence[Point]) -> list[str]:
    """Named where a point could not be matched with a run for want of it."""
    if any(not point.closed and not point.open for point in points):
        return ["load (give --max-concurrency or --request-rate)"]
    return []
