"""Hindsight bounds of a recording at the price of a latency profile (`task=bounds`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.orders.specs import BestFirstOrder, OrderError
from simulator.results.files import write_files
from simulator.studies.bounds.options import BoundedTexts
from traces.common.errors import InputError
from traces.recordings.recording import Recording

NAME = "bounds.json"
MOST = 4096  # requests of a batch
_DEFAULTS = {"nodes": 63, "branch": 8, "scores": "auto", "batches": [1, 4, 16, 64]}


@dataclass(frozen=True, slots=True)
class Request:
    """What to bound: every policy that serves these texts, at these constant batch sizes."""

    config: Mapping[str, Any]
    recording: Recording
    texts: BoundedTexts
    cost: StepCost
    order: BestFirstOrder
    batches: tuple[int, ...]


def load(cfg: Mapping[str, Any]) -> Request:
    """Read and check the `trace`, `latency` and `bounds` nodes.

    Raises:
        InputError: a bad recording, profile, split, domain or setting.
    """
    from simulator.orders.build import resolve_for

    node = _DEFAULTS | dict(cfg.get("bounds") or {})
    batches = _batches(node.pop("batches"))
    order = _order(node)
    cost = load_cost(cfg["latency"])
    recording = load_recording(cfg["trace"])
    texts = BoundedTexts.of(recording, choose_sequences(cfg["trace"], recording))
    try:
        resolve_for(order, recording)
    except OrderError as error:
        raise error.under("bounds") from None
    if cost.strict:  # what lies outside the tables is refused before anything is computed
        cost.prefill_s(int(recording["prompt_len"][texts.sequences].max()))
        for batch in batches:
            packed, context = np.full(batch, order.nodes + 1), np.full(batch, texts.context.max())
            cost.step(packed, context, drafted=True, tree=True)
    return Request(cfg, recording, texts, cost, order, batches)


def _order(node: Mapping[str, Any]) -> BestFirstOrder:
    try:
        return BestFirstOrder(**node)
    except OrderError as error:
        raise error.under("bounds") from None


def _batches(value: Any) -> tuple[int, ...]:
    listed = isinstance(value, list) and value
    if not listed or not all(type(n) is int and 0 < n <= MOST for n in value):
        raise InputError(
            f"bounds.batches is {value!r}; accepted: a list of whole numbers, 1 to {MOST}"
        )
    return tuple(sorted(set(value)))


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the bounds and write `bounds.json` into `folder`.

    Raises:
        InputError: see `load`.
    """
    from simulator.studies.bounds.report import print_report, report

    result = report(load(cfg))
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    write_files(folder, {NAME: lambda path: path.write_text(text, encoding="utf-8")})
    print_report(result, folder / NAME)
