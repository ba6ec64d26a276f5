"""Steps for chain policies: hand-made survivals, and costs from hand-made tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.cost import DraftRow, StepCost, VerifyRow, find_profile
from simulator.orders.families.scored_chain import ScoredChain
from simulator.policy import Draft, Load, Step


def staircase(
    steps: list[tuple[int, float]], draft_ms: float = 0.5, batches=(1,), **settings
) -> StepCost:
    """A step of up to `total` packed tokens takes `verify_ms`, at any batch; drafts `draft_ms`."""
    profile = find_profile("b300")
    verify = tuple(VerifyRow(None, 8192, total, ms, True) for total, ms in steps)
    header = profile.header.with_(graph_sizes=tuple(total for total, _ in steps))
    draft = tuple(DraftRow(batch, 8192, draft_ms) for batch in batches)
    changed = replace(profile, name="staircase", header=header, verify=verify, draft=draft)
    return StepCost(changed, **settings)


def chain_step(survival, cost: StepCost | None = None, ids=None, context: int = 100) -> Step:
    """A step of chains with these (B, M) survivals; their sizes end at the first 0."""
    survival = np.array(survival, float)
    exists = survival > 0
    with np.errstate(divide="ignore"):
        score = np.log(survival)
    batch, length = score.shape
    depth = np.where(exists, np.arange(1, length + 1), 0).astype(np.uint8)
    parent = np.where(exists, np.arange(length) - 1, -1).astype(np.int16)
    draft = Draft(score, depth, parent, exists.sum(axis=1))
    counts = np.full(batch, context)
    request = None if ids is None else np.array(ids)
    load = Load(0.0, batch, 0, batch, context=counts, remaining=counts, request=request)
    return Step(load, draft, ScoredChain("q"), cost)
