"""Tasks on the standard library's text: proofread a paragraph, rename a local of a function."""

from __future__ import annotations

import builtins
import keyword
import re
from functools import lru_cache

import numpy as np

from real_runner.training.corpus.stdlib_text import functions, paragraphs
from real_runner.training.corpus.types import Example, between, is_heldout, pick

NEW_NAMES = (
    "value item data result total count index text line name node entry source target first "
    "last left right buffer chunk part field record key start stop size limit offset width "
    "height length path folder handle reader writer stream message reply status code level "
    "depth parent child group member label title prefix suffix pattern match token symbol "
    "option setting flag mode kind state step delta ratio score rank queue stack cache table "
    "row column cell page block header body tail owner user host port address request params"
).split()


@lru_cache(maxsize=2)
def _paragraphs(heldout: bool) -> tuple[str, ...]:
    """Those of one split, separated by a hash of their text."""
    return tuple(text for text in paragraphs() if is_heldout(text) == heldout)


@lru_cache(maxsize=2)
def _functions(heldout: bool) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(entry for entry in functions() if is_heldout(entry[0]) == heldout)


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


def proofread(rng: np.random.Generator, heldout: bool) -> Example:
    """Restore a paragraph with two to four word-level errors in different words."""
    clean = pick(rng, _paragraphs(heldout))
    words = clean.split(" ")
    errors = between(rng, 2, 4)
    if rng.random() < 0.3:
        words[0] = words[0][0].lower() + words[0][1:]
        errors -= 1
    long_words = [i for i, w in enumerate(words) if i and len(w) >= 4 and w.isalpha()]
    for spot in rng.permutation(long_words)[:errors]:
        change = pick(rng, (_swap, _drop, _double))
        words[int(spot)] = change(rng, words[int(spot)])
    return Example("docs", f"Proofread:\n{' '.join(words)}\nCorrected:\n", clean)


def rename(rng: np.random.Generator, heldout: bool) -> Example:
    """Change one of a function's names, to an identifier that it does not use already.

    Only names whose every occurrence as a word is the variable itself are
    offered, so a whole-word substitution is a correct rename.
    """
    source, names = pick(rng, _functions(heldout))
    old = pick(rng, names)
    used = set(re.findall(r"\w+", source)) | set(keyword.kwlist) | set(dir(builtins))
    new = pick(rng, [name for name in NEW_NAMES if name not in used])
    renamed = re.sub(rf"\b{old}\b", new, source)
    return Example("code", f"# Rename {old} to {new}\n{source}\n# Renamed:\n", renamed)
