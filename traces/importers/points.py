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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from traces.common.errors import MOST, InputError, near
from traces.common.files import replacing
from traces.importers.files import ImportReport, InputFile, check_out, printable, read_sources
from traces.importers.node import Node, is_number
from traces.importers.profile import checked_count, checked_texts

FORMAT = "specdec-points"
VERSION = 1
MOST_REQUESTS = 10**9
_FACT = str | int | float | bool | None
OBJECTIVES = "goodput"  # the fact that states them
_OBJECTIVE = re.compile(r"\b(ttft|tpot|e2el):(\d{1,12}(?:\.\d{1,12})?)")


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: at one load, under one policy."""

    label: str
    metrics: Mapping[str, float]
    file: str | None = None
    policy: str | None = None  # None: not stated, compared with every policy
    model: str | None = None
    max_concurrency: int | None = None
    request_rate: float | None = None  # inf: a closed loop; None: not stated
    burstiness: float | None = None
    facts: Mapping[str, _FACT] = field(default_factory=dict)

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
    read: Sequence[str],
) -> ImportReport:
    """Write the file under a temporary name and rename it; says what was `read`."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "importer": args.format,
        "source": stated.source,
        "files": [one.described for one in sources],
        "lacks": list(lacks),
        "points": [_plain(point) for point in points],
    }
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return ImportReport(tuple(read), tuple(lacks), (args.out,), stated.warnings)


def _plain(point: Point) -> dict[str, Any]:
    rate = "inf" if point.request_rate == math.inf else point.request_rate
    return asdict(point) | {"request_rate": rate}


def read_points(path: Path) -> PointsFile:
    """A checked file of points.

    Raises:
        InputError: naming file, key path and value.
    """
    (source,) = read_sources([path])
    root = source.json()
    keys = root.mapping(f"a {FORMAT} file")
    for key, wanted in (("format", FORMAT), ("version", VERSION)):
        node = keys.get(key, Node(str(path), key, None))
        if node.value != wanted or isinstance(node.value, bool):
            node.refuse(f"{wanted!r} ({FORMAT} of `python -m traces import`)")
    points = [_point(node) for node in root.require("points", "a list").entries()]
    if not points:
        keys["points"].refuse("at least one point")
    return PointsFile(
        path,
        _text(root.require("importer", "a text")),
        _text(root.require("source", "a text")),
        tuple(_text(node) for node in root.require("lacks", "a list of texts").entries()),
        tuple(points),
    )


def _point(node: Node) -> Point:
    keys = node.mapping("a point, an object")
    unknown = sorted(set(keys) - set(Point.__dataclass_fields__))
    if unknown:
        keys[unknown[0]].refuse(f"no such key, but {', '.join(Point.__dataclass_fields__)}")
    metrics = node.require("metrics", "an object of numbers").mapping()
    if not metrics:
        keys["metrics"].refuse("at least one number")
    texts = {name: _optional(keys, name, _text) for name in ("file", "policy", "model")}
    return Point(
        _text(node.require("label", "a text")),
        {name: value.number() for name, value in metrics.items()},
        **texts,
        max_concurrency=_optional(keys, "max_concurrency", lambda n: n.whole(1, MOST_REQUESTS)),
        request_rate=_optional(keys, "request_rate", rate_of),
        burstiness=_optional(keys, "burstiness", positive),
        facts=_facts(keys),
    )


def _facts(keys: Mapping[str, Node]) -> dict[str, _FACT]:
    facts = keys["facts"].mapping() if "facts" in keys else {}
    for node in facts.values():
        if not isinstance(node.value, _FACT):
            node.refuse("a text, a number, true, false or null")
    return {name: node.value for name, node in facts.items()}


def _optional(keys: Mapping[str, Node], name: str, read) -> Any:
    node = keys.get(name)
    return None if node is None or node.value is None else read(node)


def _text(node: Node) -> str:
    if not isinstance(node.value, str) or not node.value.strip():
        node.refuse("a text")
    return printable(node.value)


def objectives_in(text: object) -> dict[str, float] | None:
    """Objectives written as `tpot:50 e2el:2000`; None for anything else."""
    found = _OBJECTIVE.findall(text) if isinstance(text, str) else []
    whole = " ".join(f"{name}:{value}" for name, value in found)
    if not found or whole != " ".join(str(text).split()) or len(dict(found)) < len(found):
        return None
    return {name: float(value) for name, value in found}


def rate_of(node: Node) -> float:
    """Requests per second above 0; `inf`, as a word or a number, for a closed loop."""
    if node.value in ("inf", math.inf) and not isinstance(node.value, bool):
        return math.inf
    if not is_number(node.value) or not 0 < node.value < MOST_REQUESTS:
        node.refuse('requests per second above 0, or "inf"')
    return float(node.value)


def positive(node: Node) -> float:
    """A finite number above 0."""
    if not is_number(node.value) or not 0 < node.value < MOST_REQUESTS:
        node.refuse("a finite number above 0")
    return float(node.value)


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
        return replace(point, **changes | ({"request_rate": math.inf} if loop else {}))


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
        request_rate=_number(args, "request_rate", rate_of),
        burstiness=_number(args, "burstiness", positive),
    )
    return sources, stated


def _number(args: argparse.Namespace, name: str, check) -> float | None:
    text = getattr(args, name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = printable(text)
    return check(Node("command line", "--" + name.replace("_", "-"), value))


def load_lacks(points: Sequence[Point]) -> list[str]:
    """Named where a point could not be matched with a run for want of it."""
    if any(not point.closed and not point.open for point in points):
        return ["load (give --max-concurrency or --request-rate)"]
    return []
