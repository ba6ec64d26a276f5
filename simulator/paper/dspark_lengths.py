"""DSpark's blocks of 7 against DFlash's, and the error of its survivals before and after scaling.

Its offline comparison (arXiv 2607.05147) is at temperature 1 with sampled drafts; here the two
drafters of the small pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simulator.inputs import choose_sequences, load_cost, load_recording, settled
from simulator.orders import ChainOrder, order_table, replay
from simulator.orders.sampled import SampledOrder
from simulator.orders.specs import Order
from simulator.paper.play import policy
from simulator.paper.sweeps import stated
from simulator.paper.text import span, table
from simulator.run import fit, tables_of
from simulator.tournament.options import read_option
from traces.recording import Recording

BLOCK = 7
DRAFTERS = {"semi": "small_semi", "block": "small_block"}  # with and without a Markov head


def recordings(cfg: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Trace nodes of both drafters, at the configuration's temperature."""
    heat = load_recording(cfg["trace"]).temperature
    found = {}
    for name, option in DRAFTERS.items():
        node = {**cfg, "trace": read_option("trace", option, "published.table")}
        found[name] = settled({**node, "temperature": heat})["trace"]
    return found


def chain(recording: Recording) -> Order:
    """Seven tokens: drawn above temperature 0, as published, else the argmax chain."""
    heat = recording.temperature
    if heat:
        return SampledOrder(nodes=BLOCK, branch=1, depth_cap=BLOCK, temperature=heat)
    return ChainOrder(BLOCK)


def lengths(trace: Mapping[str, Any]) -> dict[str, float]:
    """Tokens per round of the whole chain by domain, and of all."""
    recording = load_recording(trace)
    chosen = choose_sequences(trace, recording)
    tree, domain = order_table(chain(recording), recording), recording["domain"][chosen]
    groups = {n: chosen[domain == i] for i, n in enumerate(recording.domains)} | {"all": chosen}
    return {
        name: replay(tree, recording, sequences, BLOCK).acceptance_length
        for name, sequences in groups.items()
        if len(sequences)
    }


def calibration_errors(cfg: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Any] | None:
    """ECE of survivals by depth before and after scaling; None without a confidence head."""
    from simulator.load_policy import make_policy

    recording = load_recording(trace)
    scheduler = make_policy(policy("dspark"))
    fit(scheduler, recording, load_cost(cfg["latency"]), 1, tables_of(recording))
    found = scheduler.describe()
    return found if "ece_before" in found else None


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Both comparisons.

    Args:
        cfg: the temperature of its `trace`, and `latency`, are read.

    Raises:
        InputError: no recording at that temperature.
    """
    traces, paper = recordings(cfg), stated("dspark")
    ours = {name: lengths(trace) for name, trace in traces.items()}
    heat = load_recording(traces["semi"]).temperature
    yield "DSpark (arXiv 2607.05147): accepted length of blocks of 7, with a Markov head or without"
    yield f"theirs: Qwen3-4B at temperature 1; ours: the small pair's two drafters at {heat:g}"
    yield ""
    rows = [
        (f"theirs, {name}", *_cells(pair["dspark"], pair["dflash"]))
        for name, pair in paper["accepted_length"].items()
    ]
    rows += [(f"ours, {d}", *_cells(ours["semi"][d], ours["block"][d])) for d in ours["semi"]]
    yield from table(("texts", "DSpark", "DFlash", "ratio"), rows)
    yield ""
    errors = calibration_errors(cfg, traces["semi"])
    if errors is None:
        yield "calibration: this recording has no confidence head"
        return
    low, high = paper["ece_before_pct"]
    before, after = (100 * np.array(errors[key]) for key in ("ece_before", "ece_after"))
    yield "calibration error (ECE) of survivals by depth, %, on the calibration split"
    depths = [str(d) for d in range(1, len(before) + 1)]
    shown = (("before", before), ("after", after))
    yield from table(("depth", *depths), ([n, *(f"{v:.2f}" for v in e)] for n, e in shown))
    yield (
        f"theirs: {low} to {high} % before sequential temperature scaling, about "
        f"{paper['ece_after_pct']} % after; ours: {span(before, 1)} % and {span(after, 1)} %"
    )


def _cells(head: float, none: float) -> tuple[str, str, str]:
    return f"{head:.2f}", f"{none:.2f}", f"{head / none:.3f}"
