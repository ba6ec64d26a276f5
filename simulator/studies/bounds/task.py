"""Hindsight bounds of a recording at the price of a latency profile (`task=bounds`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import Source, StepCost
from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.orders import order_table
from simulator.orders.build import resolve_for
from simulator.orders.specs import BestFirstOrder, OrderError
from simulator.policies.checks import verifies_trees
from simulator.results.printing import short_path
from simulator.results.summary import latency_facts, trace_facts, what_if_reason
from simulator.studies.bounds.batched import batched_bound
from simulator.studies.bounds.lone import (
    BoundedTexts,
    Schedule,
    best_rounds,
    best_schedule,
    breakpoints,
    free_options,
    order_options,
    pool_prefix,
    price_of,
    ratio_rounds,
    table_prefix,
)
from simulator.studies.report import digits, json_text, write_texts
from simulator.studies.settings import Bounds
from traces.common.settings import read
from traces.common.table import Table
from traces.recordings.recording import Recording

NAME = "bounds.json"
FORMAT, VERSION = "specdec-bounds", 1
COLUMNS = {
    "plain": "plain",
    "o1_ratio": "O1 ratio",
    "o1_price": "O1 price",
    "o2": "O2",
    "o3": "O3",
    "o5": "O5",
    "o5_free": "O5 free",
}


@dataclass(frozen=True, slots=True)
class BoundsRequest:
    """What to bound: every policy that serves these texts, at these constant batch sizes."""

    config: Mapping[str, Any]
    recording: Recording
    texts: BoundedTexts
    cost: StepCost
    order: BestFirstOrder
    batches: tuple[int, ...]


def load(cfg: Mapping[str, Any]) -> BoundsRequest:
    """Read and check the `trace`, `latency` and `bounds` nodes.

    Raises:
        InputError: a bad recording, profile, split, domain or setting.
    """
    asked = read(Bounds, cfg.get("bounds") or {})
    cost, recording = load_cost(cfg["latency"]), load_recording(cfg["trace"])
    texts = BoundedTexts.of(recording, choose_sequences(cfg["trace"], recording))
    try:
        order = BestFirstOrder(nodes=asked.nodes, branch=asked.branch, scores=asked.scores)
        resolve_for(order, recording)
    except OrderError as error:
        raise error.under("bounds") from None
    if cost.strict:  # what lies outside the tables is refused before anything is computed
        cost.prefill_s(int(recording["prompt_len"][texts.sequences].max()))
        for batch in asked.batches:
            packed, context = np.full(batch, order.nodes + 1), np.full(batch, texts.context.max())
            cost.step(packed, context, drafted=True, tree=True)
    return BoundsRequest(cfg, recording, texts, cost, order, asked.batches)


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the bounds and write `bounds.json` into `folder`.

    Raises:
        InputError: see `load`.
    """
    result = report(load(cfg))
    write_texts(folder, {NAME: json_text(result)})
    rows = []
    for entry in result["batches"]:
        found = entry["bounds"]
        rates = [found[key]["output_throughput"] if key in found else None for key in COLUMNS]
        rows.append([str(entry["batch"]), *(digits(rate, 1) for rate in rates)])
    trace, latency, order = result["trace"], result["latency"], result["order"]
    print(
        f"Output tokens/s that no policy exceeds: {trace['pair']}, T = {trace['temperature']:g}, "
        f"{result['texts']} texts of the {trace['split']} split, {latency['profile']} "
        f"({latency['model']})\norder: best-first by {order['scores']} scores, {order['nodes']} "
        f"nodes of {order['branch']} children"
    )
    Table(["batch", *COLUMNS.values()], rows, align="r" * (1 + len(COLUMNS))).emit("table")
    print("\n".join(_legend(result)))
    print(f"results in {short_path(folder / NAME)}")


def report(request: BoundsRequest) -> dict[str, Any]:
    """What `bounds.json` holds: throughputs in output tokens/s, seconds of the server in all."""
    table = order_table(request.order, request.recording)
    texts, reason = request.texts, what_if_reason(request)
    prefix = np.maximum(
        table_prefix(table, texts.anchors),
        pool_prefix(request.recording, texts.anchors, request.order.branch),
    )
    return {
        "format": FORMAT,
        "version": VERSION,
        "trace": trace_facts(request),
        "latency": latency_facts(request),
        "what_if": reason is not None,
        "what_if_reason": reason,
        "order": {name: getattr(request.order, name) for name in ("nodes", "branch", "scores")},
        "texts": len(texts.sequences),
        "tokens": int(texts.tokens.sum()),
        "prefill_s": float(texts.prefill_s(request.cost).sum()),
        "batches": [_batch(request, batch, table, prefix) for batch in request.batches],
    }


