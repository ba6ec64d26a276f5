"""What policy tests share: small recordings, labs, and steps of recorded or hand-made drafts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.cost import DraftRow, StepCost, VerifyRow, find_profile
from simulator.orders.build import build_order
from simulator.orders.families.scored_chain import ScoredChain
from simulator.policy import Draft, Lab, Load, Policy, Step
from tests.synthetic import make_hidden, make_pool
from traces.recordings.recording import Recording

DEPTHS = 7


def make_recording(kind: str) -> Recording:
    rng = np.random.default_rng(5)
    make = {"pool": make_pool, "hidden": make_hidden}[kind]
    return make(rng, depths=DEPTHS, lengths=[12] * 9, sequences=9)


def make_lab(recording: Recording, profile: str = "b300", max_batch: int = 16) -> Lab:
    tables = {}

    def table(spec):
        if spec not in tables:
            tables[spec] = build_order(spec, recording)
        return tables[spec]

    cost = StepCost(find_profile(profile))
    return Lab(recording=recording, cost=cost, max_batch=max_batch, context=8192, table=table)


def make_load(batch: int | list[int]) -> Load:
    """Of so many requests, or of these."""
    requests = np.arange(batch) if isinstance(batch, int) else np.array(batch)
    counts = np.full(len(requests), 9)
    return Load(0.0, len(counts), 0, len(counts), counts, counts, requests)


def make_step(lab: Lab, order, anchors: np.ndarray) -> Step:
    table = lab.table(order)
    draft = Draft(
        table.score[anchors], table.depth[anchors], table.parent[anchors], table.size[anchors]
    )
    return Step(make_load(len(anchors)), draft, order, lab.cost)


def hand_step(rows, context=9, cost: StepCost | None = None) -> Step:
    """A step whose drafts have these survivals, all at depth 1; shorter rows end early."""
    size, width = np.array([len(row) for row in rows]), max(map(len, rows))
    survival = np.array([[*row, *[0.0] * (width - len(row))] for row in rows])
    with np.errstate(divide="ignore"):
        score = np.log(survival)
    depth, parent = np.ones(score.shape, np.uint8), np.full(score.shape, -1, np.int16)
    load = replace(make_load(len(rows)), context=np.broadcast_to(context, len(rows)))
    return Step(load, Draft(score, depth, parent, size), None, cost)


def prepared(policy: Policy, lab: Lab) -> Policy:
    policy.prepare(lab)
    return policy


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
