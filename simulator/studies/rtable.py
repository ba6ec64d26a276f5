"""Committed round length R of every tree rule, by domain and node budget (`task=rtable`).

"Marginal" is two rules for a semi-autoregressive drafter: without its Markov bias, and with the
bias of its greedy chain. A published comparison depends on which is meant, so both are here.

An imported log of rounds is tabulated at the rounds it has, the same for every rule ("per-round"):
they start where the logged chain's rounds started, which flatters or harms the other rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.policies.shared.stop_rules import DEPLOYED_WIDTHS, deploy_width, fit_line, stop_width
from simulator.studies.published.common import by_domain
from simulator.studies.report import csv_text, write_texts
from simulator.studies.settings import Rtable
from traces.common.errors import InputError
from traces.common.settings import read
from traces.common.table import Table
from traces.recordings.recording import Recording

NAME = "rtable.csv"
HEADER = ("domain", "order", "nodes", "R")
RULES = ("marginal", "marginal_biased", "parent")
BRANCH = 8  # children of a node, as published
PER_ROUND = "per-round"  # column `basis`, of imported logs alone


@dataclass(frozen=True, slots=True)
class RtableRequest:
    """What to tabulate."""

    recording: Recording
    sequences: np.ndarray
    nodes: tuple[int, ...]
    cost: StepCost | None = None  # of a log of rounds, for CAST's width rule

    @property
    def per_round(self) -> bool:
        return self.cost is not None

    @property
    def branch(self) -> int:
        """Children of every node: BRANCH, or all that a recording's pools hold."""
        if "pool_token" not in self.recording:
            return BRANCH
        return min(BRANCH, self.recording["pool_token"].shape[2])


def load(cfg: Mapping[str, Any]) -> RtableRequest:
    """Read and check the `trace` and `rtable` nodes.

    Raises:
        InputError: a bad recording, split, domain or node budget.
    """
    asked, recording = read(Rtable, cfg.get("rtable") or {}), load_recording(cfg["trace"], True)
    trace = {"split": asked.split, "domains": cfg["trace"].get("domains")}
    cost = load_cost(cfg["latency"]) if recording.meta.get("per_round") else None
    return RtableRequest(recording, choose_sequences(trace, recording), asked.nodes, cost)


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the table and write `rtable.csv` into `folder`.

    Raises:
        InputError: see `load`.
    """
    request = load(cfg)
    recording, count = request.recording, len(request.sequences)
    rows = list(rows_of(request))
    basis = {"basis": PER_ROUND} if request.per_round else {}
    records = [dict(zip(HEADER, row, strict=True)) | basis for row in rows]
    write_texts(folder, {NAME: csv_text(records, (*HEADER, *basis))})
    how = f"{count} texts, pooled over rounds"
    if request.per_round:
        how = f"{PER_ROUND}: mean over {count} logged rounds, where the log's chain had its own"
    heat = f"T = {recording.temperature:g}"
    print(f"R (tokens per round) of {recording.meta['pair']}, {heat}, {how}")
    if request.branch < BRANCH:
        print(f"trees branch {request.branch} ways, as the pools hold no more (else {BRANCH})")
    table: dict[tuple[str, int], dict[str, str]] = {}
    for domain, order, nodes, length in rows:
        table.setdefault((order, nodes), {})[domain] = f"{length:.2f}"
    domains = list(dict.fromkeys(row[0] for row in rows))
    body = [[order, str(nodes), *row.values()] for (order, nodes), row in table.items()]
    Table(["order", "nodes", *domains], body).emit("table")
    if request.per_round:
        print(cast_width(request))
        for text in recording.meta.get("lacks") or ():
            print(f"lacks: {text}")


def rows_of(request: RtableRequest) -> Iterator[tuple[str, str, int, float]]:
    """(domain, order, nodes, R), pooled over rounds, each along its own trajectory.

    The row of all domains pools their rounds.
    """
    from simulator.orders import (
        BestFirstOrder,
        ChainOrder,
        acceptance_length_by_budget,
        order_table,
    )

    recording = request.recording
    groups, branch = by_domain(recording, request.sequences), request.branch
    orders = [("chain", ChainOrder(), [recording.depths])]
    for scores in RULES if recording.encoding == "hidden" else RULES[:1]:
        order = BestFirstOrder(scores=scores, nodes=request.nodes[-1], branch=branch)
        orders.append((scores, order, request.nodes))
    for name, spec, budgets in orders:
        table = order_table(spec, recording)
        budgets = sorted({min(budget, table.max_nodes) for budget in budgets})
        for domain, sequences in groups.items():
            lengths = acceptance_length_by_budget(table, recording, sequences, budgets)
            for budget in budgets:
                yield domain, name, budget, float(lengths[budget])


def cast_width(request: RtableRequest) -> str:
    """What CAST's width rule gives for the log's mean prefix masses and the chosen latency."""
    from simulator.orders import BestFirstOrder, order_table
    from simulator.orders.replay import prefix_mass

    order = BestFirstOrder(scores="marginal", nodes=DEPLOYED_WIDTHS[-1], branch=request.branch)
    table = order_table(order, request.recording)
    rho = prefix_mass(table, request.recording.anchor_offset[request.sequences])  # one anchor each
    profile = request.cost.profile.name
    try:
        c0_ms, c1_ms = fit_line(*request.cost.width_probe())
    except InputError as error:
        return f"CAST's width rule: not with the latency profile {profile} ({error})"
    stop = stop_width(rho, c0_ms, c1_ms)
    return (
        f"CAST's width rule on the latency profile {profile}: stop at {stop}, deploy "
        f"{deploy_width(stop)} nodes ({PER_ROUND} masses)"
    )
