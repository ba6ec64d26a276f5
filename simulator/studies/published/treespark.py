"""TreeSpark (arXiv 2609.22098) on a recording: matched budgets, its thresholds, and its ladder.

PCTree (arXiv 2608.02123) compared parent-conditioned trees with a chain as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.engine.inputs import choose_sequences, load_cost, load_recording, typical_context
from simulator.orders import BestFirstOrder, ChainOrder, order_table, replay
from simulator.policies.treespark import LADDER, SAMPLED_LADDER
from simulator.studies.options import one_theta, policy_node
from simulator.studies.published.common import (
    NONE,
    listed,
    percent,
    played,
    setting,
    span,
    stated,
    table,
)
from traces.common.errors import InputError

BLOCK = 7  # depths of the published blocks
BUDGETS = (1, 3, 5, 7, 14, 28, 56)  # up to eight times the block
RULES = {"parent": "parent", "marginal": "marginal", "biased": "marginal_biased"}

# ---------------- Its ablation: drafts of equally many nodes.


@dataclass(frozen=True, slots=True)
class BudgetCell:
    """Committed tokens per round of a rule at a budget."""

    length: float  # 1 + accepted draft tokens
    nodes: int  # verified; a chain has no more than it has depths

    @property
    def accepted_share(self) -> float:
        """Of the verified nodes."""
        return (self.length - 1) / self.nodes


def cells(trace: Mapping[str, Any]) -> dict[str, dict[int, BudgetCell]]:
    """By rule (and "chain"), then by budget.

    Raises:
        InputError: a drafter whose scores do not depend on the parent, or too few depths.
    """
    recording = load_recording(trace)
    if recording.encoding != "hidden" or "markov_w1" not in recording.arrays:
        raise InputError(
            f"trace.recording is {recording.source}; accepted with published.table="
            "treespark_budget: one of a drafter with a Markov head"
        )
    sequences = choose_sequences(trace, recording)
    orders = {
        rule: BestFirstOrder(scores=scores, nodes=BUDGETS[-1], depth_cap=BLOCK)
        for rule, scores in RULES.items()
    }
    orders["chain"] = ChainOrder(BLOCK)
    found: dict[str, dict[int, BudgetCell]] = {}
    for rule, order in orders.items():
        tree = order_table(order, recording)
        found[rule] = {}
        for budget in BUDGETS:
            width = min(budget, tree.max_nodes)
            length = replay(tree, recording, sequences, width).acceptance_length
            found[rule][budget] = BudgetCell(length, width)
    return found


def treespark_budget_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The comparison, of `trace` and `latency`; raises InputError as `cells` does."""
    found, cost = cells(cfg["trace"]), load_cost(cfg["latency"])
    context = typical_context(load_recording(cfg["trace"]))
    yield "TreeSpark (arXiv 2609.22098): drafts of equally many nodes, tokens per round"
    yield f"{setting(cfg)}; every rule along its own trajectory"
    yield ""
    chain, parent, marginal, biased = (found[name] for name in ("chain", *RULES))
    full = chain[BLOCK]
    full_ms = _round_ms(cost, full.nodes, context, tree=False)

    def speed(cell: BudgetCell) -> float:
        rate = cell.length / _round_ms(cost, cell.nodes, context, tree=True)
        return rate / (full.length / full_ms)

    columns = {
        "nodes": str,
        "chain": lambda n: f"{chain[n].length:.3f}" if n <= BLOCK else NONE,
        "parent": lambda n: f"{parent[n].length:.3f}",
        "marginal,\nno bias": lambda n: f"{marginal[n].length:.3f}",
        "marginal,\nchain's bias": lambda n: f"{biased[n].length:.3f}",
        "parent /\nmarginal": lambda n: f"{parent[n].length / marginal[n].length:.3f}",
        "parent /\nbiased": lambda n: f"{parent[n].length / biased[n].length:.3f}",
        "parent /\nchain of 7": lambda n: f"{parent[n].length / full.length:.3f}",
        "verified\naccepted": lambda n: f"{parent[n].accepted_share:.1%}",
        "tokens/s alone,\nparent / chain of 7": lambda n: f"{speed(parent[n]):.3f}",
    }
    yield from listed(columns, BUDGETS)
    yield ""
    yield from _budget_notes(found)


def _round_ms(cost: StepCost, nodes: int, context: int, tree: bool) -> float:
    """A lone request's drafted round."""
    packed = np.array([nodes + 1])
    return cost.step(packed, np.array([context]), drafted=True, tree=tree).total_s * 1e3


