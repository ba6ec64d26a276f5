"""Every policy emits the target's distribution; two verifiers known to be wrong do not.

Independent draws, 100,000 rounds each: the first two tokens behind one root against their exact
law, and the second and third together.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("torch")

from real_runner.engine.wrong import TopKWithFullResiduals
from simulator.cost import StepCost, find_profile
from simulator.engine.run import fit, tables_of
from simulator.orders import DraftHead, OrderTable, build_block
from simulator.orders.families.sampled import SampledOrder
from simulator.policies.loading import make_policy
from simulator.policy import Draft, Load, Outcome, Step
from tests.confidence import with_confidence
from tests.sampled_cases import (
    block_of,
    draws_of,
    has_law,
    lengthened,
    verified,
)
from tests.synthetic import make_hidden

CONF = Path(__file__).resolve().parents[1] / "conf" / "policy"
SHIPPED = {path.stem: path for path in sorted(CONF.glob("*.yaml"))}
ROUNDS, WAVES, DEPTHS, VOCAB, ANCHOR = 60_000, 20, 7, 16, 5
TREE = {"_target_": "tests.sampled_cases.SampledTree"}
FORCED = {
    "sampled tree": TREE | {"nodes": 24, "branch": 4, "threshold": 0.02},
    "calibrated tree": TREE | {"nodes": 12, "branch": 8, "platt": [0.7, -0.4]},
    "tree of cooler drafts": TREE | {"nodes": 12, "branch": 2, "temperature": 0.6},
    "sampled chain": TREE | {"branch": 1, "threshold": 1e-9},
    "confident chain": TREE | {"branch": 1, "confidence": [1.0] * DEPTHS, "threshold": 0.3},
}


class Lab:
    """A small recording to fit on, the drafts at one of its anchors, and a target behind it."""

    def __init__(self) -> None:
        rng = np.random.default_rng(6)
        shape = {"depths": DEPTHS, "vocab": VOCAB, "lengths": [14] * 9, "sequences": 9}
        plain = make_hidden(rng, temperature=1.0, noise=0.15, **shape)
        self.recording = with_confidence(plain)
        self.tables, self.cost = tables_of(self.recording), StepCost(find_profile("b300"))
        head = DraftHead.of(self.recording)
        self.logits = head.logits(self.recording["hidden"][[ANCHOR]])[0] / 3  # (D, V), flatter
        factors = (self.recording[name].astype(np.float64) for name in ("markov_w1", "markov_w2"))
        self.factors = tuple(factors)
        mean = np.concatenate([self.logits, self.logits[:1]])[:, None]
        mean = mean + self.factors[0] @ self.factors[1].T  # (D + 1, V, V)
        weight = np.exp(mean + rng.normal(size=mean.shape) * 0.5)
        self.law = weight / weight.sum(-1, keepdims=True)
        names = ("confidence_hidden", "confidence_parent", "confidence_bias")
        self.confidence = [self.recording[name] for name in names]

    def block(self, count: int):
        """The same drafts for `count` requests."""
        block = block_of(self.logits, count, *self.factors)
        parts = DraftHead(VOCAB, None, *self.factors, confidence=self.confidence)
        state = self.recording["hidden"][ANCHOR].astype(np.float64) @ parts.confidence[0]
        logit = np.tile(state + parts.confidence[2], (count, 1))
        return type(block)(
            logits=block.logits, head=parts, anchor_token=block.anchor_token, confidence_logit=logit
        )

    def policy(self, node):
        policy = make_policy(node)
        fit(policy, self.recording, self.cost, 64, self.tables)
        return policy


@pytest.fixture(scope="module")
def lab():
    return Lab()


@cache
def load_of(batch: int) -> Load:
    many = np.full(batch, 500)
    return Load(0.0, batch, 0, batch, context=many, remaining=many, request=np.arange(batch))


def rows_of(table: OrderTable, count: int) -> OrderTable:
    """The first row for `count` requests, where drafts are no samples."""
    names = ("score", "depth", "parent", "token", "size", "hit_rank", "ties")
    arrays = {name: np.repeat(getattr(table, name)[:1], count, 0) for name in names}
    return OrderTable(table.spec, np.arange(count), **arrays)


def wave(lab, policy, batch: int, count: int, rng, text_length: int = 3):
    """(texts (count, 3), nodes verified, widest of any) of `count` rounds in steps of `batch`."""
    spec, steps = policy.plan(load_of(batch)), range(0, count, batch)
    block, width = lab.block(count), np.zeros(count, np.int64)
    sampled = getattr(spec, "sampled", False)
    if spec is None:
        table = None
    elif sampled:
        table = build_block(spec, block, draws=draws_of(rng, count))
    else:
        table = rows_of(build_block(spec, lab.block(1)), count)
    for first in steps if table is not None else ():
        cut = slice(first, first + batch)
        draft = Draft(table.score[cut], table.depth[cut], table.parent[cut], table.size[cut])
        width[cut] = policy.allocate(Step(load_of(batch), draft, spec, lab.cost))
    assert table is None or np.all(width <= table.size)
    if table is None:
        table = rows_of(build_block(SampledOrder(nodes=1, branch=1, temperature=1.0), lab.block(1),
                                    draws=draws_of(rng, 1)), count)  # fmt: skip
    walk = verified(table, width, block, lab.law, rng)
    for first in steps:
        cut = slice(first, first + batch)
        parts = (np.arange(batch), width[cut], walk.accepted[cut], walk.accepted[cut] + 1)
        policy.observe(Outcome(0.0, 1e-3, spec is not None, *parts))
    return lengthened(walk, lab.law, text_length, rng), width, walk.accepted


def batch_for(policy) -> int:
    """Small where trees are sampled: policies keep them for small batches."""
    spec = policy.plan(load_of(8))
    return 8 if getattr(spec, "sampled", False) and not spec.chain else 20


def law_of_texts(law: np.ndarray) -> np.ndarray:
    """(V, V, V) exact law of three tokens behind token 0."""
    return law[0, 0][:, None, None] * law[1][:, :, None] * law[2][None]


def p_values(texts: np.ndarray, law: np.ndarray) -> tuple[float, float]:
    """Of the first two tokens, and of the second and third, against their exact law."""
    exact, vocab = law_of_texts(law), law.shape[1]
    counts = np.zeros((vocab,) * 3)
    np.add.at(counts, tuple(texts.T), 1)
    tests = has_law(counts.sum(2), exact.sum(2)), has_law(counts.sum(0), exact.sum(0))
    assert all(degrees >= 1 for _, degrees in tests)
    return tests[0][0], tests[1][0]


def texts_of(lab, node: dict, name: str):
    """(texts (ROUNDS, 3), mean nodes verified, mean accepted) of a policy."""
    policy, rng = lab.policy(node), np.random.default_rng(zlib.crc32(name.encode()))
    batch = batch_for(policy)
    waves = [wave(lab, policy, batch, ROUNDS // WAVES, rng) for _ in range(WAVES)]
    texts, width, accepted = (np.concatenate(part) for part in zip(*waves))
    assert len(texts) == ROUNDS
    return texts, width.mean(), accepted.mean()


@pytest.mark.parametrize("name", [*SHIPPED, *FORCED])
def test_every_policy_emits_the_targets_distribution(lab, name):
    node = FORCED.get(name) or yaml.safe_load(SHIPPED[name].read_text())
    texts, width, accepted = texts_of(lab, node, name)
    p = p_values(texts, lab.law)
    print(f"\n{name}: {width:.2f} nodes, {accepted:.2f} accepted, p {p[0]:.3f} {p[1]:.3f}")
    assert min(p) > 1e-3
    if name in FORCED:
        assert width > 1
        assert accepted > 0.5


def test_a_top_k_set_with_full_residuals_does_not(lab):
    """Fewer rounds, as that verifier is slow; the same test."""
    count, rng = 3000, np.random.default_rng(1)
    node = yaml.safe_load(SHIPPED["fixed_tree"].read_text()) | {"nodes": 8, "branch": 8}
    block = lab.block(count)
    table = rows_of(build_block(lab.policy(node).order, block), count)
    width = table.size.astype(np.int64)
    walk = verified(table, width, block, lab.law, rng, 1.0, TopKWithFullResiduals)
    p = p_values(lengthened(walk, lab.law, 3, rng), lab.law)
    print(f"\ntop-k set, full residuals: p {p[0]:.1e} {p[1]:.1e}")
    assert min(p) < 1e-6


def test_admission_by_value_does_not():
    """DSpark (arXiv 2607.05147), appendix A: x is verified only when it is A: (.85, .15)."""
    law = np.tile([0.7, 0.3], (3, 2, 1))
    block, rng = block_of(np.log([[0.5, 0.5]]), ROUNDS), np.random.default_rng(2)
    order = SampledOrder(nodes=1, branch=1, temperature=1.0)
    table = build_block(order, block, draws=draws_of(rng, ROUNDS))
    for width, right in ((table.token[:, 0] == 0, False), (table.size, True)):
        walk = verified(table, width.astype(np.int64), block, law, rng)
        share = (walk.token[:, 0] == 0).mean()
        assert abs(share - (0.7 if right else 0.85)) < 3 * (0.7 * 0.3 / ROUNDS) ** 0.5
        p = p_values(lengthened(walk, law, 3, rng), law)
        print(f"\nadmission by value: {not right}, share of A {share:.4f}, p {p[0]:.2g}")
        assert (p[0] > 1e-3) if right else (p[0] < 1e-6)
