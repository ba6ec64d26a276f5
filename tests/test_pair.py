"""Models, decoding and recording of the small pair, on tiny random weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.models.small.config import BANNED, EOS, DrafterConfig, TargetConfig
from real_runner.recording.texts import Prompt, Text, write_texts
from real_runner.recording.trace import draft_hidden, pool_scores, trace_target
from tests.tiny_pair import KINDS, TAPS, continuation, full_draft, tiny_pair
from traces.common.errors import InputError

PROMPTS, SEEDS = [[0, 9, 8, 7], [0, 30], [0, 11, 12, 13, 14, 15, 16]], [101, 102, 103]


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture(scope="module")
def target(pair):
    return pair.target


def written(target, prompt, lookahead):
    (text,) = write_texts(target, [Prompt(0, 0, 1, prompt)], 8, 0.0, lookahead)
    return text


@pytest.mark.parametrize("ends", [(EOS,), ()], ids=["eos", "early"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_batched_decoding_equals_one_request_at_a_time(target, monkeypatch, temperature, ends):
    """An end of sequence ends the text, and not the lookahead."""
    alone = [
        continuation(target, prompt, 14, temperature, seed)
        for prompt, seed in zip(PROMPTS, SEEDS, strict=True)
    ]
    ends = ends or (alone[0][0], alone[1][5])
    monkeypatch.setattr(target, "eos_tokens", ends)
    prompts = [Prompt(0, 0, seed, prompt) for prompt, seed in zip(PROMPTS, SEEDS, strict=True)]
    texts = write_texts(target, prompts, 10, temperature, lookahead=4)
    for text, tokens in zip(texts, alone, strict=True):
        stop = next((i for i, token in enumerate(tokens[:10], 1) if token in ends), 10)
        assert text.output == tokens[:stop]
        assert text.lookahead == tokens[stop : stop + 4]
        assert not set(text.output + text.lookahead) & set(BANNED)
    if ends != (EOS,):
        assert len(texts[0].output) == 1


def test_trace_finds_the_recorded_text_and_notices_a_changed_token(target):
    text = written(target, PROMPTS[0], 4)
    trace = trace_target(target, text, 0.0, TAPS)
    assert trace.mismatches == 0
    assert trace.hidden.shape == (len(text.output) + 4, 32)
    assert trace.taps.shape == (1, len(text.tokens), 64)
    assert (trace.margin > 0).all()
    broken = list(text.output)
    broken[3] = broken[3] % 40 + 5
    changed = Text(0, 0, 1, text.prompt, broken, text.lookahead)
    assert trace_target(target, changed, 0.0, TAPS).mismatches > 0


@pytest.mark.parametrize("kind", KINDS)
def test_all_anchors_at_once_equal_one_anchor_on_its_own_prefix(target, pair, kind):
    """What is recorded in one pass is what a live round would draft from its own prefix."""
    drafter, text = pair.drafters[kind], written(target, PROMPTS[0], 5)
    together = draft_hidden(drafter, text, trace_target(target, text, 0.0, TAPS).taps)
    logits = drafter.logits(together).double().numpy()
    logits[..., list(BANNED)] = -np.inf
    assert len(logits) == len(text.anchors) == len(text.output) - 1
    for row, position in enumerate(text.anchors):
        alone = full_draft(drafter, target, text.tokens[: position + 1])
        assert np.allclose(logits[row], alone, atol=1e-3)
    for place in (position, position - 1):  # the anchor counts, and what is before it
        other = text.tokens[: position + 1]
        other[place] = other[place] % 40 + 5
        assert not np.allclose(full_draft(drafter, target, other), alone, atol=1e-2)


def test_pool_is_the_full_vocabulary_law(target, pair):
    hidden = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(1))
    realised = np.array([[5, 6, 7, 8, 9]] * 3)
    scores = pool_scores(target, pair.drafters["block"], hidden, realised, pool=6)
    logits = (hidden @ target.head.T).double().numpy()
    logits[..., list(BANNED)] = -np.inf
    law = np.exp(logits - logits.max(-1, keepdims=True))
    law /= law.sum(-1, keepdims=True)
    expected = -np.sort(-law, axis=-1)[..., :6]
    assert np.allclose(np.exp(scores["pool_logprob"]), expected, atol=2e-5)
    assert np.allclose(np.exp(scores["path_logq"][0, 2]), law[0, 2, 7], atol=2e-5)


@pytest.mark.parametrize(
    ("config", "name", "size"),
    [
        (TargetConfig, "layers", 10**9),
        (TargetConfig, "vocab_size", 0),
        (TargetConfig, "width", 256.0),
        (TargetConfig, "heads", 3),
        (DrafterConfig, "block", True),
        (DrafterConfig, "markov_rank", -1),
        (DrafterConfig, "markov_rank", 8),
    ],
)
def test_shapes_that_are_none_are_refused_before_anything_is_built(config, name, size):
    at = "width is 256" if name == "heads" else f"{name} is {size}"
    with pytest.raises(InputError, match=f"^{at}; accepted: "):
        config(**{name: size})