def _budget_notes(found: Mapping[str, Mapping[int, BudgetCell]]) -> Iterator[str]:
    """What the papers state, and what is found here."""
    paper, pctree = stated("treespark"), stated("pctree")
    parent, chain = found["parent"], found["chain"][BLOCK].length
    marginal, biased = (
        [parent[b].length / found[rule][b].length for b in BUDGETS]
        for rule in ("marginal", "biased")
    )
    yield "theirs: parent-conditioned above marginal at every matched budget"
    yield (
        f"  ours: at {sum(r > 1 for r in marginal)} of {len(BUDGETS)}, {span(marginal)} times; "
        f"over marginals that keep the greedy chain's bias {span(biased)}"
    )
    last, factor = found["marginal"][BUDGETS[-1]].length, paper["marginal_budget_factor"]
    yield f"theirs: marginal trees stay below the chain even with {factor} times its nodes"
    yield (
        f"  ours: {last:.3f} at {BUDGETS[-1]} nodes {'<' if last < chain else '>='} {chain:.3f}, "
        f"the chain of {BLOCK}"
    )
    at_least = [b for b in BUDGETS if b >= BLOCK]
    gains = [(parent[b].length - 1) / (chain - 1) - 1 for b in at_least]
    low, high = paper["accepted_gain_pct"]
    yield f"theirs: {low} to {high} % more accepted draft tokens a round than a tuned chain"
    yield (
        f"  ours: {span((100 * g for g in gains), 1)} % over the chain of {BLOCK}, at "
        f"{at_least[0]} to {at_least[-1]} nodes"
    )
    lengths = [100 * (parent[b].length / chain - 1) for b in at_least]
    low, high = pctree["accepted_length_gain_pct"]
    yield f"theirs (PCTree, arXiv 2608.02123): accepted length {low} to {high} % over a chain"
    yield f"  ours: {span(lengths, 1)} % in tokens per round"


# ---------------- One theta at a time, at one load.


SWEPT_THETAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
NODES = (7, 15, 31, 63)  # fixed trees beside them


def published_theta(batch: int, sampled: bool) -> float | None:
    """Of the published ladder; None: the plain chain."""
    rungs = SAMPLED_LADDER if sampled else LADDER
    covers = (one for one in rungs if one["max_batch"] is None or batch <= one["max_batch"])
    return next(covers).get("theta")


def treespark_theta_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The sweep at one load, of `trace`, `latency` and `max_concurrency`.

    Raises:
        InputError: no closed loop, or what a policy refuses.
    """
    load = cfg["max_concurrency"]
    if type(load) is not int or load < 1:
        raise InputError(f"max_concurrency is {load!r}; accepted: a whole number of at least 1")
    own = published_theta(load, load_recording(cfg["trace"]).temperature > 0)
    yield f"TreeSpark (arXiv 2609.22098): one theta at a time, {load} request(s) in flight"
    yield setting(cfg)
    yield ""
    chain = played(cfg, policy_node("fixed_chain"), load)
    tuned = played(cfg, policy_node("tuned_chain"), load)
    trees = {theta: played(cfg, one_theta(theta), load) for theta in SWEPT_THETAS}
    arms = {f"theta {t:g}{' *' if t == own else ''}": run for t, run in trees.items()}
    arms |= {f"tree of {n}": played(cfg, policy_node("fixed_tree", nodes=n), load) for n in NODES}
    arms |= {"chain of 7": chain, "tuned chain": tuned}
    columns = {
        "arm": lambda name: name,
        "nodes": lambda name: f"{arms[name]['draft_nodes_per_request']:.1f}",
        "tokens\nper round": lambda name: f"{arms[name]['acceptance_length']:.3f}",
        "verified\naccepted": lambda name: _share(arms[name]),
        "accepted over\nchain of 7": lambda name: percent(_accepted(arms[name], chain)),
        "accepted over\ntuned chain": lambda name: percent(_accepted(arms[name], tuned)),
        "tokens/s": lambda name: f"{arms[name]['output_throughput']:.1f}",
        "over\nchain of 7": lambda name: percent(_faster(arms[name], chain)),
        "over\ntuned chain": lambda name: percent(_faster(arms[name], tuned)),
    }
    yield from listed(columns, arms)
    yield ""
    yield "* the published theta at this load" + (
        "" if own is not None else ": none, a plain chain"
    )
    paper = stated("treespark")
    certified = {rung["theta"] for rung in (*LADDER, *SAMPLED_LADDER) if "theta" in rung}
    compared = {
        "accepted_gain_pct": (
            "more accepted draft tokens a round than the chain",
            lambda run: _accepted(run, chain),
        ),
        "wall_clock_gain_pct": (
            "faster than the tuned chain, a single request",
            lambda run: _faster(run, tuned),
        ),
        "verified_committed_pct": (
            "of the verified nodes committed (second-hand)",
            lambda run: run["share_verified_accepted"],
        ),
    }
    for key, (what, share) in compared.items():
        low, high = paper[key]
        every = [100 * share(run) for theta, run in trees.items() if theta in certified]
        at_own = "" if own is None else f"{100 * share(trees[own]):.1f} % at theta {own:g}, "
        yield f"theirs: {low} to {high} % {what}"
        yield f"  ours: {at_own}{span(every, 1)} % over all published thetas"


def _share(run: Mapping[str, Any]) -> str:
    share = run["share_verified_accepted"]
    return NONE if share is None else f"{share:.1%}"


def _accepted(run: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Share of more draft tokens per round."""
    return (run["acceptance_length"] - 1) / (other["acceptance_length"] - 1) - 1


