"""A tiny random live pair, and its laws by the models' own full forward passes.

Nothing here is cached, batched or packed, so an engine can be held against it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from real_runner.engine.attend import TextAttend, read_whole
from real_runner.engine.models import LivePair
from real_runner.engine.pack import Trees
from real_runner.models.small.config import BANNED, DrafterConfig, TargetConfig
from real_runner.models.small.pair import Drafter, Target
from real_runner.recording.record import RecordPlan, record_in_memory
from real_runner.recording.texts import Prompt
from traces.common.keyed_noise import keyed_draw
from traces.recordings.recording import Recording

VOCAB = 64
FREE = np.setdiff1d(np.arange(VOCAB), BANNED)  # tokens of a prompt
SHAPE = TargetConfig(vocab_size=VOCAB, layers=2, width=32, heads=2, feed_forward=48)
TAPS = (1, 2)
KINDS = ("block", "semi_autoregressive")


def draft_shape(kind: str, slots: int) -> DrafterConfig:
    rank = 4 if kind == "semi_autoregressive" else 0
    return DrafterConfig(
        kind=kind, block=slots, width=32, heads=2, feed_forward=48, taps=TAPS, markov_rank=rank
    )


class Codes:
    """A tokenizer: characters of code 1 to 63 stand for themselves, behind a 0."""

    def encode(self, text: str) -> list[int]:
        return [0, *(ord(letter) % VOCAB for letter in text)]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


def tiny_pair(
    spread: float = 12.0,
    dtype: torch.dtype = torch.float32,
    slots: int = 5,
    seed: int = 3,
    device: str = "cpu",
) -> LivePair:
    """Both drafters on one target, whose logits are spread so that argmaxes are no near ties."""

    def frozen(model: torch.nn.Module) -> torch.nn.Module:
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 2:
                    weight.mul_(spread)
        return model.to(device, dtype).eval().requires_grad_(False)

    torch.manual_seed(seed)
    target, drafters = frozen(Target(SHAPE, "0" * 64)), {}
    for kind in KINDS:
        torch.manual_seed(4)
        drafters[kind] = frozen(Drafter(draft_shape(kind, slots), target, "1" * 64))
    return LivePair("tiny", target, drafters, Codes())


def random_prompts(rng: np.random.Generator, count: int, longest: int = 20) -> list[list[int]]:
    """Prompts of 1 token or more."""
    return [rng.choice(FREE, rng.integers(1, longest + 1)).tolist() for _ in range(count)]


def random_trees(rng: np.random.Generator, root, length, most: int, tokens=FREE) -> Trees:
    """A tree of 0 to `most` verified nodes for each root, the last of all, in rows of further ones.

    Parents stand before their children; tokens recur in a tree, but never under one parent.
    """
    count, columns = len(root), max(most, 1)
    width = rng.integers(0, most + 1, count)
    width[-1] = most
    parent = np.array([[rng.integers(-1, m) for m in range(columns)] for _ in range(count)])
    depth, token = np.ones_like(parent), np.zeros_like(parent)
    for i, m in np.ndindex(parent.shape):
        depth[i, m] = 1 if parent[i, m] < 0 else depth[i, parent[i, m]] + 1
        siblings = token[i, :m][parent[i, :m] == parent[i, m]]
        token[i, m] = rng.choice(np.setdiff1d(tokens, siblings))
    return Trees(np.array(root), np.array(length), width, token, parent, depth)


@torch.no_grad()
def full_logits(target: Target, tokens: Sequence[int]) -> np.ndarray:
    """The target's logits (V,) float64 behind the last token, banned ones at -inf."""
    hidden, _ = read_whole(target, torch.tensor([list(tokens)]))
    logits = target.logits(hidden[0, -1]).double().numpy()
    logits[list(target.banned_tokens)] = -np.inf
    return logits


def continuation(target, prompt, count: int, temperature: float = 0.0, seed: int = 0) -> list[int]:
    """`count` outputs, EOS or not, one whole forward pass each."""
    tokens = list(prompt)
    for index in range(count):
        tokens.append(keyed_draw(full_logits(target, tokens), temperature, seed, index))
    return tokens[len(prompt) :]


@torch.no_grad()
def full_draft(drafter: Drafter, target: Target, tokens: Sequence[int]) -> np.ndarray:
    """The drafter's logits (depths, V) float64 behind the anchor, which is the last of `tokens`.

    Before the Markov bias; its context is the target's states strictly before the anchor.
    """
    before = len(tokens) - 1
    _, tapped = read_whole(target, torch.tensor([list(tokens[:-1])]), drafter.taps)
    context = drafter.context(tapped, torch.arange(before)[None])
    position = torch.tensor([before])
    hidden = drafter.forward(
        torch.tensor(tokens[-1:]), position, TextAttend(context, position[None])
    )
    logits = drafter.logits(hidden[0]).double().numpy()
    logits[:, list(target.banned_tokens)] = -np.inf
    return logits


def tiny_recording(
    pair: LivePair,
    kind: str,
    count: int,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> Recording:
    """Random prompts of the pair, a quarter to calibrate, a quarter to tune, half to report."""
    rng = np.random.default_rng(seed)
    prompts = [
        Prompt(0, (0, 1, 2, 2)[i % 4], 100 + i, tokens)
        for i, tokens in enumerate(random_prompts(rng, count))
    ]
    stored = str(pair.target.dtype).removeprefix("torch.")
    plan = RecordPlan(("any",), max_new_tokens, (temperature,), 1, "CC0-1.0", stored=stored)
    return record_in_memory(pair, pair.drafters[kind], plan, prompts, temperature)
