"""Flat acceptance lists: for every output position, what a round starting there accepts.

A JSON list of whole numbers, or one number a line; one file is one text.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from traces.common.errors import InputError
from traces.importers import points as point_options
from traces.importers.files import ImportReport, InputFile, counted, printable, read_line
from traces.importers.node import Node
from traces.importers.points import Point, write_points

HELP = "flat lists, an accepted length for every output position -> points FILE.json"
LACKS = (
    "drafter scores and tokens (the policy and width that were logged cannot be changed)",
    "tree sizes, batch dimension and times",
    "prompts and temperature",
    "where texts end (every file is read as one text)",
)
MOST = 10**6  # accepted tokens of a round
_WHOLE = re.compile(r"[0-9]{1,7}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The load, and what the numbers count."""
    point_options.add_arguments(parser)
    parser.add_argument(
        "--with-bonus", action="store_true", help="the numbers count the bonus token (from 1)"
    )
    parser.add_argument("--label", default="accepted-list", help="of the point")


def run(args: argparse.Namespace) -> ImportReport:
    """Import all files, one text each, as one point.

    Raises:
        InputError: naming file, line or index, and value.
    """
    sources, stated = point_options.read_options(args)
    label = printable(args.label) or "accepted-list"
    texts = [_read(source, 1 if args.with_bonus else 0) for source in sources]
    lengths = [length for text in texts for length in text]
    rounds = [length for text in texts for length in _rounds(text)]
    metrics = {
        "acceptance_length": 1 + sum(rounds) / len(rounds),  # not clipped at the end
        "committed_round_length": len(lengths) / len(rounds),
        "acceptance_length_over_positions": 1 + sum(lengths) / len(lengths),
    }
    facts = {"texts": len(texts), "positions": len(lengths), "rounds": len(rounds)}
    file = sources[0].described["name"] if len(sources) == 1 else None
    point = stated.added(Point(label=label, metrics=metrics, file=file, facts=facts))
    lacks = (*LACKS, *point_options.load_lacks([point]))
    read = zip(sources, texts, strict=True)
    lines = [read_line(source, counted(len(text), "position")) for source, text in read]
    return write_points(args, stated, sources, lacks, [point], lines)


def _rounds(accepted: list[int]) -> list[int]:
    """Of the rounds along one text: that at p is followed by one at p + accepted + 1."""
    at, found = 0, []
    while at < len(accepted):
        found.append(accepted[at])
        at += accepted[at] + 1
    return found


def _read(source: InputFile, bonus: int) -> list[int]:
    """Accepted draft tokens by position."""
    text = source.text()
    if text.lstrip().startswith("["):
        nodes = source.json().entries()
    else:
        words = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
        nodes = [_of_line(source, number, word) for number, word in words if word]
    if not nodes:
        raise InputError(f"{source.path}: holds no number; accepted: at least one")
    return [node.whole(bonus, MOST) - bonus for node in nodes]


def _of_line(source: InputFile, number: int, word: str) -> Node:
    node = Node(str(source.path), f"line {number}", word)
    if not _WHOLE.fullmatch(word):
        node.refuse("one whole number a line, or a JSON list")
    return replace(node, value=int(word))