def _faster(run: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return run["output_throughput"] / other["output_throughput"] - 1


# ---------------- Thresholds and the ladder over load.


LOADS = (1, 2, 4, 8, 16, 32, 64)  # batches of the paper's cost table
THETAS = (0.02, 0.05, 0.15, 0.3)  # the published ones, and one beyond
CHAIN, LADDER_ARM, TUNED, PLAIN = "chain", "ladder", "tuned chain", "plain"
CLOSE = 0.98  # of the fastest arm


def arms() -> dict[str, dict[str, Any]]:
    """Policies by the name of their column."""
    return {
        **{f"{theta:g}": one_theta(theta) for theta in THETAS},
        CHAIN: policy_node("treespark", ladder=[{"max_batch": None, "arm": "chain"}]),
        LADDER_ARM: policy_node("treespark"),
        TUNED: policy_node("tuned_chain"),
        PLAIN: policy_node("autoregressive"),
    }


def treespark_load_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Throughput of every arm over that of the plain chain, of `trace` and `latency`.

    Raises:
        InputError: no closed loop, or what a policy refuses.
    """
    sampled = load_recording(cfg["trace"]).temperature > 0
    yield "TreeSpark (arXiv 2609.22098): thresholds over load, tokens/s over those of its chain arm"
    yield setting(cfg)
    yield ""
    names, rows, share, ahead = list(arms()), [], {}, {}
    for load in LOADS:
        speed = {name: played(cfg, one, load)["output_throughput"] for name, one in arms().items()}
        rung, best = rung_of(load, sampled), fastest(speed)
        share[load] = speed[rung] / speed[best]
        ahead[load] = {name: speed[name] / speed[CHAIN] for name in names}
        rows.append([str(load), *(f"{ratio:.3f}" for ratio in ahead[load].values()), rung, best])
    fixed = [f"theta {theta:g}" for theta in THETAS]
    heads = ("requests", *fixed, *names[len(THETAS) :], "published\nrung", "fastest\narm")
    yield from table(heads, rows)
    yield ""
    close = [str(load) for load, value in share.items() if value >= CLOSE]
    worst = min(share, key=share.get)
    where = f"at {', '.join(close)} requests" if close else "nowhere"
    yield (
        f"The published rung is within {1 - CLOSE:.0%} of the fastest arm {where}; at {worst} it "
        f"loses most, {1 - share[worst]:.1%}."
    )
    yield "theirs: at 16 requests sampled trees lose to the chain (second-hand)"
    kind = "sampled" if sampled else "fixed"
    by_theta = ", ".join(f"{t:g}: {ahead[16][f'{t:g}'] - 1:+.1%}" for t in THETAS)
    yield f"  ours: {kind} trees at 16 against the chain, by theta: {by_theta}"


def rung_of(load: int, sampled: bool) -> str:
    """The published arm, by the name of its column."""
    theta = published_theta(load, sampled)
    return CHAIN if theta is None else f"{theta:g}"


def fastest(speed: Mapping[str, float]) -> str:
    """Among the ladder's possible rungs: thetas and the chain arm; the first of equals."""
    rungs = [name for name in speed if name not in (LADDER_ARM, TUNED, PLAIN)]
    return max(rungs, key=speed.get)
