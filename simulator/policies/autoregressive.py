"""Plain decoding: no draft, one token per step."""

from __future__ import annotations

from simulator.policies.shared.rules import Plain, RulePolicy


class Autoregressive(RulePolicy):
    """Never drafts. The baseline of every speed-up."""

    drafts = False

    def rule(self, batch: int) -> Plain:
        return Plain()
