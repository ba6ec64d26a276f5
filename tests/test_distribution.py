"""The test of samples, by hand; and what it says of a right and of a wrong verifier."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import chisquare

torch = pytest.importorskip("torch")

from real_runner.engine.draws import IndependentDraws, KeyedDraws
from real_runner.engine.engine import Engine
from real_runner.engine.residual import Rejection
from real_runner.engine.shared_prefix import SharedPrefixEngine
from real_runner.engine.walk import DrawAndMatch
from real_runner.engine.wrong import TopKWithFullResiduals
from real_runner.serving.arena import Arena
from real_runner.tasks.distribution import (
    TOKENS,
    most_open,
    prefix_tests,
    sample,
    two_sample,
)
from simulator.engine.inputs import load_cost
from tests.tiny_pair import KINDS, continuation, tiny_pair, tiny_recording

CONF = Path(__file__).resolve().parents[1] / "conf"
EACH, STARTS = 375, 4


def many(**counts: int) -> list[tuple]:
    """Tuples of one token: many(a=2) is [("a",), ("a",)]."""
    return [(name,) for name, count in counts.items() for _ in range(count)]


# ---------------------------------------------------------------- by hand


GROUP = (many(a=30, b=20), many(a=20, b=30))
TWO_SAMPLES = {  # groups: statistic, degrees and p-value, as far as they are known by hand
    # Every cell is expected 25 times and is 5 off: 4 * 25 / 25. P(chi2 on 1 > 4) = erfc(sqrt 2).
    "one group": ([GROUP], 4.0, 1, math.erfc(math.sqrt(2))),
    # On 2 degrees of freedom the tail is exp(-x / 2), on 4 it is (1 + x / 2) exp(-x / 2).
    "two add up": ([GROUP] * 2, 8.0, 2, math.exp(-4)),
    "four add up": ([GROUP] * 4, 16.0, 4, 9 * math.exp(-8)),
    # 60 of 100 against 15 of 50: pooled 75 of 150, expected 50 50 | 25 25, off by 10 everywhere.
    "sizes": ([(many(a=60, b=40), many(a=15, b=35))], 2 * 100 / 50 + 2 * 100 / 25, 1, None),
    # c and d are expected 3 and 3.5 times on either side: together 6.5, a category of their own.
    "rare": ([(many(a=40, b=10, c=4, d=2), many(a=40, b=10, c=2, d=5))], None, 2, None),
    # c alone, 3 times, is left out; then both sides agree exactly.
    "too rare": ([(many(a=40, b=10, c=4), many(a=40, b=10, c=2))], 0.0, 1, 1.0),
    "nothing to compare": ([(many(a=50), many(a=50))], 0.0, 0, 1.0),
}


@pytest.mark.parametrize("case", TWO_SAMPLES)
def test_two_samples_by_hand(case):
    groups, statistic, degrees, p_value = TWO_SAMPLES[case]
    found = two_sample(groups)
    assert found.degrees == degrees
    if statistic is not None:
        assert found.statistic == pytest.approx(statistic)
    if p_value is not None:
        assert found.p_value == pytest.approx(p_value)
    assert prefix_tests(groups).p_value == found.p_value


def test_tokens_are_tested_behind_each_prefix_and_corrected_for():
    # Same first tokens; behind a, x and y swap places; behind b there is nothing to compare.
    ours, theirs = [("a", "x")] * 30 + [("a", "y")] * 20, [("a", "x")] * 20 + [("a", "y")] * 30
    ours, theirs = [[*side, *[("b", "z")] * 50] for side in (ours, theirs)]
    found = prefix_tests([(ours, theirs)])
    assert [test.statistic for test in found.tests] == [0.0, pytest.approx(4.0)]
    assert [test.degrees for test in found.tests] == [1, 1]
    assert found.p_value == pytest.approx(2 * math.erfc(math.sqrt(2)))  # two tests


def test_rare_prefixes_are_one_group():
    # Ten first tokens of five each: too rare to be split, and their second tokens swap places.
    ours = [(i // 5, "x" if i < 30 else "y") for i in range(50)]
    theirs = [(i // 5, "x" if i < 20 else "y") for i in range(50)]
    second = prefix_tests([(ours, theirs)]).tests[1]
    assert (second.statistic, second.degrees) == (pytest.approx(4.0), 1)


def test_texts_that_end_early_are_tuples_of_their_own():
    ours, theirs = [("a",)] * 30 + [("a", "b")] * 20, [("a",)] * 20 + [("a", "b")] * 30
    assert prefix_tests([(ours, theirs)]).tests[1].statistic == pytest.approx(4.0)


def test_false_alarms_are_as_rare_as_they_should_be():
    """100 pairs of samples of one law, a long tail included; at 5 %."""
    rng = np.random.default_rng(0)
    law = 1 / np.arange(1, 41)
    law /= law.sum()

    def draws():
        first, second = rng.choice(40, 300, p=law), rng.choice(40, 300, p=law)
        return list(zip(first.tolist(), (second * (first < 3)).tolist()))

    pairs = [[(draws(), draws()) for _ in range(2)] for _ in range(100)]
    one = sum(two_sample(pair).p_value < 0.05 for pair in pairs)
    all_of = sum(prefix_tests(pair).p_value < 0.05 for pair in pairs)
    # Binomial(100, .05): outside 1..12 once in 130; corrected tests alarm less.
    assert 1 <= one <= 12
    assert all_of <= 12


def test_a_fault_behind_an_open_first_token_is_found():
    """40 first tokens; the second's best has .5, or .7 behind the likelier half of the first."""
    rng = np.random.default_rng(1)
    law = 1 / np.arange(1, 41)
    law /= law.sum()

    def draws(best: float) -> list[tuple]:
        first = rng.choice(40, 1000, p=law)
        likelier = np.where(first < 20, best, 0.5)
        other = rng.integers(1, 5, 1000)
        second = np.where(rng.random(1000) < likelier, 0, other)
        return list(zip(first.tolist(), ((second + first) % 40).tolist()))

    found = sum(prefix_tests([(draws(0.7), draws(0.5))]).p_value < 0.01 for _ in range(20))
    assert found >= 18


