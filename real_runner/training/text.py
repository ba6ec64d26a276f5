"""Tokenizer and packed training rows of the small pair."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from real_runner.models.small.config import BOS, EOS, PAD, SPECIAL
from real_runner.training.corpus import DOMAINS, Example, generate

PROMPT_WEIGHT = 0.3  # of a prompt's tokens in the loss
# By example: real text is longer and harder, so it gets more of the mix.
MIX = {
    "arithmetic": 0.14,
    "report": 0.14,
    "dialogue": 0.16,
    "extract": 0.12,
    "docs": 0.22,
    "code": 0.22,
}


def examples(rng: np.random.Generator, count: int, split: str) -> Iterator[Example]:
    """`count` examples, domains drawn from the mix."""
    names = list(DOMAINS)
    weights = np.array([MIX[name] for name in names])
    for index in rng.choice(len(names), size=count, p=weights / weights.sum()):
        yield generate(names[index], rng, split)


def train_tokenizer(rng: np.random.Generator, vocab_size: int, count: int = 20_000) -> Tokenizer:
    """Byte-level BPE with single digits, trained on the mix."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = (part for e in examples(rng, count, "train") for part in (e.prompt, e.completion))
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def packed_rows(
    tokenizer: Tokenizer, rng: np.random.Generator, rows: int, row_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of whole examples, (rows, row_tokens + 1) tokens and the loss weight of each.

    Each row takes the first of the next 48 examples that still fits; what is left is padding of
    weight 0. Examples longer than a row are skipped.
    """
    tokens = np.full((rows, row_tokens + 1), PAD, np.uint16)
    weight = np.zeros((rows, row_tokens + 1), np.float16)
    source = _encoded(tokenizer, rng, row_tokens + 1)
    waiting = [next(source) for _ in range(48)]
    for row in range(rows):
        start = 0
        while True:
            left = row_tokens + 1 - start
            fits = next((i for i, (p, c) in enumerate(waiting) if len(p) + len(c) <= left), None)
            if fits is None:
                break
            prompt, completion = waiting.pop(fits)
            waiting.append(next(source))
            end, answer = start + len(prompt) + len(completion), start + len(prompt)
            tokens[row, start:end] = prompt + completion
            weight[row, start + 1 : answer] = PROMPT_WEIGHT  # <bos> is never predicted
            weight[row, answer:end] = 1.0
            start = end
    return tokens, weight


def _encoded(tokenizer, rng, longest: int) -> Iterator[tuple[list[int], list[int]]]:
    """Endless (prompt, completion) token lists that fit in `longest`."""
    while True:
        chunk = list(examples(rng, 2_000, "train"))
        prompts = tokenizer.encode_batch([e.prompt for e in chunk])
        answers = tokenizer.encode_batch([e.completion for e in chunk])
        for prompt, answer in zip(prompts, answers, strict=True):
            pair = [BOS, *prompt.ids], [*answer.ids, EOS]
            if len(pair[0]) + len(pair[1]) <= longest:
                yield pair
