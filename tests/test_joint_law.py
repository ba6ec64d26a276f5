"""The joint law of text and acceptance: live rounds against texts replayed by the posterior."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from simulator.orders import BlockScores, build_block, build_order
from simulator.orders.families.sampled import SampledOrder
from tests.sampled_cases import (
    block_of,
    draws_of,
    forward,
    one_law,
    text_recording,
)
from traces.recordings.files import build_recording
from traces.recordings.scores import log_softmax

COUNT, VOCAB, DEPTHS = 100_000, 4, 2
SIZE = VOCAB * VOCAB * (DEPTHS + 1)
CONFIDENT = {
    "confidence_hidden": np.array([0.4, -0.3, 0.2, 0.1]),
    "confidence_parent": np.array([1.0, -0.7]),
    "confidence_bias": np.array([0.8]),
}


def laws():
    """(logits (D, V) and factors of a drafter, the law (D + 1, V, V) of a target not far off)."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(DEPTHS, VOCAB)) * 0.4
    w1, w2 = (rng.normal(size=(VOCAB, 2)) * 0.5 for _ in range(2))
    mean = np.concatenate([logits, logits[:1]])[:, None] + w1 @ w2.T  # (D + 1, V, V)
    weight = np.exp(mean + rng.normal(size=mean.shape) * 0.7)
    return logits, w1, w2, 0.7 * weight / weight.sum(-1, keepdims=True) + 0.3 / VOCAB


def recorded(temperature: float):
    logits, w1, w2, law = laws()
    rng = np.random.default_rng(12)
    return text_recording(logits, law, rng, COUNT, w1, w2, temperature, **CONFIDENT)


@pytest.fixture(scope="module")
def recordings():
    """By encoding; the pool holds the best three of four tokens."""
    made = {"hidden": recorded(1.0), "tempered": recorded(0.7)}
    hidden = made["hidden"]
    logq = log_softmax(hidden["hidden"].astype(np.float64))
    token = np.argsort(-logq, axis=-1, kind="stable")[..., :3]
    kept = {k: v for k, v in hidden.arrays.items() if k[:6] not in ("hidden", "markov", "confid")}
    path = np.take_along_axis(logq, hidden.realised(np.arange(COUNT))[..., None], -1)[..., 0]
    arrays = kept | {
        "target_head": kept.pop("head"),
        "pool_token": token,
        "pool_logprob": np.take_along_axis(logq, token, -1),
        "path_logq": path,
    }
    changes = {"encoding": "pool", "shared_head": False}
    meta = dict(hidden.meta) | changes | {"drafter": dict(hidden.meta["drafter"], kind="block")}
    made["pool"] = build_recording(meta, arrays, "pool texts")
    return made


def block_of_recording(recording, w1, w2) -> BlockScores:
    if recording.encoding == "pool":
        return BlockScores(recording["pool_token"], recording["pool_logprob"])
    confidence = tuple(CONFIDENT.values())
    return block_of(recording["hidden"][0], COUNT, w1, w2, confidence)


def categories(text: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Counts (SIZE,) of (two tokens, accepted drafts)."""
    index = (text[:, 0].astype(np.int64) * VOCAB + text[:, 1]) * (DEPTHS + 1) + accepted
    return np.bincount(index, minlength=SIZE)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Total variation between two samples, from counts."""
    return np.abs(a / a.sum() - b / b.sum()).sum() / 2


def noise(text: np.ndarray, accepted: np.ndarray) -> float:
    """Largest distance of the halves of a sample, over 20 random splits."""
    rng, found = np.random.default_rng(0), []
    for _ in range(20):
        halves = np.array_split(rng.permutation(len(accepted)), 2)
        found.append(distance(*(categories(text[half], accepted[half]) for half in halves)))
    return max(found)


def replay(order, threshold: float, recording):
    """(text (n, 2), accepted (n,), width (n,)): the text came first."""
    table = build_order(order, recording)
    width = (table.score >= np.log(threshold)).sum(1)
    return recording.realised(table.anchors)[:, :2], table.accepted(table.anchors, width), width


TREE, CHAIN = {"nodes": 6, "branch": 2}, {"branch": 1}
ORDERS = {
    "tree": ("hidden", TREE, 0.1),  # two levels, interleaved
    "calibrated tree": ("hidden", TREE | {"platt": (0.8, 0.1)}, 0.4),
    "tree at T 0.7": ("tempered", TREE, 0.2),
    "tree of cooler drafts": ("hidden", TREE | {"temperature": 0.5}, 0.1),
    "tree from a pool": ("pool", TREE, 0.1),
    "chain": ("hidden", CHAIN, 1e-9),
    "cut chain": ("hidden", CHAIN, 0.17),
    "confident chain": ("hidden", CHAIN | {"confidence": (1.0, 1.3)}, 0.25),
}


@pytest.mark.parametrize("name", ORDERS)
def test_replay_has_the_joint_law_of_live_rounds(recordings, name):
    kind, settings, threshold = ORDERS[name]
    recording, (_, w1, w2, law) = recordings[kind], laws()
    order = SampledOrder(**{"temperature": recording.temperature} | settings)
    text, accepted, width = replay(order, threshold, recording)
    block, rng = block_of_recording(recording, w1, w2), np.random.default_rng(11)
    live = forward(order, threshold, block, law, rng, recording.temperature)
    ours, theirs = categories(text, accepted), categories(*live)
    found, floor = distance(ours, theirs), noise(*live)
    p, degrees = one_law(ours, theirs)
    print(
        f"\n{name}: TV {found:.4f}, of halves {floor:.4f}, p {p:.3f} on {degrees}, accepted "
        f"{accepted.mean():.4f} replayed, {live[1].mean():.4f} live, widths {np.unique(width)}"
    )
    assert settings is CHAIN or len(np.unique(width)) > 1  # what is drawn decides how much is
    assert found < floor  # halves have more noise
    assert degrees >= 15
    assert p > 0.01


def test_acceptance_by_equality_with_the_text_is_not_that_law(recordings):
    """The same test finds trees that were drawn without a look at the text."""
    recording, (_, w1, w2, law) = recordings["hidden"], laws()
    order = SampledOrder(**TREE, temperature=1.0)
    block, rng = block_of_recording(recording, w1, w2), np.random.default_rng(11)
    live = forward(order, 0.12, block, law, rng)
    table = build_block(order, block, draws=draws_of(np.random.default_rng(5), COUNT))
    text = recording.realised(np.arange(COUNT))
    exists = table.score >= np.log(0.12)
    hit = exists & (table.token == np.take_along_axis(text, table.depth.clip(1) - 1, 1))
    first = (hit & (table.parent < 0)).any(1)
    second = hit & (table.parent >= 0) & np.take_along_axis(hit, table.parent.clip(0), 1)
    accepted = first.astype(np.int64) + (first & second.any(1))
    p, _ = one_law(categories(text[:, :2], accepted), categories(*live))
    assert p < 1e-9


def test_a_sampled_chain_accepts_the_overlap_of_both_laws(recordings):
    """P(first accepted) = sum of min(p, q)."""
    recording, (logits, w1, w2, law) = recordings["hidden"], laws()
    _, accepted, _ = replay(SampledOrder(**CHAIN), 1e-9, recording)
    q = np.exp(log_softmax(logits[0] + w1[0] @ w2.T))
    overlap = np.minimum(law[0, 0], q).sum()
    assert abs((accepted > 0).mean() - overlap) < 4 * (overlap * (1 - overlap) / COUNT) ** 0.5