# ---------------------------------------------------------------- verifiers


@pytest.fixture(scope="module", autouse=True)
def _orders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECSIM_CACHE", str(tmp_path_factory.mktemp("orders")))
        yield


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(spread=5.0)


def node(name: str, **changes):
    return yaml.safe_load((CONF / "policy" / f"{name}.yaml").read_text()) | changes


TREE = {"nodes": 8, "branch": 8}


@pytest.fixture(scope="module")
def lab(pair):
    """An arena of a drafter with a verifier, and where its requests start."""
    cost = load_cost({"profile": "b300"})
    made = {}

    def arena(kind, verifier, engine=SharedPrefixEngine):
        if kind not in made:
            made[kind] = tiny_recording(pair, kind, 8, 12, temperature=1.0)
        recording = made[kind]
        sequences = recording.sequences_of("report")
        of = recording.anchor_sequence
        starts = [most_open(recording, np.flatnonzero(of == s), EACH) for s in sequences]
        assert len(starts) == STARTS
        drafter = pair.drafters[kind]
        return Arena(pair, drafter, recording, cost, verifier, engine=engine), starts

    return arena


def drawn(lab, kind, policy, stream, verifier=DrawAndMatch, each=EACH):
    draws = IndependentDraws(1.0, np.random.default_rng([5, stream]))
    arena, starts = lab(kind, verifier(draws))
    return sample(arena, policy, starts, each)


@pytest.fixture(scope="module")
def base(lab):
    """Plain sampling, for either drafter: the texts are the same."""
    return drawn(lab, "block", node("autoregressive"), 0)


