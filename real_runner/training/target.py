"""Training the small target on packed rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from real_runner.models.small.config import TargetConfig
from real_runner.models.small.target import Target
from real_runner.training.schedule import optimisers, set_rate
from real_runner.training.text import packed_rows


def weighted_loss(model: Target, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats of tokens[:, 1:], weighted. tokens, weight: (b, t + 1)."""
    hidden, _, _ = model(tokens[:, :-1])
    logits = model.logits(hidden.flatten(0, 1))
    loss = F.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
    kept = weight[:, 1:].flatten()
    return (loss * kept).sum() / kept.sum()


def train_target(
    config: TargetConfig,
    tokenizer,
    *,
    seed: int,
    steps: int,
    batch: int,
    row_tokens: int,
    checkpoint: Path,
    log: Callable[[str], None] = print,
    checkpoint_every: int = 200,
) -> Target:
    """Train from scratch for a fixed number of steps; returns the model.

    Weights are also written to `checkpoint` every `checkpoint_every` steps, to look at on the way.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 1])
    tokens, weight = packed_rows(tokenizer, rng, steps * batch, row_tokens)
    model = Target(config)
    chosen = optimisers(model, matrix_rate=3e-3, other_rate=3e-3)
    step_loss = torch.compile(lambda t, w: weighted_loss(model, t, w))
    started, running = time.monotonic(), None
    for step in range(steps):
        rows = slice(step * batch, (step + 1) * batch)
        set_rate(chosen, step, steps)
        loss = step_loss(
            torch.from_numpy(tokens[rows].astype(np.int64)),
            torch.from_numpy(weight[rows].astype(np.float32)),
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in chosen:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if step % 20 == 0 or step == steps - 1:
            minutes = (time.monotonic() - started) / 60
            log(f"target step {step + 1}/{steps} loss {running:.4f} {minutes:.1f} min")
        if (step + 1) % checkpoint_every == 0:
            save_file(model.state_dict(), checkpoint)
    return model
