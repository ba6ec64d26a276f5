"""Training a block drafter on the target's hidden states."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from real_runner.models.small.config import DrafterConfig
from real_runner.models.small.drafter import Drafter
from real_runner.models.small.generate import BANNED
from real_runner.models.small.target import Target
from real_runner.training.drafts import DraftData
from real_runner.training.schedule import optimisers, set_rate

DEPTH_DECAY = {"block": 8.0, "semi_autoregressive": 5.0}  # loss weight exp(-(d - 1) / decay)


def draw_batch(data: DraftData, rng: np.random.Generator, rows: int, anchors: int):
    """Random rows and anchors among their outputs 0..L-2; tensors of one training step."""
    chosen = np.sort(rng.choice(len(data.tokens), rows, replace=False))
    low, high = data.prompt_len[chosen], data.length[chosen] - 1
    spread = rng.random((rows, anchors))
    position = (low[:, None] + spread * np.maximum(high - low, 1)[:, None]).astype(np.int64)
    return (
        torch.from_numpy(data.tokens[chosen].astype(np.int64)),  # (b, t)
        torch.from_numpy(data.taps[chosen]).float(),  # (b, t, taps * width)
        torch.from_numpy(position),  # (b, n)
        torch.from_numpy(data.length[chosen]),  # (b,)
    )


def drafter_loss(model: Drafter, target: Target, tokens, taps, position, length) -> Tensor:
    """Half hard, half soft cross-entropy per depth, plus the confidence head's.

    The soft labels are the target's law given the true prefix: averaged over prefixes they are the
    law of the future token, with less variance than the token itself.
    """
    config, anchors = model.config, position.shape[1]
    ahead = torch.arange(1, config.depths + 1)
    label_at = (position[..., None] + ahead).clamp(max=tokens.shape[1] - 1)  # (b, n, d)
    inside = position[..., None] + ahead < length[:, None, None]
    label = tokens.gather(1, label_at.flatten(1)).unflatten(1, (anchors, -1))
    parent = tokens.gather(1, (label_at - 1).flatten(1)).unflatten(1, (anchors, -1))
    embedding = target.embedding.weight
    with torch.no_grad():
        width = target.config.width
        final = target.norm(taps[..., -width:])  # the last tap is the last layer
        at = (label_at - 1).flatten(1)[..., None].expand(-1, -1, width)
        law = _logits(final.gather(1, at), embedding).softmax(-1)  # (b, n * d, v)
    anchor = tokens.gather(1, position)
    hidden = model(embedding, model.context(taps), anchor, position).flatten(1, 2)
    logits = _logits(hidden, embedding)
    if config.markov_rank:
        logits = logits + model.bias(parent.flatten(1))
    logq = logits.log_softmax(-1)
    hard = -logq.gather(2, label.flatten(1)[..., None]).squeeze(-1)
    soft = -(law * logq).sum(-1)
    decay = torch.exp(-(ahead - 1) / DEPTH_DECAY[config.kind])
    weight = (inside * decay).flatten(1)
    loss = 0.5 * (hard + soft)
    if config.markov_rank:
        overlap = torch.minimum(law, logq.detach().exp()).sum(-1).clamp(0, 1)  # 1 - TV(q, p)
        guess = model.confidence_logit(hidden.detach(), parent.flatten(1))
        loss = loss + F.binary_cross_entropy_with_logits(guess, overlap, reduction="none")
    return (loss * weight).sum() / weight.sum()


def _logits(hidden: Tensor, embedding: Tensor) -> Tensor:
    """Shared head with the banned tokens out of reach; (b, t, width) -> (b, t, vocab)."""
    logits = F.linear(hidden.flatten(0, 1), embedding)
    bar = torch.zeros(embedding.shape[0])
    bar[list(BANNED)] = -1e4  # finite, so that padding labels of weight 0 stay finite too
    return (logits + bar).unflatten(0, hidden.shape[:2])


def train_drafter(
    config: DrafterConfig,
    target: Target,
    data: DraftData,
    *,
    seed: int,
    steps: int,
    schedule_steps: int | None = None,
    rows: int = 8,
    anchors: int = 16,
    checkpoint: Path,
    log: Callable[[str], None] = print,
    checkpoint_every: int = 200,
) -> Drafter:
    """Train for a fixed number of steps; returns the model.

    The learning rate follows a schedule of `schedule_steps` (default: all steps are trained).

    Weights are also written to `checkpoint` every `checkpoint_every` steps, to look at on the way.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 3])
    model = Drafter(config, target.config)
    target.requires_grad_(False)
    chosen = optimisers(model, matrix_rate=2e-3, other_rate=2e-3)
    step_loss = torch.compile(lambda *parts: drafter_loss(model, target, *parts))
    started, running = time.monotonic(), None
    for step in range(steps):
        set_rate(chosen, step, schedule_steps or steps)
        loss = step_loss(*draw_batch(data, rng, rows, anchors))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in chosen:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        running = loss.item() if running is None else 0.97 * running + 0.03 * loss.item()
        if step % 20 == 0 or step == steps - 1:
            minutes = (time.monotonic() - started) / 60
            log(f"{config.kind} step {step + 1}/{steps} loss {running:.4f} {minutes:.1f} min")
        if (step + 1) % checkpoint_every == 0:
            save_file(model.state_dict(), checkpoint)
    return model
