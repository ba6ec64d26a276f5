"""TreeSpark's matched budgets: parent-conditioned, marginal and chain drafts of equally many nodes.

The comparison of its ablation (arXiv 2609.22098), on a recording; PCTree (arXiv 2608.02123) made
the same one against a chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.inputs import choose_sequences, load_cost, load_recording, typical_context
from simulator.orders import BestFirstOrder, ChainOrder, order_table, replay
from simulator.paper.play import setting
from simulator.paper.sweeps import stated
from simulator.paper.text import span, table
from traces.errors import InputError

BLOCK = 7  # depths of the published blocks
BUDGETS = (1, 3, 5, 7, 14, 28, 56)  # up to eight times the block
RULES = {"parent": "parent", "marginal": "marginal", "biased": "marginal_biased"}


@dataclass(frozen=True, slots=True)
class Cell:
    """Committed tokens per round of a rule at a budget."""

    length: float  # 1 + accepted draft tokens
    nodes: int  # verified; a chain has no more than it has depths

    @property
    def accepted_share(self) -> float:
        """Of the verified nodes."""
        return (self.length - 1) / self.nodes


def cells(trace: Mapping[str, Any]) -> dict[str, dict[int, Cell]]:
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
    found: dict[str, dict[int, Cell]] = {}
    for rule, order in orders.items():
        tree = order_table(order, recording)
        found[rule] = {}
        for budget in BUDGETS:
            width = min(budget, tree.max_nodes)
            length = replay(tree, recording, sequences, width).acceptance_length
            found[rule][budget] = Cell(length, width)
    return found


def round_ms(cost: StepCost, nodes: int, context: int, tree: bool) -> float:
    """A lone request's drafted round."""
    packed = np.array([nodes + 1])
    step = cost.step(packed, np.array([context]), drafted=True, tree=tree)
    return step.total_s * 1e3


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The comparison.

    Args:
        cfg: `trace` and `latency` are read.

    Raises:
        InputError: see `cells`.
    """
    found, cost = cells(cfg["trace"]), load_cost(cfg["latency"])
    context = typical_context(load_recording(cfg["trace"]))
    yield "TreeSpark (arXiv 2609.22098): drafts of equally many nodes, tokens per round"
    yield f"{setting(cfg)}; every rule along its own trajectory"
    yield ""
    heads = (
        "nodes",
        "chain",
        "parent",
        "marginal,\nno bias",
        "marginal,\nchain's bias",
        "parent /\nmarginal",
        "parent /\nbiased",
        "parent /\nchain of 7",
        "verified\naccepted",
        "tokens/s alone,\nparent / chain of 7",
    )
    full = found["chain"][BLOCK]
    rows = []
    for budget in BUDGETS:
        chain, parent = found["chain"][budget], found["parent"][budget]
        marginal, biased = found["marginal"][budget], found["biased"][budget]
        speed = parent.length / round_ms(cost, parent.nodes, context, True)
        speed /= full.length / round_ms(cost, full.nodes, context, False)
        rows.append(
            [
                str(budget),
                f"{chain.length:.3f}" if budget <= BLOCK else "-",
                *(f"{cell.length:.3f}" for cell in (parent, marginal, biased)),
                f"{parent.length / marginal.length:.3f}",
                f"{parent.length / biased.length:.3f}",
                f"{parent.length / full.length:.3f}",
                f"{parent.accepted_share:.1%}",
                f"{speed:.3f}",
            ]
        )
    yield from table(heads, rows)
    yield ""
    yield from _beside(found)


def _beside(found: Mapping[str, Mapping[int, Cell]]) -> Iterator[str]:
    """What the papers state, and what is found here."""
    paper, pctree = stated("treespark"), stated("pctree")
    at_least = [b for b in BUDGETS if b >= BLOCK]
    ratio = {
        rule: [found["parent"][b].length / found[rule][b].length for b in BUDGETS]
        for rule in ("marginal", "biased")
    }
    above = sum(r > 1 for r in ratio["marginal"])
    yield "theirs: parent-conditioned above marginal at every matched budget"
    yield (
        f"  ours: at {above} of {len(BUDGETS)}, {span(ratio['marginal'])} times; over marginals "
        f"that keep the greedy chain's bias {span(ratio['biased'])}"
    )
    chain = found["chain"][BLOCK].length
    last = found["marginal"][BUDGETS[-1]].length
    factor = paper["marginal_budget_factor"]
    yield f"theirs: marginal trees stay below the chain even with {factor} times its nodes"
    yield (
        f"  ours: {last:.3f} at {BUDGETS[-1]} nodes {'<' if last < chain else '>='} {chain:.3f}, "
        f"the chain of {BLOCK}"
    )
    gains = [(found["parent"][b].length - 1) / (chain - 1) - 1 for b in at_least]
    low, high = paper["accepted_gain_pct"]
    yield f"theirs: {low} to {high} % more accepted draft tokens a round than a tuned chain"
    yield (
        f"  ours: {span((100 * g for g in gains), 1)} % over the chain of {BLOCK}, at "
        f"{at_least[0]} to {at_least[-1]} nodes"
    )
    lengths = [100 * (found["parent"][b].length / chain - 1) for b in at_least]
    low, high = pctree["accepted_length_gain_pct"]
    yield f"theirs (PCTree, arXiv 2608.02123): accepted length {low} to {high} % over a chain"
    yield f"  ours: {span(lengths, 1)} % in tokens per round"
