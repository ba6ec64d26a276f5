"""Targets and drafters given by their laws: rounds forward from drafts, recordings of their texts.

A target is first-order: law[d, u] (D + 1, V, V) is the law of the token at depth d + 1 behind a
token u. Roots are token 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from real_runner.engine.draws import IndependentDraws
from real_runner.engine.pack import Trees
from real_runner.engine.residual import Rejection
from real_runner.engine.walk import DraftLaws
from simulator.orders import BlockScores, DraftHead, Draws, OrderTable, build_block
from simulator.policy import Policy, Step
from tests.synthetic import make_meta
from traces.recordings.files import build_recording
from traces.recordings.recording import Recording
from traces.recordings.scores import log_softmax

Q = (0.15, 0.50, 0.10, 0.25)  # the worked example: drafter
P = (0.40, 0.25, 0.25, 0.10)  # and target, tokens A to D


@dataclass(frozen=True, eq=False)
class LawRound:
    """What a verifier sees of n requests, the target's logits straight from its law."""

    trees: Trees
    law: np.ndarray  # (D + 1, V, V)
    temperature: float
    laws: DraftLaws
    seeds: np.ndarray
    output_index: np.ndarray

    def rows(self, request: np.ndarray, node: np.ndarray) -> torch.Tensor:
        trees = self.trees
        token = np.where(node < 0, trees.root[request], trees.token[request, node])
        depth = np.where(node < 0, 0, trees.depth[request, node])
        with np.errstate(divide="ignore"):
            return torch.from_numpy(self.temperature * np.log(self.law[depth, token]))

    def row(self, request: int, node: int) -> torch.Tensor:
        return self.rows(np.array([request]), np.array([node]))[0]


@dataclass(frozen=True, eq=False)
class SlowLaws:
    """`law` of `DraftLaws`, from a drafter's logits (D, V) and factors; every request's are one."""

    block: BlockScores

    def law(self, request: int, depth: int, parent_token: int) -> torch.Tensor:
        head = self.block.head
        logits = self.block.logits[0, depth] + head.w1[parent_token] @ head.w2
        return torch.from_numpy(np.exp(log_softmax(logits)))


def block_of(logits: np.ndarray, count: int, w1=None, w2=None, confidence=None) -> BlockScores:
    """The same drafts' logits (D, V) for `count` requests, whose roots are token 0.

    confidence: the head's weights of a state (which are the logits), of a parent, and its bias.
    """
    head = DraftHead(logits.shape[1], None, w1, w2, confidence=confidence)
    many = np.ascontiguousarray(np.broadcast_to(logits, (count, *logits.shape)))
    state = None
    if confidence is not None:
        state = many @ head.confidence[0] + head.confidence[2]
    root = np.zeros(count, np.int64)
    return BlockScores(logits=many, head=head, anchor_token=root, confidence_logit=state)


def draws_of(rng: np.random.Generator, count: int) -> Draws:
    none = np.zeros(count, np.int64)
    return Draws(none, none, rng)


def trees_of(table: OrderTable, width: np.ndarray) -> Trees:
    none, most = np.zeros(len(width), np.int64), max(int(width.max()), 1)
    parts = (part[:, :most] for part in (table.token, table.parent, table.depth))
    sampled = table.spec.temperature if getattr(table.spec, "sampled", False) else None
    return Trees(none, none, width.astype(np.int64), *parts, sampled)


def verified(table, width, block, law, rng, temperature=1.0, verifier=Rejection):
    """The walk of independent draws over the first `width` (n,) nodes of every tree."""
    none = np.zeros(len(width), np.int64)
    slow = verifier.__name__.startswith("TopK")
    laws = SlowLaws(block) if slow else DraftLaws(None, None, np.arange(len(width)), block)
    seen = LawRound(trees_of(table, width), law, temperature, laws, none, none)
    return verifier(IndependentDraws(temperature, rng)).walk(seen)


