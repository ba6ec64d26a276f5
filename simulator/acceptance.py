"""How many draft tokens were accepted: numbers pooled over rounds, not averaged over requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from simulator.ledger import Columns, Facts
from simulator.request_sums import RequestSums
from simulator.window import Window


@dataclass(slots=True)
class RoundSums:
    """Sums over a window's rounds, added up block by block."""

    rounds: int = 0
    committed: int = 0
    nodes: int = 0
    verified: int = 0  # nodes of rounds that paid a draft
    accepting: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    # accepting: (deepest + 1,) rounds that paid a draft, by draft tokens accepted

    @classmethod
    def of(cls, facts: Facts, window: Window) -> RoundSums:
        """Those of a run whose tables are in memory."""
        sums, step = cls(), facts.rounds["step"]
        inside = window.steps(facts)
        paid = (inside & facts.steps["drafted"])[step]
        for name, column in (("committed", "committed"), ("nodes", "width")):
            setattr(sums, name, int(facts.rounds[column][inside[step]].sum()))
        sums.rounds = int(np.count_nonzero(inside[step]))
        sums.verified = int(facts.rounds["width"][paid].sum())
        sums.accepting = np.bincount(facts.rounds["accepted"][paid], minlength=1)
        return sums

    def add_steps(self, steps: Columns, inside: np.ndarray, accepting: np.ndarray) -> None:
        """Take steps in.

        Args:
            inside: (S,) whether each lies in the window.
            accepting: (d + 1,) their rounds in the window that paid a draft, by tokens accepted.
        """
        nodes = steps["draft_nodes"]
        self.rounds += int(steps["batch"][inside].sum())
        self.committed += int(steps["committed"][inside].sum())
        self.nodes += int(nodes[inside].sum())
        self.verified += int(nodes[inside & steps["drafted"]].sum())
        longer, shorter = sorted((accepting, self.accepting), key=len, reverse=True)
        self.accepting = longer.copy()
        self.accepting[: len(shorter)] += shorter

    def numbers(self) -> dict[str, Any]:
        """The summary's keys."""
        drafts, deepest = int(self.accepting.sum()), np.arange(len(self.accepting))
        total = int(self.accepting @ deepest)
        length = None
        if self.rounds:
            length = 1.0 + (total / drafts if drafts else 0.0)
        return {
            "acceptance_length": length,
            "committed_round_length": self.committed / self.rounds if self.rounds else None,
            "draft_nodes_per_request": self.nodes / self.rounds if self.rounds else None,
            "share_verified_accepted": total / self.verified if self.verified else None,
            "acceptance_rate_by_depth": _rates(self.accepting),
            **_counted_as_vllm(self.accepting, self.verified),
        }


def acceptance(facts: Facts, window: Window) -> dict[str, Any]:
    """Acceptance over the window's rounds.

    `acceptance_length` is 1 + accepted / drafts (vLLM), accepted not clipped at the end of the
    text. Rounds that paid no draft are left out; a run without any has length 1, the target's
    token.
    """
    return RoundSums.of(facts, window).numbers()


def _counted_as_vllm(accepting: np.ndarray, verified: int) -> dict[str, Any]:
    """Counts of the drafted rounds under vLLM's benchmark keys; its acceptance rate is in percent.

    Its rates per position are not conditional: drafts that accepted depth d over all drafts.

    Args:
        accepting: (deepest + 1,) rounds by draft tokens accepted. verified: nodes.
    """
    reached = _reaching(accepting)
    drafts, total = int(accepting.sum()), int(reached[1:].sum())
    return {
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": verified,
        "spec_decode_accepted_tokens": total,
        "spec_decode_acceptance_rate": 100 * total / verified if verified else None,
        "spec_decode_acceptance_length": 1 + total / drafts if drafts else None,
        "spec_decode_per_position_acceptance_rates": [int(n) / drafts for n in reached[1:]],
    }


def rate_by_depth(accepted: np.ndarray) -> list[float]:
    """P(depth d accepted | depth d - 1 accepted), d = 1 to the deepest one accepted.

    Args:
        accepted: (n,) draft tokens accepted per drafted round. A round that did not verify depth
            d counts as one that did not accept it.
    """
    return _rates(np.bincount(accepted))


def _rates(accepting: np.ndarray) -> list[float]:
    return [int(more) / int(less) for less, more in pairwise(_reaching(accepting))]


def _reaching(accepting: np.ndarray) -> np.ndarray:
    """Rounds that accept at least so many draft tokens, up to the most that any did."""
    some = np.flatnonzero(accepting)
    deepest = int(some[-1]) if len(some) else 0
    return accepting[: deepest + 1][::-1].cumsum()[::-1]  # (deepest + 1,)


def by_domain(
    facts: Facts,
    window: Window,
    names: tuple[str, ...],
    limits: Mapping[str, float] | None = None,
) -> dict[str, dict[str, Any]]:
    """Every domain that occurs, see `RequestSums.by_domain`; `limits`: objectives in ms."""
    sums = RequestSums.of(facts, window, len(names), limits=limits)
    return sums.by_domain(names, window.seconds)


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