SAMPLED = {"_target_": "tests.sampled_cases.SampledTree", "nodes": 12, "branch": 3}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("policy", "stream", "verifier"),
    [
        (node("fixed_tree", **TREE), 1, DrawAndMatch),
        (SAMPLED, 3, Rejection),
        (node("fixed_tree", **TREE), 2, TopKWithFullResiduals),
    ],
    ids=["drawn and matched", "sampled", "wrong"],
)
def test_a_verifier_leaves_the_distribution_alone_or_is_found(
    lab, base, kind, policy, stream, verifier
):
    found = prefix_tests(list(zip(drawn(lab, kind, policy, stream, verifier), base)))
    if verifier is TopKWithFullResiduals:
        assert found.p_value < 1e-6
        return
    assert all(test.degrees >= 8 for test in found.tests), str(found)
    assert found.p_value > 0.01, str(found)


def test_plain_sampling_has_the_law_of_the_targets_logits(lab, base):
    """The first token behind a start, against its exact law: Pearson's test."""
    arena, starts = lab("block", None)
    recording = arena.recording
    for start, group in zip(starts, base, strict=True):
        row = recording.target_row(np.array([start]), np.zeros(1, np.int64))
        law = np.exp(recording.target_logp(row))[0]
        seen = np.bincount([tokens[0] for tokens in group], minlength=len(law))
        often = law * EACH >= 5
        expected = np.append(law[often], law[~often].sum()) * EACH
        counts = np.append(seen[often], seen[~often].sum())
        assert chisquare(counts, expected).pvalue > 1e-4


def test_most_open_takes_the_largest_entropy_that_samples_can_see(lab):
    recording = lab("block", None)[0].recording
    anchors = recording.anchors_of("report")
    found = []
    for anchor in anchors:
        row = recording.target_row(np.array([anchor]), np.zeros(1, np.int64))
        law = np.exp(recording.target_logp(row))[0]
        parts = [p for p in law if p * 50 >= 5]
        parts.append(1 - sum(parts))
        found.append(-sum(p * math.log(p) for p in parts if p > 0))
    assert most_open(recording, anchors, 50) == anchors[int(np.argmax(found))]


@pytest.mark.parametrize("policy", ["autoregressive", "fixed_tree"])
def test_a_copied_prefix_changes_no_text(pair, lab, policy):
    """Keyed draws: both engines must write what whole forward passes write."""
    texts = []
    for engine in (Engine, SharedPrefixEngine):
        arena, starts = lab("semi_autoregressive", DrawAndMatch(KeyedDraws(1.0)), engine)
        texts.append(sample(arena, node(policy), starts, 3))
    assert texts[0] == texts[1]
    recording = arena.recording
    for start, group in zip(starts, texts[0], strict=True):
        sequence, output = recording.anchor_sequence[start], recording.anchor_output[start]
        prompt, seed = recording.prompt_tokens(sequence), recording["seq_request_seed"][sequence]
        alone = continuation(pair.target, prompt.tolist(), output + 1 + TOKENS, 1.0, int(seed))
        for tokens in group:
            assert list(tokens) == alone[output + 1 :][: len(tokens)]
            assert len(tokens) == TOKENS or tokens[-1] in pair.target.eos_tokens


def test_a_prompt_is_read_once(pair, monkeypatch):
    reads, model = [], type(pair.target)
    forward = model.forward

    def watched(self, tokens, *rest):
        reads.append(tuple(tokens.shape))
        return forward(self, tokens, *rest)

    monkeypatch.setattr(model, "forward", watched)
    engine = SharedPrefixEngine(pair.target, pair.drafters["block"], 3, 20)
    for _ in range(2):
        assert engine.admit(np.array([9, 8, 7]), 0, root=30) == 30
    engine.admit(np.array([9, 8, 6]), 0, root=30)
    assert reads == [(1, 3), (1, 3)]
    assert engine.row.tolist() == [0, 1, 2]
    for cache in (engine.cache, engine.context):
        assert torch.equal(cache.key[:, 0, :, :3], cache.key[:, 1, :, :3])
        assert not torch.equal(cache.key[:, 0, :, :3], cache.key[:, 2, :, :3])
