"""Hindsight bounds of a recording at the price of a latency profile (`task=bounds`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.orders.build import resolve_for
from simulator.orders.specs import BestFirstOrder, OrderError
from simulator.studies.bounds.options import BoundedTexts
from simulator.studies.bounds.report import BoundsRequest, print_report, report
from simulator.studies.report import json_text, write_texts
from simulator.studies.settings import Bounds
from traces.common.settings import read

NAME = "bounds.json"


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
    print_report(result, folder / NAME)
