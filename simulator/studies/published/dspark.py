"""DSpark: the concurrency cliff of fixed drafts, and what a Markov head adds to a block.

The cliff: no speculation, a fixed draft and drafts sized by survival over load. Theirs: vLLM's
adaptive verification of DSpark drafts, measured on B300 and on an AMD GPU (`served_concurrency`);
ours: a recording at the step times of the profile in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences, load_cost, load_recording, settled
from simulator.engine.run import fit, tables_of
from simulator.orders import ChainOrder, order_table, replay
from simulator.orders.families.sampled import SampledOrder
from simulator.policies.loading import make_policy
from simulator.studies.options import policy_node, read_option
from simulator.studies.published.common import (
    by_domain,
    listed,
    number,
    played,
    read_csv,
    setting,
    span,
    stated,
    table,
)

LOADS = (1, 4, 8, 16, 32, 64, 128, 160, 256)  # the measured ones, and one just behind 128
SERVED = {"b300": "b300_deepseek-v4-pro", "mi355x": "rocm_deepseek-v4"}  # by profile
ARMS = {
    "none": ("autoregressive", {}),
    "fixed": ("fixed_chain", {"length": 7}),
    "dspark": ("dspark", {}),
    "adaptive": ("adaptive_verification", {}),
    "tuned": ("tuned_chain", {"max_length": 7}),
}
WHY = {  # a load differs from theirs; nothing is fitted to it
    "b300": (
        "why: ours is a small pair at the step times of DeepSeek-V4-Flash on 4 GPUs, theirs the",
        "larger Pro on 8. On the Flash table a chain of 7 is cheap up to 128 x 8 = 1,024 tokens,",
        "the last captured graph, and eager beyond: our draft peaks at 128, and falls further.",
    ),
    "mi355x": (
        "why: ours has the step times of a dense 27B model, theirs is a mixture of experts on",
        "another server; above a batch of 32 ours are modelled by total tokens and rise steadily:",
        "a slope, no cliff. Their adaptive arm loses to the fixed draft up to 32 requests; ours,",
        "which decides by the very table it is charged, does not.",
    ),
}

Speeds = Mapping[int, Mapping[str, float]]  # tokens/s by concurrency and arm


def measured(profile: str) -> Speeds:
    """Theirs; empty for a profile that nobody measured this on."""
    return {
        int(row["concurrency"]): {
            "none": float(row["none"]),
            "fixed": float(row["fixed_7"]),
            "adaptive": float(row["adaptive"]),
        }
        for row in read_csv("served_concurrency.csv")
        if row["setting"] == SERVED.get(profile)
    }


def served(cfg: Mapping[str, Any]) -> dict[int, dict[str, dict[str, Any]]]:
    """Our summaries by concurrency and arm."""
    nodes = {arm: policy_node(name, **own) for arm, (name, own) in ARMS.items()}
    return {load: {arm: played(cfg, node, load) for arm, node in nodes.items()} for load in LOADS}


def speeds(ours: Mapping[int, Mapping[str, Any]]) -> Speeds:
    """Of summaries."""
    return {
        load: {arm: run["output_throughput"] for arm, run in arms.items()}
        for load, arms in ours.items()
    }


def dspark_cliff_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Throughput over no speculation, ours (of `trace` and `latency`) beside theirs.

    Raises:
        InputError: no closed loop, or what a policy refuses.
    """
    profile = load_cost(cfg["latency"]).profile.name
    ours, theirs = served(cfg), measured(profile)
    speed = speeds(ours)
    yield "Fixed draft of 7, drafts sized by survival, and none, over requests in flight"
    yield f"ours: {setting(cfg)}"
    yield f"theirs: {SERVED.get(profile, 'nothing measured for this profile')}"
    yield ""
    columns = {
        "requests": str,
        "none,\ntokens/s": lambda load: f"{speed[load]['none']:.0f}",
        **{f"{arm} /\nnone": _over_none(speed, arm) for arm in list(ARMS)[1:]},
        "accepted\nlength,\nadaptive": lambda load: (
            f"{ours[load]['adaptive']['acceptance_length']:.2f}"
        ),
        "modelled": lambda load: f"{ours[load]['fixed']['cost_shares']['time']['modelled']:.0%}",
        "theirs:\nnone,\ntokens/s": lambda load: number(theirs.get(load, {}).get("none"), 0),
        "\nfixed /\nnone": _over_none(theirs, "fixed"),
        "\nadaptive /\nnone": _over_none(theirs, "adaptive"),
    }
    yield from listed(columns, LOADS)
    yield ""
    yield f"ours:   {_story(speed)}"
    if theirs:
        yield f"theirs: {_story(theirs)}"
    if SERVED.get(profile) == "b300_deepseek-v4-pro":
        paper = stated("b300_deepseek-v4-pro")
        first, last = paper["adaptive_accepted_length"].values()
        yield (
            f"theirs, accepted length: fixed about {paper['fixed_accepted_length']} at every load, "
            f"adaptive {first} at 1 and {last} at {LOADS[-1]} requests"
        )
    yield from WHY.get(profile, ())


