"""Sorted prefix mass: how probable the N-th best node of a drafter's tree is, in the mean.

A node's prefix mass is the product of the drafter's probabilities along its path. Published
curves come with the package; those of a recording follow from its scores.
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

import traces
from traces.common.errors import InputError

NODES, ANCHORS, BRANCH = 128, 200, 32
PUBLISHED = Path(traces.__file__).parent / "published" / "cast_mass_curves"


@dataclass(frozen=True, slots=True)
class MassCurve:
    """Mean mass of the N-th largest node, N from 1."""

    name: str
    mass: tuple[float, ...]  # (N,)
    source: str


def published_curves() -> list[MassCurve]:
    """The curves transcribed from CAST, one per domain, in the file's order."""
    import yaml

    header = yaml.safe_load(PUBLISHED.with_suffix(".yaml").read_text(encoding="utf-8"))
    source = f"{header['target']}, temperature {header['temperature']:g}; "
    source += " ".join(header["source"].split()).rstrip(".")
    rows: dict[str, dict[int, float]] = {}
    with PUBLISHED.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            own = rows.setdefault(row["domain"], {})
            own[int(row["node_rank"])] = float(row["mean_prefix_mass"])
    return [
        MassCurve(f"{domain} (CAST)", tuple(mass for _, mass in sorted(own.items())), source)
        for domain, own in rows.items()
    ]


def recorded_curve(path: Path) -> MassCurve:
    """Of a recording: the mean over anchors spread evenly over it.

    The tree is the best-first one of the drafter's law given the parent token where the recording
    holds it, and of the scores by depth otherwise; of a node's children only the `BRANCH` best.

    Raises:
        InputError: not a recording, or one without anchors.
    """
    import numpy as np

    from traces.recordings.files import read_recording

    recording = read_recording(path)
    if not recording.num_anchors:
        raise InputError(f"{path}: no anchors, expected a recording with outputs")
    count = min(ANCHORS, recording.num_anchors)
    anchors = np.unique(np.linspace(0, recording.num_anchors - 1, count).astype(int)).tolist()
    total = np.zeros(NODES)
    for anchor in anchors:
        found = list(sorted_masses(recording, anchor))
        total[: len(found)] += found
    mass = tuple((total / len(anchors)).tolist())
    name = path.stem.partition("-00")[0]
    source = f"{path.name} ({recording.content_hash[:12]}), {len(anchors)} of its anchors"
    return MassCurve(name, mass, f"{source}, temperature {recording.temperature:g}")


def sorted_masses(recording: Any, anchor: int) -> Iterator[float]:
    """Masses of the `NODES` most probable nodes below an anchor, falling."""
    rows: dict[tuple[int, int], Any] = {}

    def children(depth: int, parent: int) -> tuple[Any, Any]:
        if (depth, parent) not in rows:
            tokens, logq = recording.conditional(anchor, depth, [parent], BRANCH)
            rows[depth, parent] = tokens[0], logq[0]
        return rows[depth, parent]

    root = int(recording.anchor_tokens([anchor])[0])
    heap: list[tuple[float, int, int, int, float]] = []  # -log mass, depth, parent, rank, log above

    def push(depth: int, parent: int, rank: int, above: float) -> None:
        tokens, logq = children(depth, parent)
        if rank < len(tokens) and logq[rank] > -float("inf"):
            heapq.heappush(heap, (-(above + float(logq[rank])), depth, parent, rank, above))

    push(0, root, 0, 0.0)
    for _ in range(NODES):
        if not heap:
            return
        cost, depth, parent, rank, above = heapq.heappop(heap)
        yield exp(-cost)
        push(depth, parent, rank + 1, above)  # the next sibling
        if depth + 1 < recording.depths:
            push(depth + 1, int(children(depth, parent)[0][rank]), 0, -cost)