def _batch(request: BoundsRequest, batch: int, table, prefix: np.ndarray) -> dict[str, Any]:
    found = dict(_alone(request, table, prefix)) if batch == 1 else {}
    found |= dict(_batched(request, batch, table, prefix))
    bounds = {"plain": _plain(request, batch)}
    for name, schedule in found.items():
        bounds[name] = _rate(request, float(schedule.seconds.sum())) | {
            "tokens_per_round": len(request.texts.anchors) / len(schedule.width),
            "nodes_per_round": float(schedule.width.mean()),
            "plain_share": 1 - float(schedule.drafted.mean()),
        }
    nodes = math.ceil(max(bounds[name]["nodes_per_round"] for name in found))
    # Origins of the step times in play: plain steps and drafted ones, at every context's end.
    context, bits = request.texts.context, 0
    for kv in (int(context.min()), int(context.max())):
        for width in (0, nodes):
            packed = np.full(batch, width + 1)
            step = request.cost.step(packed, np.full(batch, kv), drafted=width > 0, tree=width > 0)
            bits |= int(step.source)
    sources = [flag.name.lower() for flag in Source if bits & flag]
    return {"batch": batch, "step_time_from": sources, "bounds": bounds}


def _alone(request: BoundsRequest, table, prefix: np.ndarray) -> Iterator[tuple[str, Schedule]]:
    options = order_options(table, request.texts, request.cost)
    yield "o1_ratio", ratio_rounds(options)
    yield "o1_price", best_rounds(options, price_of(options))
    yield "o2", best_schedule(options)
    free = free_options(prefix, table.depths, table.max_nodes, request.texts, request.cost)
    yield "o3", best_schedule(free)


def _batched(request: BoundsRequest, batch: int, table, prefix) -> Iterator[tuple[str, Schedule]]:
    cost, texts, depth = request.cost, request.texts, np.arange(table.depths + 1)
    width, widest = breakpoints(table, texts.anchors), max(table.max_nodes, table.depths)
    in_order = {"tree": verifies_trees(table), "ordered": table.size[texts.anchors][:, None]}
    yield "o5", batched_bound(cost, texts, batch, width, widest=widest, **in_order).schedule
    width = np.where(depth <= prefix[:, None], depth, -1)
    free = {"tree": False, "ordered": np.maximum(width, 0)}
    yield "o5_free", batched_bound(cost, texts, batch, width, widest=widest, **free).schedule


def _plain(request: BoundsRequest, batch: int) -> dict[str, float]:
    """Plain decoding, each text as if its batch stood where it stands: no bound, what it takes."""
    at, count = np.unique(request.texts.context, return_counts=True)
    one = np.ones(batch, np.int64)
    steps = (request.cost.step(one, one * kv, drafted=False, tree=False) for kv in at.tolist())
    step_s = np.array([step.total_s for step in steps])
    return _rate(request, float((step_s * count).sum()) / batch)


def _rate(request: BoundsRequest, decode_s: float) -> dict[str, float]:
    seconds = decode_s + float(request.texts.prefill_s(request.cost).sum())
    return {"output_throughput": int(request.texts.tokens.sum()) / seconds, "seconds": seconds}


def _legend(result: Mapping[str, Any]) -> Iterator[str]:
    yield "O1: the best width of every single round (no bound: myopic), by 1 + a over R or by price"
    yield "O2: the best schedule of widths in the order, for a lone request"
    yield "O3: the same, of the realised path alone, as far as any order of these children holds it"
    yield "O5, O5 free: those two in a batch of constant size, by an affine floor of a step's cost"
    for entry in result["batches"]:
        yield f"step times at batch {entry['batch']}: {', '.join(entry['step_time_from'])}"
    if result["trace"]["temperature"] > 0:
        yield "T > 0: of the recorded sample, known in advance; sampled drafts are not in O3's pool"
    if result["what_if"]:
        yield f"what-if: {result['what_if_reason']}"