def _over_none(speed: Speeds, arm: str) -> Callable[[int], str]:
    return lambda load: number(speed[load][arm] / speed[load]["none"] if load in speed else None, 3)


def _story(speed: Speeds) -> str:
    """Where the fixed draft peaks, what is left of it, and whether adaptive sizing ever loses."""
    lead = {
        load: arms["adaptive"] / max(arms["none"], arms["fixed"]) - 1
        for load, arms in speed.items()
    }
    peak = max(speed, key=lambda load: speed[load]["fixed"])
    last, worst = max(speed), min(lead, key=lead.get)
    end = speed[last]
    lost, below = 1 - end["fixed"] / speed[peak]["fixed"], end["fixed"] / end["none"] - 1
    fate = f"is {lost:.0%} below that at {last}" if peak != last else "still rises there"
    gain = end["adaptive"] / end["none"] - 1
    return (
        f"the fixed draft peaks at {peak} requests, {fate}, and is {below:+.0%} against none;\n"
        f"        adaptive is {gain:+.0%} against none at {last}, and at worst "
        f"{lead[worst]:+.1%} against the better of fixed and none (at {worst})"
    )


# ---------------- Accepted lengths of blocks of 7, with a Markov head and without.


BLOCK = 7
DRAFTERS = {"semi": "small_semi", "block": "small_block"}  # with and without a Markov head


def recordings(cfg: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Trace nodes of both drafters, at the configuration's temperature."""
    heat = load_recording(cfg["trace"]).temperature
    nodes = {name: read_option("trace", one, "published.table") for name, one in DRAFTERS.items()}
    return {
        name: settled({**cfg, "trace": node, "temperature": heat})["trace"]
        for name, node in nodes.items()
    }


def lengths(trace: Mapping[str, Any]) -> dict[str, float]:
    """Tokens per round of the whole chain by domain, and of all.

    The chain is drawn above temperature 0, as published, else it is the argmax chain.
    """
    recording = load_recording(trace)
    chain, heat = ChainOrder(BLOCK), recording.temperature
    if heat:
        chain = SampledOrder(nodes=BLOCK, branch=1, depth_cap=BLOCK, temperature=heat)
    tree = order_table(chain, recording)
    return {
        name: replay(tree, recording, sequences, BLOCK).acceptance_length
        for name, sequences in by_domain(recording, choose_sequences(trace, recording)).items()
    }


def calibration_errors(cfg: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Any] | None:
    """ECE of survivals by depth before and after scaling; None without a confidence head."""
    recording = load_recording(trace)
    scheduler = make_policy(policy_node("dspark"))
    fit(scheduler, recording, load_cost(cfg["latency"]), 1, tables_of(recording))
    found = scheduler.describe()
    return found if "ece_before" in found else None


def dspark_lengths_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Both comparisons, of the temperature of `trace`, and `latency`.

    Raises:
        InputError: no recording at that temperature.
    """
    traces, paper = recordings(cfg), stated("dspark")
    semi, block = (lengths(trace) for trace in traces.values())
    heat = load_recording(traces["semi"]).temperature
    yield "DSpark (arXiv 2607.05147): accepted length of blocks of 7, with a Markov head or without"
    yield f"theirs: Qwen3-4B at temperature 1; ours: the small pair's two drafters at {heat:g}"
    yield ""
    pairs = {
        f"theirs, {name}": (pair["dspark"], pair["dflash"])
        for name, pair in paper["accepted_length"].items()
    }
    pairs |= {f"ours, {name}": (semi[name], block[name]) for name in semi}
    rows = ([name, f"{a:.2f}", f"{b:.2f}", f"{a / b:.3f}"] for name, (a, b) in pairs.items())
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
