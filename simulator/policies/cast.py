"""CAST (Lee and Eo, arXiv 2610.00321): best-first trees from marginals, one width per deployment.

Alone, a request verifies a static width: a line through a batch-one latency probe against the mean
mass of the N-th node. In a batch, all requests share a budget fixed by hand.
"""

from __future__ import annotations

from simulator.calibration.lab import fitting_anchors
from simulator.orders.families.marginal import marginal_scores
from simulator.orders.replay import prefix_mass
from simulator.orders.specs import BestFirstOrder
from simulator.policies.checks import choice, node_count, whole
from simulator.policies.shared.rules import FixedWidth, RulePolicy, SharedBudget
from simulator.policies.shared.stop_rules import (
    DEPLOYED_WIDTHS,
    deploy_width,
    fit_line,
    measured_width,
    published_mass_curve,
    stop_width,
)
from simulator.policy import Lab

SCORES = ("auto_marginal", "marginal", "marginal_biased", "parent")
MEASURED = "measured"
PROBE_CONTEXT = 1024  # KV prefix of CAST's probe


class Cast(RulePolicy):
    """Static width for a lone request, the shared node budget (PER_REQUEST) in a batch.

    Args:
        width: nodes of a lone request; null applies the width rule; measured takes the probed size
            of the most tokens per second instead, so that no line hides a jump.
        nodes_per_request: shared budget per live request; roots do not count.
        max_nodes_per_request: most nodes one request may take from the shared budget.
        scores: auto_marginal is the marginals of a block drafter, and along the greedy chain
            (marginal_biased) those of a semi-autoregressive one.
        mass_curve: tuning, or published (Qwen3-8B on GSM8K) to reproduce the paper's widths.
        charge_draft: count the drafter in the width rule; the released rule leaves it at 0.
    """

    def __init__(
        self,
        width: int | str | None = None,
        nodes_per_request: int = 8,
        max_nodes_per_request: int = 48,
        scores: str = "auto_marginal",
        mass_curve: str = "tuning",
        charge_draft: bool = False,
    ) -> None:
        self.width = width if width in (None, MEASURED) else node_count("width", width)
        self.nodes_per_request = whole("nodes_per_request", nodes_per_request)
        self.max_nodes = node_count("max_nodes_per_request", max_nodes_per_request)
        self.scores = choice("scores", scores, SCORES)
        self.mass_curve = choice("mass_curve", mass_curve, ("tuning", "published"))
        self.charge_draft = choice("charge_draft", charge_draft, (False, True))

    def prepare(self, lab: Lab) -> None:
        scores = marginal_scores(self.scores, lab.recording)
        fixed = isinstance(self.width, int)
        widest = self.width if fixed else DEPLOYED_WIDTHS[-1]
        self.order = BestFirstOrder(scores=scores, nodes=max(widest, self.max_nodes), branch=8)
        self._fit = {"width": self.width} if fixed else self._chosen(lab)
        self._fit["scores"] = scores

    def _chosen(self, lab: Lab) -> dict:
        """The width of a lone request, and how it was found."""
        packed, ms = lab.cost.width_probe(PROBE_CONTEXT)
        draft_ms = lab.cost.draft_s(1, PROBE_CONTEXT) * 1e3 if self.charge_draft else 0.0
        profile, said = lab.cost.profile.described, {"mass_curve": self.mass_curve}
        if self.mass_curve == "published":
            rho = published_mass_curve()
        else:
            rho = prefix_mass(lab.table(self.order), fitting_anchors(lab, "tuning"))
        if self.width == MEASURED:
            width, rate = measured_width(rho, packed, ms, draft_ms, profile)
            return {"width": width, "tokens_per_ms": rate} | said
        c0_ms, c1_ms = fit_line(packed, ms, profile)
        stop = stop_width(rho, c0_ms, c1_ms, draft_ms)
        line = {"c0_ms": c0_ms, "c1_ms": c1_ms, "stop": stop}
        return line | said | {"width": deploy_width(stop)}

    def rule(self, batch: int) -> FixedWidth | SharedBudget:
        if batch == 1:
            return FixedWidth(self.order, self._fit["width"])
        return SharedBudget(self.order, batch * self.nodes_per_request, self.max_nodes)

    def describe(self) -> dict:
        return self._fit
