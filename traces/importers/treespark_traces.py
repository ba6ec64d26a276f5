"""TreeSpark's traces (arXiv 2609.22098) as measured acceptance.

`{"rows": [{"tree_sizes": [...], "accepted_lens": [...]}]}`: a row for every prompt, an entry for
every round. `accepted_lens` counts the bonus token, so 1 is a round that accepted no draft.
"""

from __future__ import annotations

import argparse

from traces.importers import points as point_options
from traces.importers.files import ImportReport, InputFile, counted, printable, read_line
from traces.importers.node import Node
from traces.importers.points import Point, write_points

HELP = "TreeSpark's traces (JSON) -> measured acceptance, points FILE.json"
LACKS = (
    "drafter scores and tokens (no policy but the measured one can be replayed)",
    "times",
    "prompts and temperature",
    "where a text ended (rounds are not clipped there)",
)
KEYS = ("tree_sizes", "accepted_lens")  # of a row
MOST = 10**6  # nodes of a tree


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The load, and what a tree's size counts."""
    point_options.add_arguments(parser)
    parser.add_argument(
        "--tree-sizes",
        choices=("nodes", "packed"),
        default="nodes",
        help="whether sizes count draft nodes alone, or the root as well (default: nodes)",
    )


def run(args: argparse.Namespace) -> ImportReport:
    """Import every file as one point.

    Raises:
        InputError: naming file, key path and value.
    """
    sources, stated = point_options.read_options(args)
    points, lines = [], []
    for source in sources:
        metrics, facts, unused = _read(source, 1 if args.tree_sizes == "packed" else 0)
        label, file = printable(source.path.stem) or "traces", source.described["name"]
        points.append(stated.added(Point(label=label, metrics=metrics, file=file, facts=facts)))
        what = f"{counted(facts['prompts'], 'prompt')}, {counted(facts['rounds'], 'round')}"
        lines.append(read_line(source, what, unused))
    lacks = (*LACKS, *point_options.load_lacks(points))
    return write_points(args, stated, sources, lacks, points, lines)


def _read(source: InputFile, root_nodes: int) -> tuple[dict[str, float], dict[str, int], set[str]]:
    """Metrics, pooled over rounds; how many prompts and rounds there are; keys not used."""
    root = source.json()
    table = root.require("rows", "a list with an object for every prompt")
    sizes, lengths, means = [], [], []
    unused = set(root.mapping()) - {"rows"}
    for row in table.entries("a list with an object for every prompt"):
        nodes, committed = _rounds(row, root_nodes)
        unused.update(f"rows[].{key}" for key in row.mapping() if key not in KEYS)
        sizes += nodes
        lengths += committed
        if committed:
            means.append(sum(committed) / len(committed))
    rounds, nodes = len(lengths), sum(sizes)
    if not rounds:
        table.refuse("at least one round")
    metrics = {
        "acceptance_length": sum(lengths) / rounds,
        "acceptance_length_by_prompt": sum(means) / len(means),
        "draft_nodes_per_request": nodes / rounds,
    }
    if nodes:
        metrics["share_verified_accepted"] = (sum(lengths) - rounds) / nodes
    return metrics, {"prompts": len(table.value), "rounds": rounds}, unused


def _rounds(row: Node, root: int) -> tuple[list[int], list[int]]:
    """Draft nodes and committed tokens of a prompt's rounds."""
    sizes = row.require("tree_sizes", "a list of numbers").entries()
    lengths = row.require("accepted_lens", "a list of numbers").entries()
    if len(sizes) != len(lengths):
        node = row.require("accepted_lens", "a list")
        node.refuse(f"{counted(len(sizes), 'entry', 'entries')}, as in tree_sizes")
    nodes = [node.whole(root, MOST) - root for node in sizes]
    for size, node in zip(nodes, lengths, strict=True):
        node.whole(1, size + 1)  # the bonus, and no more drafts than nodes
    return nodes, [node.value for node in lengths]
