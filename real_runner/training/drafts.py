"""Target-generated text with hidden states: what the drafters train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from real_runner.models.small.config import DrafterConfig
from real_runner.models.small.generate import decode
from real_runner.models.small.target import Target
from real_runner.training.text import PAD, encode_prompt, examples


@dataclass(frozen=True, slots=True)
class DraftData:
    """N rows of at most T tokens, padded; taps lie in a memory-mapped file."""

    tokens: np.ndarray  # (N, T) uint16
    prompt_len: np.ndarray  # (N,)
    length: np.ndarray  # (N,) prompt + outputs
    taps: np.ndarray  # (N, T, taps * width) float16


def make_draft_data(
    target: Target,
    tokenizer,
    folder: Path,
    *,
    seed: int,
    rows: int,
    row_tokens: int,
    max_new_tokens: int,
    sampled_share: float = 0.45,
    batch: int = 96,
    log: Callable[[str], None] = print,
) -> DraftData:
    """Continue `rows` training prompts with the target, a share of them at temperature 1."""
    rng = np.random.default_rng([seed, 2])
    prompts = [encode_prompt(tokenizer, e.prompt) for e in examples(rng, rows, "train")]
    prompts = [p for p in prompts if len(p) + 16 <= row_tokens]
    sampled = rng.random(len(prompts)) < sampled_share
    order = np.lexsort([[len(p) for p in prompts], sampled])  # like lengths decode together
    tokens = np.full((len(prompts), row_tokens), PAD, np.uint16)
    prompt_len, length = np.zeros(len(prompts), int), np.zeros(len(prompts), int)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        for hot in (False, True):
            group = [int(i) for i in chosen if sampled[i] == hot]
            if not group:
                continue
            outputs, _ = decode(
                target,
                [prompts[i] for i in group],
                max_new_tokens,
                1.0 if hot else 0.0,
                [seed * 1_000_003 + i for i in group],
            )
            for i, output in zip(group, outputs, strict=True):
                text = (prompts[i] + output)[:row_tokens]
                tokens[i, : len(text)] = text
                prompt_len[i], length[i] = len(prompts[i]), len(text)
        if (start // batch) % 8 == 0:
            log(f"generated {start + len(chosen)}/{len(order)} sequences")
    return DraftData(tokens, prompt_len, length, tap_all(target, tokens, folder / "taps.npy"))


@torch.no_grad()
def tap_all(target: Target, tokens: np.ndarray, path: Path, batch: int = 32) -> np.ndarray:
    """Hidden states after the tapped layers of every row, written to `path` as float16."""
    taps = DrafterConfig().taps
    shape = (*tokens.shape, len(taps) * target.config.width)
    stored = np.lib.format.open_memmap(path, "w+", np.float16, shape)
    for start in range(0, len(tokens), batch):
        rows = torch.from_numpy(tokens[start : start + batch].astype(np.int64))
        _, _, tapped = target(rows, taps=taps)
        stored[start : start + batch] = torch.cat(tapped, -1).numpy()
    stored.flush()
    return stored
