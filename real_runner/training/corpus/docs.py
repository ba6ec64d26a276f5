"""Proofreading: restore a paragraph of Python documentation with small errors."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from real_runner.training.corpus.stdlib_text import paragraphs
from real_runner.training.corpus.types import Example, between, check_split, is_heldout, pick


@lru_cache(maxsize=2)
def _pool(heldout: bool) -> tuple[str, ...]:
    """Return the paragraphs of one split, separated by a hash of their text."""
    return tuple(text for text in paragraphs() if is_heldout(text) == heldout)


def _swap(rng: np.random.Generator, word: str) -> str:
    """Swap two different adjacent letters inside the word."""
    spots = [i for i in range(len(word) - 1) if word[i] != word[i + 1]]
    if not spots:
        return _drop(rng, word)
    i = pick(rng, spots)
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def _drop(rng: np.random.Generator, word: str) -> str:
    """Drop one letter that is not the first."""
    i = between(rng, 1, len(word) - 1)
    return word[:i] + word[i + 1 :]


def _double(rng: np.random.Generator, word: str) -> str:
    """Write the word twice."""
    return f"{word} {word}"


def corrupt(rng: np.random.Generator, text: str) -> str:
    """Return ``text`` with two to four word-level errors in different words."""
    words = text.split(" ")
    errors = between(rng, 2, 4)
    if rng.random() < 0.3:
        words[0] = words[0][0].lower() + words[0][1:]
        errors -= 1
    long_words = [i for i, w in enumerate(words) if i and len(w) >= 4 and w.isalpha()]
    for spot in rng.permutation(long_words)[:errors]:
        change = pick(rng, (_swap, _drop, _double))
        words[int(spot)] = change(rng, words[int(spot)])
    return " ".join(words)


def generate(rng: np.random.Generator, split: str) -> Example:
    """Draw a paragraph of the split and ask for it to be proofread."""
    clean = pick(rng, _pool(check_split(split)))
    prompt = f"Proofread:\n{corrupt(rng, clean)}\nCorrected:\n"
    return Example("docs", prompt, clean)
