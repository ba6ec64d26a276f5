"""Options of the formats that become measured points."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traces.errors import InputError
from traces.importers.files import Source, check_out, printable, read_sources
from traces.importers.node import Node
from traces.importers.options import checked_count, checked_texts
from traces.importers.points import Point, positive, rate_of
from traces.near import MOST, near

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


def read_options(args: argparse.Namespace) -> tuple[list[Source], Stated]:
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
