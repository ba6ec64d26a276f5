"""The texts of a recording: prompts, and what the target answers to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from real_runner.engine.engine import Engine
from real_runner.engine.models import LiveTarget
from real_runner.engine.residual import make_verifier

BATCH = 32  # texts written together


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to record."""

    domain: int
    split: int
    seed: int
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Text:
    """One recorded request: prompt, outputs up to EOS or the cap, and D lookahead tokens."""

    domain: int
    split: int
    seed: int
    prompt: list[int]
    output: list[int]
    lookahead: list[int]

    def __len__(self) -> int:
        return len(self.output)

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output + self.lookahead

    @property
    def anchors(self) -> np.ndarray:
        """Positions of outputs 0..L-2 in `tokens`."""
        return len(self.prompt) + np.arange(max(len(self.output) - 1, 0))


def write_texts(
    target: LiveTarget,
    prompts: list[Prompt],
    max_new_tokens: int,
    temperature: float = 0.0,
    lookahead: int = 0,
    on_text: Callable[[int], None] | None = None,
) -> list[Text]:
    """Continue every prompt; prompts of like length are decoded together.

    Outputs end with the first EOS or at `max_new_tokens`; `lookahead` more tokens of the target's
    continuation follow, past EOS too. on_text is called with the number of texts written.
    """
    texts: dict[int, Text] = {}
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i].tokens))
    for start in range(0, len(prompts), BATCH):
        rows = by_length[start : start + BATCH]
        asked = [prompts[i] for i in rows]
        written = _decode(target, asked, max_new_tokens, temperature, lookahead)
        for i, one, tokens in zip(rows, asked, written, strict=True):
            end = _end(target, tokens, max_new_tokens)
            parts = one.tokens, tokens[:end], tokens[end : end + lookahead]
            texts[i] = Text(one.domain, one.split, one.seed, *parts)
        if on_text is not None:
            on_text(len(texts))
    return [texts[i] for i in range(len(prompts))]


def _decode(
    target: LiveTarget, prompts: list[Prompt], max_new: int, temperature: float, lookahead: int
) -> list[list[int]]:
    """Output and lookahead of every prompt, one plain decoding step at a time."""
    longest = max(len(prompt.tokens) for prompt in prompts) + max_new + lookahead
    engine = Engine(target, None, len(prompts), longest, make_verifier(temperature))
    written = [[engine.admit(np.array(p.tokens), p.seed)] for p in prompts]
    seeds, running = np.array([p.seed for p in prompts]), np.arange(len(prompts))
    while True:
        emitted = np.array([len(written[i]) for i in running])
        ends = np.array([_end(target, written[i], max_new) for i in running])
        going = emitted < ends + lookahead
        engine.release(going)
        running, emitted = running[going], emitted[going]
        if not len(running):
            return written
        none = np.zeros(len(running), np.int64)
        walk = engine.verify(None, none, seeds[running], emitted - 1)
        engine.commit()
        for i, token in zip(running, walk.token[:, 0].tolist(), strict=True):
            written[i].append(token)


def _end(target: LiveTarget, tokens: list[int], max_new_tokens: int) -> int:
    """Outputs of a text written so far, were it to go on without EOS to `max_new_tokens`."""
    for eos in target.eos_tokens:
        if eos in tokens[:max_new_tokens]:
            max_new_tokens = tokens.index(eos) + 1
    return max_new_tokens
