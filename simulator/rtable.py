"""Committed round length R of every tree rule, by domain and node budget (`task=rtable`).

"Marginal" is two rules for a semi-autoregressive drafter: without its Markov bias, and with the
bias of its greedy chain. A published comparison depends on which is meant, so both are here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.inputs import choose_sequences, load_recording
from simulator.results import write_files
from traces.errors import InputError
from traces.recording import Recording

NAME = "rtable.csv"
HEADER = ("domain", "order", "nodes", "R")


@dataclass(frozen=True, slots=True)
class Request:
    """What to tabulate."""

    recording: Recording
    sequences: np.ndarray
    nodes: tuple[int, ...]


def load(cfg: Mapping[str, Any]) -> Request:
    """Read and check the `trace` and `rtable` nodes.

    Raises:
        InputError: a bad recording, split, domain or node budget.
    """
    node = cfg.get("rtable") or {}
    nodes = node.get("nodes", [15, 31, 63, 127])
    whole = isinstance(nodes, list) and nodes and all(type(n) is int and n > 0 for n in nodes)
    if not whole:
        raise InputError(f"rtable.nodes is {nodes!r}; accepted: a list of whole numbers from 1")
    recording = load_recording(cfg["trace"])
    trace = {"split": node.get("split"), "domains": cfg["trace"].get("domains")}
    sequences = choose_sequences(trace, recording)
    return Request(recording, sequences, tuple(sorted(set(nodes))))


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the table and write `rtable.csv` into `folder`.

    Raises:
        InputError: see `load`.
    """
    request = load(cfg)
    rows = list(rows_of(request))
    write_files(folder, {NAME: lambda path: _write(path, rows)})
    _print(request, rows)


def rows_of(request: Request) -> Iterator[tuple[str, str, int, float]]:
    """(domain, order, nodes, R), pooled over rounds, each along its own trajectory.

    The row of all domains pools their rounds.
    """
    from simulator.orders import acceptance_length_by_budget, order_table

    recording = request.recording
    groups = dict(_domains(request))
    for name, spec, budgets in _orders(request):
        table = order_table(spec, recording)
        budgets = sorted({min(budget, table.max_nodes) for budget in budgets})
        for domain, sequences in groups.items():
            lengths = acceptance_length_by_budget(table, recording, sequences, budgets)
            for budget in budgets:
                yield domain, name, budget, float(lengths[budget])


def _orders(request: Request):
    from simulator.orders import BestFirstOrder, ChainOrder

    yield "chain", ChainOrder(), [request.recording.depths]
    rules = ("marginal", "marginal_biased", "parent")
    for scores in rules if request.recording.encoding == "hidden" else rules[:1]:
        yield scores, BestFirstOrder(scores=scores, nodes=request.nodes[-1]), request.nodes


def _domains(request: Request) -> Iterator[tuple[str, np.ndarray]]:
    domain = request.recording["domain"][request.sequences]
    for index, name in enumerate(request.recording.domains):
        if (domain == index).any():
            yield name, request.sequences[domain == index]
    yield "all", request.sequences


def _write(path: Path, rows: list[tuple]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows])


def _print(request: Request, rows: list[tuple]) -> None:
    from rich.console import Console
    from rich.table import Table

    recording, count = request.recording, len(request.sequences)
    domains = list(dict.fromkeys(row[0] for row in rows))
    table = Table("order", "nodes", *domains, box=None, pad_edge=False)
    values = {(domain, order, nodes): length for domain, order, nodes, length in rows}
    for order, nodes in dict.fromkeys((row[1], row[2]) for row in rows):
        cells = (f"{values[domain, order, nodes]:.2f}" for domain in domains)
        table.add_row(order, str(nodes), *cells)
    print(
        f"R (tokens per round) of {recording.meta['pair']}, T = {recording.temperature:g}, ", end=""
    )
    print(f"{count} texts, pooled over rounds")
    Console(highlight=False).print(table)
