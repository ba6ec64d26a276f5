"""Running target and drafter over text, and keeping what a replay needs.

The drafter runs at EVERY output position, so that any policy can be replayed along its own
trajectory; all passes are float32, and the recorded text is checked against a second, unbatched
forward pass of the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from real_runner.generate import ban
from real_runner.pair.drafter import Drafter
from real_runner.pair.load import Pair
from real_runner.pair.target import Target
from traces.keyed_noise import gumbel


@dataclass(frozen=True, slots=True)
class Text:
    """One recorded request: prompt, outputs up to EOS or the cap, and D lookahead tokens."""

    domain: int
    split: int
    seed: int
    prompt: list[int]
    output: list[int]
    lookahead: list[int]

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output + self.lookahead

    @property
    def anchors(self) -> np.ndarray:
        """Positions of outputs 0..L-2 in `tokens`."""
        return len(self.prompt) + np.arange(max(len(self.output) - 1, 0))


@torch.no_grad()
def trace_target(target: Target, text: Text, temperature: float, taps: tuple[int, ...]):
    """(hidden of outputs and lookahead (L + D, width), taps (t, k), margin (L + D,), mismatches).

    Row i of hidden predicts output i; margin is the gap between the two best (noisy) logits;
    mismatches counts positions where this pass emits another token than the text has.
    """
    tokens = torch.tensor(text.tokens)[None]
    hidden, _, tapped = target(tokens, taps=taps)
    rows = hidden[0, len(text.prompt) - 1 : -1]  # (L + D, width)
    logits = ban(target.logits(rows)).double()
    if temperature:
        noise = np.stack([gumbel(text.seed, i, logits.shape[1]) for i in range(len(logits))])
        logits = logits + temperature * torch.from_numpy(noise)
    best = logits.topk(2).values
    emitted = torch.tensor(text.output + text.lookahead)
    mismatches = int((logits.argmax(-1) != emitted).sum())
    return rows.numpy(), torch.cat(tapped, -1), (best[:, 0] - best[:, 1]).numpy(), mismatches


@torch.no_grad()
def draft_hidden(drafter: Drafter, target: Target, text: Text, taps: torch.Tensor) -> torch.Tensor:
    """Drafter states at every anchor, (anchors, depths, width)."""
    position = torch.from_numpy(text.anchors)[None]
    anchor = torch.tensor(text.tokens)[position]
    return drafter(target.embedding.weight, drafter.context(taps), anchor, position)[0]


def pool_scores(target: Target, hidden: torch.Tensor, realised: np.ndarray, pool: int) -> dict:
    """Top-`pool` tokens and full-vocabulary log-probabilities; hidden (A, D, width)."""
    logq = ban(target.logits(hidden)).double().log_softmax(-1)
    best = logq.topk(pool, sorted=True)
    path = logq.gather(2, torch.from_numpy(realised.astype(np.int64))[..., None])
    return {
        "pool_token": best.indices.numpy().astype(np.uint16),
        "pool_logprob": best.values.numpy().astype(np.float16),
        "path_logq": path[..., 0].numpy().astype(np.float16),
    }


@torch.no_grad()
def chain_confidence(drafter: Drafter, target: Target, hidden: torch.Tensor, anchor: np.ndarray):
    """Confidence head along the argmax chain, (A, D): what an engine would read each round."""
    parent = torch.from_numpy(anchor.astype(np.int64))
    kept = []
    for depth in range(hidden.shape[1]):
        state = hidden[:, depth]
        kept.append(drafter.confidence_logit(state, parent).sigmoid())
        parent = ban(target.logits(state) + drafter.bias(parent)).argmax(-1)
    return torch.stack(kept, 1).numpy().astype(np.float16)


def markov_factors(pair: Pair, kind: str) -> dict:
    """Head and Markov factors of the semi-autoregressive drafter, stored once per file."""
    drafter = pair.drafters[kind]
    return {
        "head": pair.target.embedding.weight.numpy().astype(np.float16),
        "markov_w1": drafter.markov_in.weight.numpy().astype(np.float16),
        "markov_w2": drafter.markov_out.weight.numpy().astype(np.float16),
    }
