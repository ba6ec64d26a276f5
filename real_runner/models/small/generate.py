"""Batched decoding of the small target, greedy or with keyed draws."""

from __future__ import annotations

import numpy as np
import torch

from real_runner.models.small.target import Target
from real_runner.training.text import BOS, EOS, MASK, PAD
from traces.common.keyed_noise import gumbel

BANNED = (BOS, MASK, PAD)  # never emitted, never drafted


def ban(logits: torch.Tensor) -> torch.Tensor:
    """Logits (..., vocab) with the banned tokens at -inf."""
    logits[..., list(BANNED)] = float("-inf")
    return logits


@torch.no_grad()
def decode(
    target: Target,
    prompts: list[list[int]],
    max_new_tokens: int,
    temperature: float = 0.0,
    seeds: list[int] | None = None,
    lookahead: int = 0,
) -> tuple[list[list[int]], list[list[int]]]:
    """Continue prompts together; (outputs, lookahead) token lists of each.

    Outputs end with the first EOS or at `max_new_tokens`; `lookahead` more tokens of the target's
    continuation follow, past EOS too. Prompts are left-padded; padding is masked out and takes no
    position.
    """
    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), PAD)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
    pad = longest - torch.tensor([len(p) for p in prompts])
    written = torch.full((len(prompts), max_new_tokens + lookahead), PAD)
    stop = torch.full((len(prompts),), max_new_tokens)  # outputs of each row
    past, column = None, 0
    while column < max_new_tokens + lookahead and column < int(stop.max()) + lookahead:
        positions, mask = _layout(pad, longest, column)
        hidden, past, _ = target(tokens, positions, mask, past)
        logits = ban(target.logits(hidden[:, -1]))
        if temperature:
            logits = logits.double() + temperature * _noise(seeds, column, logits.shape[1])
        tokens = logits.argmax(-1, keepdim=True)
        written[:, column] = tokens[:, 0]
        ended = (tokens[:, 0] == EOS) & (stop == max_new_tokens) & (column < max_new_tokens)
        stop[ended] = column + 1
        column += 1
    rows = [(row.tolist(), int(end)) for row, end in zip(written, stop, strict=True)]
    return [r[:end] for r, end in rows], [r[end : end + lookahead] for r, end in rows]


def _layout(pad: torch.Tensor, longest: int, column: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions (b, t) and attention mask (b, 1, t, total) of the next forward pass."""
    total = longest + column
    first = 0 if column == 0 else total - 1
    absolute = torch.arange(first, total)
    positions = (absolute[None] - pad[:, None]).clamp(min=0)
    keys = torch.arange(total)
    real = keys[None] >= pad[:, None]  # (b, total)
    causal = keys[None] <= absolute[:, None]  # (t, total)
    mask = real[:, None] & causal[None]
    mask |= (keys[None] == absolute[:, None])[None]  # padding attends to itself: no empty row
    return positions, mask[:, None]


def _noise(seeds: list[int], output_index: int, vocab: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([gumbel(s, output_index, vocab) for s in seeds]))
