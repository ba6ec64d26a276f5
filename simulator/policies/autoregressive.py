"""Plain decoding: no draft, one token per step."""

from __future__ import annotations

from simulator.engine.compiled.rules import Plain
from simulator.policy import Load, Policy


class Autoregressive(Policy):
    """Never drafts. The baseline of every speed-up."""

    drafts = False

    def plan(self, load: Load) -> None:
        return None

    def rule(self, batch: int) -> Plain:
        return Plain()
