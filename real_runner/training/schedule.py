"""Optimiser and learning-rate schedule shared by target and drafters."""

from __future__ import annotations

import math

import torch
from torch import nn

from real_runner.training.muon import Muon


def optimisers(model: nn.Module, matrix_rate: float, other_rate: float) -> list:
    """Muon for the inner matrices, AdamW for embeddings, vectors and heads.

    Muon reaches a given loss in clearly fewer steps than AdamW alone at this size, which is what
    two cores need.
    """
    matrices, others = [], []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            inner = weight.dim() == 2 and not any(k in name for k in ("embedding", "markov"))
            (matrices if inner and min(weight.shape) > 1 else others).append(weight)
    return [
        Muon(matrices, lr=matrix_rate, weight_decay=0.05),
        torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def set_rate(optimiser_list: list, step: int, steps: int, warmup: int = 60) -> float:
    """Linear warm-up, then cosine to 2 % of the peak; the factor applied."""
    if step < warmup:
        factor = (step + 1) / warmup
    else:
        done = (step - warmup) / max(1, steps - warmup)
        factor = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))
    for optimiser in optimiser_list:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("peak", group["lr"]) * factor
    return factor
