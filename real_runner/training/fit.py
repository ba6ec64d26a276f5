"""The one training loop of target and drafters: Muon and AdamW under a cosine schedule.

torch.optim.Muon orthogonalises in bfloat16, which processors without bfloat16 units emulate very
slowly; at these sizes float32 is cheap. Rule: K. Jordan, "Muon: an optimizer for hidden
layers in neural networks" (2024): Nesterov momentum, five Newton-Schulz steps, update scaled by
0.2 sqrt(larger side) so that AdamW learning rates carry over (Liu et al., arXiv 2502.16982).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)
WARM_UP = 60  # steps


def orthogonalise(update: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrix of `update` (rows, columns), roughly."""
    a, b, c = QUINTIC
    tall = update.shape[0] > update.shape[1]
    x = update.mT if tall else update
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + torch.addmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, for two-dimensional weights."""

    def __init__(self, parameters, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        """One update; gradients must be set."""
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                moving = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonalise(weight.grad.lerp(moving, group["momentum"]))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def optimisers(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the inner matrices, AdamW for embeddings, vectors and heads.

    Muon reaches a given loss in clearly fewer steps than AdamW alone at this size, which is what
    two cores need.
    """
    matrices, others = [], []
    for name, weight in model.named_parameters():
        inner = weight.dim() == 2 and not any(part in name for part in ("embedding", "markov"))
        (matrices if inner and min(weight.shape) > 1 else others).append(weight)
    return [
        Muon(matrices, lr=rate, weight_decay=0.05),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def share_of_peak(step: int, steps: int) -> float:
    """Of the learning rate: linear warm-up, then cosine to 2 %."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


def fit(
    model: nn.Module,
    loss_of: Callable[..., Tensor],
    batch_at: Callable[[int], Sequence[Tensor]],
    *,
    name: str,
    rate: float,
    steps: int,
    schedule_steps: int,
    keep: float,
    checkpoint: Path,
    log: Callable[[str], None],
    checkpoint_every: int = 200,
) -> None:
    """Train `model` for a fixed number of steps on ``loss_of(*batch_at(step))``.

    The learning rate, whose peak is `rate`, follows a schedule of `schedule_steps`. keep: of the
    running loss that is told, in each step. Weights are also written to `checkpoint` every
    `checkpoint_every` steps, to look at on the way.
    """
    chosen = optimisers(model, rate)
    loss_of = torch.compile(loss_of)
    started, running = time.monotonic(), None
    for step in range(steps):
        for optimiser in chosen:
            for group in optimiser.param_groups:
                group["lr"] = rate * share_of_peak(step, schedule_steps)
        loss = loss_of(*batch_at(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in chosen:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        running = loss.item() if running is None else keep * running + (1 - keep) * loss.item()
        if step % 20 == 0 or step == steps - 1:
            minutes = (time.monotonic() - started) / 60
            log(f"{name} step {step + 1}/{steps} loss {running:.4f} {minutes:.1f} min")
        if (step + 1) % checkpoint_every == 0:
            save_file(model.state_dict(), checkpoint)
