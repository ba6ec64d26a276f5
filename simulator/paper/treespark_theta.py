"""TreeSpark's thresholds one by one: nodes spent, tokens kept, time won over chains.

Its adaptive evaluation (arXiv 2609.22098), on a recording and a latency profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulator.inputs import load_recording
from simulator.paper.play import played, policy, setting
from simulator.paper.sweeps import stated
from simulator.paper.text import percent, span, table
from simulator.policies.treespark import LADDER, SAMPLED_LADDER
from traces.errors import InputError

THETAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
NODES = (7, 15, 31, 63)  # fixed trees beside them


def threshold(theta: float) -> dict[str, Any]:
    """TreeSpark with one theta whatever the load."""
    return policy("treespark", ladder=[{"max_batch": None, "theta": theta}])


def published_theta(batch: int, sampled: bool) -> float | None:
    """Of the published ladder; None: the plain chain."""
    for rung in SAMPLED_LADDER if sampled else LADDER:
        if rung["max_batch"] is None or batch <= rung["max_batch"]:
            return rung.get("theta")
    raise AssertionError("a ladder's last rung covers every batch")


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The sweep at one load.

    Args:
        cfg: `trace`, `latency` and `max_concurrency` are read.

    Raises:
        InputError: no closed loop, or what a policy refuses.
    """
    load = cfg["max_concurrency"]
    if type(load) is not int or load < 1:
        raise InputError(f"max_concurrency is {load!r}; accepted: a whole number of at least 1")
    sampled = load_recording(cfg["trace"]).temperature > 0
    own = published_theta(load, sampled)
    yield f"TreeSpark (arXiv 2609.22098): one theta at a time, {load} request(s) in flight"
    yield setting(cfg)
    yield ""
    chain = played(cfg, policy("fixed_chain"), load)
    tuned = played(cfg, policy("tuned_chain"), load)
    trees = {theta: played(cfg, threshold(theta), load) for theta in THETAS}
    arms = {f"theta {t:g}{' *' if t == own else ''}": run for t, run in trees.items()}
    arms |= {f"tree of {n}": played(cfg, policy("fixed_tree", nodes=n), load) for n in NODES}
    arms |= {"chain of 7": chain, "tuned chain": tuned}
    heads = (
        "arm",
        "nodes",
        "tokens\nper round",
        "verified\naccepted",
        "accepted over\nchain of 7",
        "accepted over\ntuned chain",
        "tokens/s",
        "over\nchain of 7",
        "over\ntuned chain",
    )
    yield from table(heads, (_cells(name, run, chain, tuned) for name, run in arms.items()))
    yield ""
    yield "* the published theta at this load" + (
        "" if own is not None else ": none, a plain chain"
    )
    yield from _beside(trees, own, chain, tuned)


def _cells(name: str, run: Mapping[str, Any], *against: Mapping[str, Any]) -> list[str]:
    accepted, speed = _accepted(run), run["output_throughput"]
    share = run["share_verified_accepted"]
    return [
        name,
        f"{run['draft_nodes_per_request']:.1f}",
        f"{1 + accepted:.3f}",
        "-" if share is None else f"{share:.1%}",
        *(percent(accepted / _accepted(other) - 1) for other in against),
        f"{speed:.1f}",
        *(percent(speed / other["output_throughput"] - 1) for other in against),
    ]


def _accepted(run: Mapping[str, Any]) -> float:
    """Draft tokens per round."""
    return run["acceptance_length"] - 1


def _beside(trees: Mapping[float, Any], own: float | None, chain: Mapping, tuned: Mapping):
    """What the paper states of a lone request, and what is found here."""
    paper = stated("treespark")
    certified = {rung["theta"] for rung in (*LADDER, *SAMPLED_LADDER) if "theta" in rung}
    found = {
        "more accepted draft tokens a round than the chain": (
            "accepted_gain_pct",
            lambda run: 100 * (_accepted(run) / _accepted(chain) - 1),
        ),
        "faster than the tuned chain, a single request": (
            "wall_clock_gain_pct",
            lambda run: 100 * (run["output_throughput"] / tuned["output_throughput"] - 1),
        ),
        "of the verified nodes committed (second-hand)": (
            "verified_committed_pct",
            lambda run: 100 * run["share_verified_accepted"],
        ),
    }
    for what, (key, value) in found.items():
        low, high = paper[key]
        every = [value(run) for theta, run in trees.items() if theta in certified]
        at_own = "" if own is None else f"{value(trees[own]):.1f} % at theta {own:g}, "
        yield f"theirs: {low} to {high} % {what}"
        yield f"  ours: {at_own}{span(every, 1)} % over all published thetas"
