"""Models, decoding and recording of the small pair, on tiny random weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.generate import BANNED, decode  # noqa: E402
from real_runner.pair.config import DrafterConfig, TargetConfig  # noqa: E402
from real_runner.pair.drafter import Drafter  # noqa: E402
from real_runner.pair.target import Target  # noqa: E402
from real_runner.recorder import Text, draft_hidden, pool_scores, trace_target  # noqa: E402
from real_runner.train.text import EOS  # noqa: E402
from traces.keyed_noise import keyed_draw  # noqa: E402

SHAPE = TargetConfig(vocab_size=64, layers=2, width=32, heads=2, feed_forward=48)
TAPS = (1, 2)


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(3)
    model = Target(SHAPE)
    with torch.no_grad():  # spread the logits, so that argmaxes are no near ties
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(12)
    return model.eval().requires_grad_(False)


def make_drafter(kind):
    torch.manual_seed(4)
    block = kind == "block"
    config = DrafterConfig(
        kind=kind, block=5, width=32, heads=2, feed_forward=48, taps=TAPS,
        markov_rank=0 if block else 4,
    )  # fmt: skip
    return Drafter(config, SHAPE).eval().requires_grad_(False)


def plain_continuation(target, prompt, count, temperature=0.0, seed=0):
    """One token at a time, whole forward passes, no cache, no padding, no batch."""
    tokens = list(prompt)
    for index in range(count):
        hidden, _, _ = target(torch.tensor([tokens]))
        logits = target.logits(hidden[0, -1]).double().numpy()
        logits[list(BANNED)] = -np.inf
        tokens.append(keyed_draw(logits, temperature, seed, index))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_batched_decoding_equals_one_request_at_a_time(target, temperature):
    prompts, seeds = [[0, 9, 8, 7], [0, 30], [0, 11, 12, 13, 14, 15, 16]], [101, 102, 103]
    outputs, ahead = decode(target, prompts, 10, temperature, seeds, lookahead=4)
    for prompt, seed, output, more in zip(prompts, seeds, outputs, ahead, strict=True):
        expected = plain_continuation(target, prompt, 14, temperature, seed)
        stop = expected.index(EOS) + 1 if EOS in expected[:10] else 10
        assert output == expected[:stop]
        assert more == expected[stop : stop + 4]
        assert not set(output + more) & set(BANNED)


def test_trace_finds_the_recorded_text_and_notices_a_changed_token(target):
    prompt = [0, 9, 8, 7]
    (output,), (ahead,) = decode(target, [prompt], 8, 0.0, [1], lookahead=4)
    text = Text(0, 0, 1, prompt, output, ahead)
    hidden, taps, margin, wrong = trace_target(target, text, 0.0, TAPS)
    assert wrong == 0
    assert hidden.shape == (len(output) + 4, 32)
    assert taps.shape == (1, len(text.tokens), 64)
    assert (margin > 0).all()
    broken = list(output)
    broken[3] = broken[3] % 40 + 5
    assert trace_target(target, Text(0, 0, 1, prompt, broken, ahead), 0.0, TAPS)[3] > 0


@pytest.mark.parametrize("kind", ["block", "semi_autoregressive"])
def test_drafts_see_the_anchor_and_what_is_strictly_before_it(target, kind):
    drafter, anchor = make_drafter(kind), 6
    tokens = torch.tensor([[0, 9, 8, 7, 20, 21, 22, 23, 24, 25]])

    def drafts(row):
        _, _, tapped = target(row, taps=TAPS)
        context = drafter.context(torch.cat(tapped, -1))
        return drafter(
            target.embedding.weight, context, row[:, anchor : anchor + 1], torch.tensor([[anchor]])
        )

    base = drafts(tokens)
    assert base.shape == (1, 1, drafter.config.depths, 32)
    later, earlier, seed = tokens.clone(), tokens.clone(), tokens.clone()
    later[0, anchor + 1 :] = 40
    earlier[0, anchor - 1] = 40
    seed[0, anchor] = 40
    assert torch.equal(drafts(later), base)
    assert not torch.allclose(drafts(earlier), base)
    assert not torch.allclose(drafts(seed), base)


@pytest.mark.parametrize("kind", ["block", "semi_autoregressive"])
def test_all_anchors_at_once_equal_one_anchor_on_its_own_prefix(target, kind):
    """What is recorded in one pass is what a live round would draft from its own prefix."""
    drafter, prompt = make_drafter(kind), [0, 9, 8, 7]
    (output,), (ahead,) = decode(target, [prompt], 8, 0.0, [1], lookahead=5)
    text = Text(0, 0, 1, prompt, output, ahead)
    _, taps, _, _ = trace_target(target, text, 0.0, TAPS)
    together = draft_hidden(drafter, target, text, taps)
    for row, position in enumerate(text.anchors):
        prefix = torch.tensor([text.tokens[:position]])  # the anchor's own state is not there yet
        _, _, tapped = target(prefix, taps=TAPS)
        alone = drafter(
            target.embedding.weight,
            drafter.context(torch.cat(tapped, -1)),
            torch.tensor([[text.tokens[position]]]),
            torch.tensor([[position]]),
        )
        assert torch.allclose(alone[0, 0], together[row], atol=1e-4)


def test_pool_is_the_full_vocabulary_law(target):
    hidden = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(1))
    realised = np.array([[5, 6, 7, 8, 9]] * 3)
    scores = pool_scores(target, hidden, realised, pool=6)
    logits = (hidden @ target.embedding.weight.T).double().numpy()
    logits[..., list(BANNED)] = -np.inf
    law = np.exp(logits - logits.max(-1, keepdims=True))
    law /= law.sum(-1, keepdims=True)
    expected = -np.sort(-law, axis=-1)[..., :6]
    assert np.allclose(np.exp(scores["pool_logprob"].astype(float)), expected, atol=2e-3)
    assert np.allclose(np.exp(scores["path_logq"][0, 2].astype(float)), law[0, 2, 7], atol=2e-3)


def test_markov_bias_is_the_product_of_its_factors():
    drafter = make_drafter("semi_autoregressive")
    product = drafter.markov_in.weight @ drafter.markov_out.weight.T
    assert torch.allclose(drafter.bias(torch.tensor([7, 9])), product[[7, 9]], atol=1e-6)