def sample_rows(law: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One token (n,) of each of n laws (n, V)."""
    total = law.cumsum(1)
    share = rng.random((len(law), 1)) * total[:, -1:]
    return np.minimum((share >= total).sum(1), law.shape[1] - 1)


def lengthened(walk, law: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """The first `length` emitted tokens (n, length); those of later rounds from the target."""
    text = np.full((len(walk.accepted), length), -1)
    kept = min(length, walk.token.shape[1])
    text[:, :kept] = walk.token[:, :kept]
    before = np.zeros(len(text), np.int64)
    for depth in range(length):
        open_ = text[:, depth] < 0
        text[open_, depth] = sample_rows(law[depth, before[open_]], rng)
        before = text[:, depth]
    return text


def forward(order, threshold, block, law, rng, temperature=1.0):
    """(text (n, 2), accepted (n,)) of live rounds; slots below the threshold are not verified."""
    table = build_block(order, block, draws=draws_of(rng, block.shape[0]))
    width = (table.score >= np.log(threshold)).sum(1)
    walk = verified(table, width, block, law, rng, temperature)
    return lengthened(walk, law, 2, rng), walk.accepted


def text_recording(logits, law, rng, count: int, w1, w2, temperature=1.0, **extra) -> Recording:
    """`count` texts of two outputs and D = 2 more; root 0, one anchor each, drafts from `logits`.

    The head is the identity, so that states are logits.
    """
    depths, vocab = logits.shape
    text = np.zeros((count, depths + 2), np.int64)
    states = np.zeros((count, depths + 2, vocab))
    for depth in range(depths + 1):
        p = law[depth, text[:, depth]]
        states[:, depth + 1] = temperature * np.log(p)
        text[:, depth + 1] = sample_rows(p, rng)
    one = np.ones(count, np.int64)
    arrays = {
        "tokens": text.ravel(),
        "seq_offset": np.arange(count + 1) * (depths + 2),
        "prompt_len": 0 * one,
        "output_len": 2 * one,
        "domain": 0 * one,
        "split": 0 * one,
        "anchor_pos": np.arange(count) * (depths + 2),
        "hidden": np.broadcast_to(logits, (count, depths, vocab)),
        "head": np.eye(vocab),
        "markov_w1": w1,
        "markov_w2": w2,
        "target_hidden": states.reshape(-1, vocab),
        "seq_request_seed": rng.integers(0, 2**62, count),
    }
    meta = make_meta("hidden", vocab, 2, temperature=temperature, shared_head=True, eos_token=None)
    return build_recording(meta, arrays | extra, "texts")


def one_law(first: np.ndarray, second: np.ndarray, least: float = 5.0) -> tuple[float, int]:
    """(p, degrees) of Pearson's test that counts of two samples have one law; rare ones lumped."""
    smaller = min(first.sum(), second.sum()) / (first.sum() + second.sum())
    often = (first + second) * smaller >= least
    both = np.array([np.append(c[often], c[~often].sum()) for c in (first, second)])
    found = stats.chi2_contingency(both[:, both.sum(0) > 0], correction=False)
    return found.pvalue, found.dof


def has_law(counts: np.ndarray, law: np.ndarray, least: float = 5.0) -> tuple[float, int]:
    """(p, degrees) of Pearson's test that counts come from `law`; rare categories lumped."""
    expected = law.ravel() * counts.sum()
    often = expected >= least
    parts = [np.append(v.ravel()[often], v.ravel()[~often].sum()) for v in (counts, expected)]
    seen, expected = (part[parts[1] > 1e-9 * counts.sum()] for part in parts)
    assert seen.sum() == counts.sum(), "a token of probability 0 was emitted"
    degrees = len(seen) - 1
    return stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), degrees), degrees


def near(found: float, count: int, expected: float) -> None:
    """A share of `count` draws within three standard errors, small enough for three decimals."""
    error = math.sqrt(expected * (1 - expected) / count)
    print(f"\nfound {found:.4f}, expected {expected:.4f}, standard error {error:.1e}")
    assert error < 3e-4
    assert abs(found - expected) <= 3 * error


class SampledTree(Policy):
    """Every slot of sampled trees whose bound reaches a threshold."""

    def __init__(self, temperature: float = 1.0, threshold: float = 0.05, **settings) -> None:
        from simulator.orders.families.sampled import SampledOrder

        floor = math.log(threshold) - 1e-3
        self.order = SampledOrder(temperature=temperature, floor=floor, **settings)
        self.threshold = threshold

    def allocate(self, step: Step) -> np.ndarray:
        return (step.draft.score >= np.log(self.threshold)).sum(axis=1)
