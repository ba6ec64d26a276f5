"""Renaming: rewrite a standard-library function with one local name changed."""

from __future__ import annotations

import builtins
import keyword
import re
from functools import lru_cache

import numpy as np

from real_runner.training.corpus.stdlib_text import functions
from real_runner.training.corpus.types import Example, check_split, is_heldout, pick

NEW_NAMES = (
    "value item data result total count index text line name node entry source target first "
    "last left right buffer chunk part field record key start stop size limit offset width "
    "height length path folder handle reader writer stream message reply status code level "
    "depth parent child group member label title prefix suffix pattern match token symbol "
    "option setting flag mode kind state step delta ratio score rank queue stack cache table "
    "row column cell page block header body tail owner user host port address request params"
).split()


@lru_cache(maxsize=2)
def _pool(heldout: bool) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the functions of one split, separated by a hash of their source."""
    return tuple(entry for entry in functions() if is_heldout(entry[0]) == heldout)


def _new_name(rng: np.random.Generator, source: str) -> str:
    """Pick an identifier that the function does not use already."""
    used = set(re.findall(r"\w+", source)) | set(keyword.kwlist) | set(dir(builtins))
    return pick(rng, [name for name in NEW_NAMES if name not in used])


def generate(rng: np.random.Generator, split: str) -> Example:
    """Draw a function of the split and ask for one of its names to be changed.

    Only names whose every occurrence as a word is the variable itself are
    offered, so a whole-word substitution is a correct rename.
    """
    source, names = pick(rng, _pool(check_split(split)))
    old = pick(rng, names)
    new = _new_name(rng, source)
    renamed = re.sub(rf"\b{old}\b", new, source)
    return Example("code", f"# Rename {old} to {new}\n{source}\n# Renamed:\n", renamed)
