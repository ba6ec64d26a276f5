"""Muon in float32.

torch.optim.Muon orthogonalises in bfloat16, which processors without bfloat16 units emulate very
slowly; at these sizes float32 is cheap. Rule: K. Jordan, "Muon: an optimizer for hidden
layers in neural networks" (2024): Nesterov momentum, five Newton-Schulz steps, update scaled by
0.2 sqrt(larger side) so that AdamW learning rates carry over (Liu et al., arXiv 2502.16982).
"""

from __future__ import annotations

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)


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
