"""How many draft tokens were accepted: numbers pooled over rounds, not averaged over requests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from simulator.ledger import Columns, Facts
from simulator.metrics import measured, request_times
from simulator.window import Window


def acceptance(facts: Facts, window: Window) -> dict[str, Any]:
    """Acceptance over the window's rounds."""
    rounds = _inside(facts, window)
    drafted = rounds["drafted"]
    accepted, nodes = rounds["accepted"][drafted], rounds["width"][drafted]
    verified = int(nodes.sum())
    return {
        "acceptance_length": acceptance_length(rounds),
        "committed_round_length": _mean(rounds["committed"]),
        "draft_nodes_per_request": _mean(rounds["width"]),
        "share_verified_accepted": int(accepted.sum()) / verified if verified else None,
        "acceptance_rate_by_depth": rate_by_depth(accepted),
        **_counted_as_vllm(accepted, verified),
    }


def _counted_as_vllm(accepted: np.ndarray, verified: int) -> dict[str, Any]:
    """Counts of the drafted rounds under vLLM's benchmark keys; its acceptance rate is in percent.

    Its rates per position are not conditional: drafts that accepted depth d over all drafts.
    """
    drafts, total = len(accepted), int(accepted.sum())
    reached = np.bincount(accepted, minlength=1)[::-1].cumsum()[::-1][1:]  # accepting >= d
    return {
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": verified,
        "spec_decode_accepted_tokens": total,
        "spec_decode_acceptance_rate": 100 * total / verified if verified else None,
        "spec_decode_acceptance_length": 1 + total / drafts if drafts else None,
        "spec_decode_per_position_acceptance_rates": [int(n) / drafts for n in reached],
    }


def acceptance_length(rounds: Columns) -> float | None:
    """1 + accepted / drafts (vLLM), accepted not clipped at the end of the text.

    Rounds that paid no draft are left out; a run without any has length 1, the target's token.
    """
    drafted = rounds["drafted"]
    if not len(drafted):
        return None
    return 1.0 + (float(rounds["accepted"][drafted].mean()) if drafted.any() else 0.0)


def rate_by_depth(accepted: np.ndarray) -> list[float]:
    """P(depth d accepted | depth d - 1 accepted), d = 1 to the deepest one accepted.

    Args:
        accepted: (n,) draft tokens accepted per drafted round. A round that did not verify depth
            d counts as one that did not accept it.
    """
    reached = np.bincount(accepted)[::-1].cumsum()[::-1]  # (deepest + 1,) rounds accepting >= d
    return [int(more) / int(less) for less, more in pairwise(reached)]


def by_domain(facts: Facts, window: Window, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Measured requests, mean TPOT and acceptance length of every domain that occurs."""
    rounds, counted = _inside(facts, window), measured(facts, window)
    domain = facts.requests["domain"]
    tpot_s = request_times(facts.requests)["tpot"]
    result = {}
    for index in np.unique(domain):
        chosen = counted & (domain == index)
        own = domain[rounds["request"]] == index
        result[names[index]] = {
            "requests": int(np.count_nonzero(chosen)),
            "mean_tpot_ms": _mean(tpot_s[chosen & ~np.isnan(tpot_s)] * 1e3),
            "acceptance_length": acceptance_length({k: v[own] for k, v in rounds.items()}),
        }
    return result


def near_ties(facts: Facts, margin: np.ndarray | None, below: float) -> dict[str, Any]:
    """Rounds of the whole run at anchors whose two best target tokens are nearly equal.

    Args:
        margin: (A,) top-2 margin of the target in logits; None: not recorded.
        below: margins under this count.
    """
    count = None
    if margin is not None:
        count = int(np.count_nonzero(margin[facts.rounds["anchor"]] < below))
    return {"target_margin": count, "margin_below": below}


def _inside(facts: Facts, window: Window) -> Columns:
    """Rounds of the window's steps, with the step's `drafted`."""
    step = facts.rounds["step"]
    keep = window.steps(facts)[step]
    rounds = {name: values[keep] for name, values in facts.rounds.items()}
    return rounds | {"drafted": facts.steps["drafted"][rounds["step"]]}


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
