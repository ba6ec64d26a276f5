"""Running target and drafter over text, and keeping what a replay needs.

The drafter runs at EVERY output position, so that any policy can be replayed along its own
trajectory; the recorded text is checked against this second, unbatched pass of the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.attend import TextAttend, read_whole
from real_runner.engine.models import LiveDrafter, LiveTarget
from real_runner.engine.walk import ban
from real_runner.recording.texts import Text
from traces.common.keyed_noise import gumbel

SCORES = 2**25  # attention scores held at once, per head and layer
LAWS = 2**27  # logits held at once


@dataclass(frozen=True, slots=True)
class Trace:
    """The target over one text of L outputs and D lookahead tokens."""

    hidden: Tensor  # (L + D, width); row i predicts output i
    taps: Tensor  # (1, t, k) of all tokens
    margin: np.ndarray  # (L + D,) gap between the two best (noisy) logits
    mismatches: int  # positions where this pass emits another token than the text has


@torch.inference_mode()
def trace_target(
    target: LiveTarget, text: Text, temperature: float, taps: tuple[int, ...]
) -> Trace:
    """One forward pass over the whole text."""
    tokens = torch.tensor(text.tokens, device=target.device)[None]
    hidden, tapped = read_whole(target, tokens, taps)
    rows = hidden[0, len(text.prompt) - 1 : -1]
    logits = ban(target.logits(rows), target.banned_tokens).double()
    if temperature:
        noise = np.stack([gumbel(text.seed, i, logits.shape[1]) for i in range(len(logits))])
        logits = logits + temperature * torch.from_numpy(noise).to(logits.device)
    best = logits.topk(2).values
    emitted = torch.tensor(text.output + text.lookahead, device=target.device)
    wrong = int((logits.argmax(-1) != emitted).sum())
    return Trace(rows, tapped, (best[:, 0] - best[:, 1]).cpu().numpy(), wrong)


@torch.inference_mode()
def draft_hidden(drafter: LiveDrafter, text: Text, taps: Tensor) -> Tensor:
    """Drafter states at every anchor, (anchors, depths, width); taps (1, t, k)."""
    positions = torch.arange(taps.shape[1], device=taps.device)[None]
    context = drafter.context(taps, positions)
    anchor = torch.from_numpy(text.anchors).to(taps.device)
    token = torch.tensor(text.tokens, device=taps.device)[anchor]
    at_once = max(1, SCORES // (taps.shape[1] * drafter.slots))
    parts = [
        drafter.forward(one_token, one, TextAttend(context, one[None]))
        for one_token, one in zip(token.split(at_once), anchor.split(at_once), strict=True)
    ]
    return torch.cat(parts) if parts else taps.new_zeros(0, drafter.depths, drafter.width)


@torch.inference_mode()
def pool_scores(
    target: LiveTarget, drafter: LiveDrafter, hidden: Tensor, realised: np.ndarray, pool: int
) -> dict[str, np.ndarray]:
    """Top-`pool` tokens and log-probabilities over the full vocabulary; hidden (A, D, width)."""
    path = torch.from_numpy(realised.astype(np.int64)).to(hidden.device)
    at_once = max(1, LAWS // (hidden.shape[1] * target.vocab_size))
    parts = []
    for states, tokens in zip(hidden.split(at_once), path.split(at_once), strict=True):
        law = ban(drafter.logits(states), target.banned_tokens).double().log_softmax(-1)
        best = law.topk(pool, sorted=True)
        parts.append((best.indices, best.values, law.gather(2, tokens[..., None])[..., 0]))
    names = ("pool_token", "pool_logprob", "path_logq")
    columns = zip(*parts, strict=True)
    return {name: torch.cat(part).cpu().numpy() for name, part in zip(names, columns, strict=True)}


@torch.inference_mode()
def chain_confidence(
    target: LiveTarget, drafter: LiveDrafter, hidden: Tensor, anchor: np.ndarray
) -> np.ndarray | None:
    """Confidence head along the argmax chain, (A, D): what an engine would read each round."""
    parent = torch.from_numpy(anchor.astype(np.int64)).to(hidden.device)
    w1, w2 = drafter.markov
    kept = []
    for depth in range(hidden.shape[1]):
        state = hidden[:, depth]
        chance = drafter.chance(state, parent)
        if chance is None:
            return None
        kept.append(chance)
        logits = drafter.logits(state) + torch.nn.functional.embedding(parent, w1) @ w2.mT
        parent = ban(logits, target.banned_tokens).argmax(-1)
    return torch.stack(kept, 1).float().cpu().numpy()
