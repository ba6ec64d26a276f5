"""What target and drafters are trained on: batches and losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from real_runner.engine.attend import TextAttend, read_whole
from real_runner.models.small.config import BANNED
from real_runner.models.small.pair import Drafter, Target

DEPTH_DECAY = {"block": 8.0, "semi_autoregressive": 5.0}  # loss weight exp(-(d - 1) / decay)


@dataclass(frozen=True, slots=True)
class DraftData:
    """Target-generated text: N rows of at most T tokens, padded; taps in a memory-mapped file."""

    tokens: np.ndarray  # (N, T) uint16
    prompt_len: np.ndarray  # (N,)
    length: np.ndarray  # (N,) prompt + outputs
    taps: np.ndarray  # (N, T, taps * width) float16

    def draw(self, rng: np.random.Generator, rows: int, anchors: int) -> tuple[Tensor, ...]:
        """Random rows and anchors among their outputs 0..L-2: a batch of `drafter_loss`."""
        chosen = np.sort(rng.choice(len(self.tokens), rows, replace=False))
        low, high = self.prompt_len[chosen], self.length[chosen] - 1
        spread = rng.random((rows, anchors))
        position = (low[:, None] + spread * np.maximum(high - low, 1)[:, None]).astype(np.int64)
        return (
            torch.from_numpy(self.tokens[chosen].astype(np.int64)),  # (b, t)
            torch.from_numpy(self.taps[chosen]).float(),  # (b, t, taps * width)
            torch.from_numpy(position),  # (b, n)
            torch.from_numpy(self.length[chosen]),  # (b,)
        )


def target_loss(model: Target, tokens: Tensor, weight: Tensor) -> Tensor:
    """Mean cross-entropy in nats of tokens[:, 1:], weighted. tokens, weight: (b, t + 1)."""
    hidden, _ = read_whole(model, tokens[:, :-1])
    logits = model.logits(hidden.flatten(0, 1))
    loss = F.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
    kept = weight[:, 1:].flatten()
    return (loss * kept).sum() / kept.sum()


def drafter_loss(model: Drafter, target: Target, tokens, taps, position, length) -> Tensor:
    """Half hard, half soft cross-entropy per depth, plus the confidence head's.

    The soft labels are the target's law given the true prefix: averaged over prefixes they are the
    law of the future token, with less variance than the token itself.
    """
    ahead, width = torch.arange(1, model.depths + 1), target.width
    label_at = (position[..., None] + ahead).clamp(max=tokens.shape[1] - 1)  # (b, n, d)
    inside = position[..., None] + ahead < length[:, None, None]
    label, parent = (tokens.gather(1, at.flatten(1)) for at in (label_at, label_at - 1))
    with torch.no_grad():
        final = target.norm(taps[..., -width:])  # the last tap is the last layer
        at = (label_at - 1).flatten(1)[..., None].expand(-1, -1, width)
        law = _logits(final.gather(1, at), target.head).softmax(-1)  # (b, n * d, v)
    context = model.context(taps, torch.arange(taps.shape[1])[None])
    anchor = tokens.gather(1, position).flatten()
    hidden = model(anchor, position.flatten(), TextAttend(context, position))
    hidden = hidden.unflatten(0, position.shape).flatten(1, 2)  # (b, n * d, width)
    logits = _logits(hidden, target.head)
    if model.markov is not None:
        logits = logits + model.bias(parent)
    logq = logits.log_softmax(-1)
    hard = -logq.gather(2, label[..., None]).squeeze(-1)
    soft = -(law * logq).sum(-1)
    weight = (inside * torch.exp(-(ahead - 1) / DEPTH_DECAY[model.kind])).flatten(1)
    loss = 0.5 * (hard + soft)
    if model.confidence is not None:
        overlap = torch.minimum(law, logq.detach().exp()).sum(-1).clamp(0, 1)  # 1 - TV(q, p)
        guess = model.confidence_logit(hidden.detach(), parent)
        loss = loss + F.binary_cross_entropy_with_logits(guess, overlap, reduction="none")
    return (loss * weight).sum() / weight.sum()


def _logits(hidden: Tensor, head: Tensor) -> Tensor:
    """Shared head with the banned tokens out of reach; (b, t, width) -> (b, t, vocab)."""
    logits = F.linear(hidden.flatten(0, 1), head)
    bar = torch.zeros(head.shape[0])
    bar[list(BANNED)] = -1e4  # finite, so that padding labels of weight 0 stay finite too
    return (logits + bar).unflatten(0, hidden.shape[:2])
