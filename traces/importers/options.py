"""Options that several formats share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from traces.errors import InputError


def checked_texts(args: argparse.Namespace, names: Iterable[str]) -> dict[str, str | None]:
    """Options that are lines of text, by name; None for one that is not given.

    Raises:
        InputError: an empty text, or one of several lines.
    """
    texts = {}
    for name in names:
        text = getattr(args, name)
        if text is not None and not (text.strip() and text.strip().isprintable()):
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} is {text!r}; accepted: a line of text")
        texts[name] = None if text is None else text.strip()
    return texts


def checked_count(option: str, value: int | None, most: int = 10**9) -> int | None:
    """A whole number from 1, or None where it is not given; InputError otherwise."""
    if value is not None and not 1 <= value <= most:
        raise InputError(f"{option} is {value}; accepted: a whole number from 1 to {most}")
    return value
