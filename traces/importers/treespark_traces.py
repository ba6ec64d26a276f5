"""TreeSpark's traces (arXiv 2609.22098) as measured acceptance.

`{"rows": [{"tree_sizes": [...], "accepted_lens": [...]}]}`: a row for every prompt, an entry for
every round. `accepted_lens` counts the bonus token, so 1 is a round that accepted no draft.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over the rounds of one file."""

    prompts: int
    rounds: int
    committed: int
    nodes: int
    mean_by_prompt: float  # of the committed length
    unused: frozenset[str]  # keys

    def metrics(self) -> dict[str, float]:
        """Pooled over rounds, under the names of the project's summaries where they are its own."""
        accepted = self.committed - self.rounds
        metrics = {
            "acceptance_length": self.committed / self.rounds,
            "acceptance_length_by_prompt": self.mean_by_prompt,
            "draft_nodes_per_request": self.nodes / self.rounds,
        }
        if self.nodes:
            metrics["share_verified_accepted"] = accepted / self.nodes
        return metrics


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
        one = _read(source, 1 if args.tree_sizes == "packed" else 0)
        point = Point(
            label=printable(source.path.stem) or "traces",
            metrics=one.metrics(),
            file=source.described["name"],
            facts={"prompts": one.prompts, "rounds": one.rounds},
        )
        points.append(stated.added(point))
        what = f"{counted(one.prompts, 'prompt')}, {counted(one.rounds, 'round')}"
        lines.append(read_line(source, what, one.unused))
    lacks = (*LACKS, *point_options.load_lacks(points))
    return write_points(args, stated, sources, lacks, points, lines)


def _read(source: InputFile, root_nodes: int) -> Counts:
    root = source.json()
    table = root.require("rows", "a list with an object for every prompt")
    rounds = committed = nodes = 0
    means, unused = [], set(root.mapping()) - {"rows"}
    for row in table.entries("a list with an object for every prompt"):
        sizes, lengths = _rounds(row, root_nodes)
        unused.update(f"rows[].{key}" for key in row.mapping() if key not in KEYS)
        rounds += len(lengths)
        committed += sum(lengths)
        nodes += sum(sizes)
        if lengths:
            means.append(sum(lengths) / len(lengths))
    if not rounds:
        table.refuse("at least one round")
    mean = sum(means) / len(means)
    return Counts(len(table.value), rounds, committed, nodes, mean, frozenset(unused))


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
