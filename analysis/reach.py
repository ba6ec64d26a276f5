"""How much of what can be gained over plain decoding a policy gains: runs against hindsight bounds.

    reach = (policy - plain) / (bound - plain), in output tokens/s

The bounds are those of the simulator's task `bounds`: O2 and O3 for a lone request, O5 for a batch;
plain decoding is theirs too, of the same texts at the same constant batch. "In the order" bounds
policies that verify first nodes of the bounds' own order, "free nodes" all whose candidates are its
children. A run weighs texts by its window, the bounds weigh each once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.bounds import Bounds, read_bounds
from analysis.compare import Block, Comparison, Row, compare
from analysis.intervals import Estimate, estimate
from analysis.summaries import Summary, read_summaries
from traces.common.errors import InputError

_FIRST = ("profile", "content_hash")  # of the keys that differ, those that say most


@dataclass(frozen=True, slots=True)
class Reach:
    """One policy at one concurrency."""

    setting: str  # what sets it apart from the others that are shown
    concurrency: int
    row: Row
    plain: float  # tokens/s, as are the two bounds
    in_order: float
    free: float

    def of(self, bound: float) -> Estimate | None:
        """The share of the gain up to `bound`, mean over seeds; None where there is no gain."""
        gain = bound - self.plain
        rates = [run.data["output_throughput"] for run in self.row.runs]
        return estimate([(rate - self.plain) / gain for rate in rates]) if gain > 0 else None


def reaches(comparisons: Sequence[Comparison], bounds: Bounds) -> list[Reach]:
    """Every policy at every concurrency.

    Raises:
        InputError: runs of another recording, split, profile or cost setting than the bounds',
            of several replicas or a workload's file, with arrivals instead of a closed loop, or
            of a batch size without a bound.
    """
    for comparison in comparisons:
        _check_setting(comparison.runs[0], bounds)
    _check_batches([block for one in comparisons for block in one.blocks], bounds)
    return [
        Reach(
            comparison.differs,
            block.load.max_concurrency,
            row,
            *bounds.of(_batch(block, row.runs[0])),
        )
        for comparison in comparisons
        for block in comparison.blocks
        for row in block.rows
    ]


def _check_setting(run: Summary, bounds: Bounds) -> None:
    _check_served(run)
    for group, ours in (("trace", _trace), ("latency", lambda node: node)):
        found, expected = ours(run.data[group]), ours(bounds.data[group])
        rest = sorted({*found, *expected} - set(_FIRST))
        for key in (*_FIRST, *rest):
            if found.get(key) != expected.get(key):
                raise InputError(
                    f"{run.path}: {group}.{key} is {_short(found, key)}, expected "
                    f"{_short(expected, key)} as in {bounds.path}"
                )


def _check_served(run: Summary) -> None:
    """The bounds are of one server's batch, and of the recorded texts as they are."""
    replicas = (run.data.get("server") or {}).get("replicas") or 1
    if replicas != 1:
        raise InputError(
            f"{run.path}: server.replicas is {replicas}, expected 1: the bounds are of the batch "
            "of one server"
        )
    workload = run.data.get("workload")
    if isinstance(workload, dict):
        raise InputError(
            f"{run.path}: workload is {workload.get('file')}, expected the recorded texts, of "
            "which the bounds are"
        )


def _trace(node: dict[str, Any]) -> dict[str, Any]:
    """What decides which texts are served; a recording may lie elsewhere under another name."""
    domains = node.get("domains")
    return {
        "content_hash": node["content_hash"],
        "split": node.get("split"),
        "domains": sorted(domains, key=repr) if isinstance(domains, list) else domains,
    }


def _short(node: dict[str, Any], key: str) -> str:
    """A value as text; a hash that an older file lacks is not known."""
    text = repr(node.get(key)) if key in node or key != "content_hash" else "not known"
    return text if len(text) <= 40 else text[:37] + "..."


def _check_batches(blocks: Sequence[Block], bounds: Bounds) -> None:
    """InputError with every batch that has no bound, and the command that makes them."""
    served = {_batch(block, row.runs[0]) for block in blocks for row in block.rows}
    lost = sorted(served - set(bounds.rates))
    if lost:
        what = f"batch {lost[0]} has" if len(lost) == 1 else f"batches {_listed(lost)} have"
        every = sorted({*served, *bounds.rates})
        trace, latency = bounds.data["trace"], bounds.data["latency"]
        raise InputError(
            f"{what} no bound in {bounds.path}, which has {_listed(sorted(bounds.rates))}; all: "
            f"python -m simulator task=bounds trace.recording={trace['recording']} "
            f"latency={latency['profile']} 'bounds.batches=[{','.join(map(str, every))}]' (with "
            "the other words that these bounds were made with)"
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _batch(block: Block, run: Summary) -> int:
    """Requests in every step of a closed loop."""
    if not block.load.closed:
        raise InputError(
            f"{run.path}: request_rate is {block.load.request_rate:g}, expected a closed loop: the "
            "bounds are of constant batches"
        )
    most = (run.data.get("server") or {}).get("max_num_seqs")
    return min(block.load.max_concurrency, most or block.load.max_concurrency)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dirs", metavar="RUN_DIR", nargs="+", help="every summary.json below it is read"
    )
    parser.add_argument(
        "--bounds",
        type=Path,
        required=True,
        metavar="BOUNDS.json",
        help="what python -m simulator task=bounds wrote for the same recording and profile",
    )
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table")


def run(args: argparse.Namespace, _command: str = "") -> list[Path]:
    """Print the table; writes no file."""
    from analysis.reach_text import FORMATS

    bounds = read_bounds(args.bounds)
    found = reaches(compare(read_summaries(args.run_dirs)), bounds)
    FORMATS[args.format](found, bounds)
    return []
