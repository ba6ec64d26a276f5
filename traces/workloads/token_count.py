"""How many tokens a text has: by a tokenizer's own file, or by a stated rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from traces.common.errors import InputError
from traces.workloads.cells import shown

TokenCount = Callable[[str], int]
_RULES = (
    "one of tokenizer (path of a tokenizer.json) and characters_per_token (a number above 0,"
    " such as 4)"
)


def token_count(
    path: Path, characters_per_token: float | None, tokenizer: str | PathLike[str] | None
) -> TokenCount:
    """The rule that was asked for, for the texts of `path`; exactly one must be."""
    if (characters_per_token is None) == (tokenizer is None):
        given = "neither" if tokenizer is None else "both"
        found = f"has texts, not token counts, and {given} of two rules is given"
        raise InputError(f"{path}: {found}; accepted: {_RULES}")
    if tokenizer is not None:
        return _by_tokenizer(Path(tokenizer))
    return _by_characters(characters_per_token)


def _by_characters(characters_per_token: float) -> TokenCount:
    number = isinstance(characters_per_token, int | float)
    number = number and not isinstance(characters_per_token, bool)
    if not number or not 1e-3 <= characters_per_token <= 1e3:
        raise InputError(
            f"characters_per_token is {shown(characters_per_token)};"
            " accepted: a number 0.001 to 1000, such as 4"
        )
    return lambda text: math.ceil(len(text) / characters_per_token)


def _by_tokenizer(path: Path) -> TokenCount:
    """Tokens without special ones around them; what the file cuts or pads is not."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            f"{path}: the tokenizers package is not installed; accepted: an environment with it,"
            " or characters_per_token"
        ) from None
    if not path.is_file():
        raise InputError(f"{path}: no such file; accepted: a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception on a broken file
        found = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: no tokenizer ({found}); accepted: a tokenizer.json") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(_encodable(text), add_special_tokens=False))


def _encodable(text: str) -> str:
    """Half a surrogate pair, which JSON may carry and UTF-8 may not, as the replacement mark."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
