"""What a spec comes to on a recording of D depths: limits checked, sizes, static shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from simulator.orders.specs import (
    MAX_NODES,
    BestFirstOrder,
    ChainOrder,
    Order,
    StaticOrder,
    refusal,
)
from traces.common.errors import InputError


def resolve(spec: Order, depths: int, ranks: int, conditioned: bool, source: str) -> Order:
    """`spec` with every default filled in, so that equal orders compare (and cache) equal.

    depths D and ranks (children known per node) are what the scores hold; conditioned says
    whether they depend on the parent. Raises InputError, naming `source`, for a spec beyond them.
    """
    if isinstance(spec, ChainOrder):
        length = depths if spec.length is None else spec.length
        within("ChainOrder length", length, depths, "depths", source)
        return BestFirstOrder(limited_scores("auto", conditioned), length, 1, length)
    if isinstance(spec, BestFirstOrder):
        cap = depths if spec.depth_cap is None else spec.depth_cap
        within("BestFirstOrder depth_cap", cap, depths, "depths", source)
        within("BestFirstOrder branch", spec.branch, ranks, "ranks per depth", source)
        nodes = min(spec.nodes, full_tree(spec.branch, cap))
        kind = limited_scores(spec.scores, conditioned)
        return replace(spec, scores=kind, nodes=nodes, depth_cap=cap)
    if isinstance(spec, StaticOrder):
        field = "widths" if spec.branching is None else "branching"
        given = getattr(spec, field)
        within("StaticOrder depths", len(given), depths, "depths", source, field, given)
        shape = static_shape(spec, depths)
        rank = int(shape[:, 1].max()) + 1
        within("StaticOrder rank", rank, ranks, "ranks per depth", source, field, given)
        if spec.prefixes:
            within("StaticOrder prefixes", max(spec.prefixes), len(shape), "nodes", "the shape")
        return replace(spec, scores=limited_scores(spec.scores, conditioned))
    raise InputError(f"order: {spec!r}, accepted: a ChainOrder, a BestFirstOrder or a StaticOrder")


def limited_scores(scores: str, conditioned: bool) -> str:
    """The kind of scores meant: all coincide where there is no Markov head."""
    if not conditioned:
        return "marginal"
    return "parent" if scores == "auto" else scores


def within(
    what: str,
    value: int,
    limit: int,
    unit: str,
    source: str,
    field: str | None = None,
    given: Any = None,
) -> None:
    """Raise about what an order needs more of than there is.

    what: order and field. field, given: of the field whose value asks for it, where it is another.
    """
    if value <= limit:
        return
    order, own = what.split()
    accepted, asked = f"up to {limit}, the {unit} of {source}", value
    if field is not None:
        accepted, asked = f"no more than {limit} {unit} ({value} here), as {source} has", given
    message = f"{what}: {value}, but {source} holds {limit} {unit}"
    raise refusal(order, field or own, asked, accepted, message)


def full_tree(branch: int, depths: int) -> int:
    """Nodes of the complete tree, or MAX_NODES if it has more."""
    total = level = 0
    for _ in range(depths):
        level *= branch
        level = level or branch
        total += level
        if total > MAX_NODES:
            return MAX_NODES
    return total


def static_shape(spec: StaticOrder, depths: int) -> np.ndarray:
    """(M, 3) int64 of parent index (-1 the anchor), 0-based rank, 1-based depth per node."""
    if spec.branching is not None:
        levels = [(children, None) for children in spec.branching]
    else:
        tail = (1,) * (depths - len(spec.widths)) if spec.tail_chain else ()
        levels = [(width, width) for width in spec.widths + tail]
    nodes: list[tuple[int, int, int]] = []
    level = [(-1, 0)]  # (node, sum of ranks along its path)
    for depth, (children, width) in enumerate(levels, start=1):
        ranked = (
            sorted(
                (rank_sum + rank, node, rank)
                for node, rank_sum in level
                for rank in range(children)
            )
            if width
            else [(0, node, rank) for node, _ in level for rank in range(children)]
        )
        chosen = ranked[:width]
        level = [(len(nodes) + k, rank_sum) for k, (rank_sum, _, _) in enumerate(chosen)]
        nodes += [(node, rank, depth) for _, node, rank in chosen]
        if len(nodes) > MAX_NODES:
            field = "widths" if spec.branching is None else "branching"
            message = f"StaticOrder: over {MAX_NODES} nodes at depth {depth}"
            accepted = f"up to {MAX_NODES} nodes"
            raise refusal("StaticOrder", field, getattr(spec, field), accepted, message)
    return np.array(nodes, dtype=np.int64)


def child_places(shape: np.ndarray) -> np.ndarray:
    """(M + 1, ranks) int64: index of the child of node m - 1 (0: the anchor) by rank, -1 = none."""
    places = np.full((len(shape) + 1, shape[:, 1].max() + 1), -1, dtype=np.int64)
    places[shape[:, 0] + 1, shape[:, 1]] = np.arange(len(shape))
    return places
