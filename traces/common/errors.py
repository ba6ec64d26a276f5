"""The one error that bad input raises anywhere in the project."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """Bad input: one line naming the file or key, the value, and what is accepted.

    Command lines print it as ``error: ...`` on stderr and exit with status 2. Names and values
    come from files: what no line holds is shown as a space or escaped, so that it stays one.
    """

    def __init__(self, message: object = "") -> None:
        text = str(message)
        super().__init__(text if text.isprintable() else _one_line(text))


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)


def refusal(key: str, value: Any, accepted: str, names: Iterable[str] = ()) -> str:
    """The line about a value. names: that it may have meant."""
    near = near_note(value, names) if isinstance(value, str) else ""
    return f"{key} is {value!r:.200}; accepted: {accepted}{near}"


def unknown(key: str, names: Iterable[str], of: str = "", more: str = "") -> str:
    """The line about a key that nothing reads.

    names: those that there are. of: what lacks the key. more: what else to try.
    """
    listed, prefix = list(names), key[: key.rfind(".") + 1]
    # Without the prefix that they share, which would make all of them near.
    own = [name.removeprefix(prefix) for name in listed]
    near = near_note(key.removeprefix(prefix), own, prefix if own != listed else "")
    return f"unknown key {key}{of}; accepted: {', '.join(listed) or 'none'}{near}{more}"


# ---------------- Names near to one that is none of them, for refusals.


MOST = 3  # names in a refusal
SHORTEST = 3  # letters and figures of what is compared there


def bare(name: str) -> str:
    """Letters and figures alone: H100-SXM, h100_sxm and H100 SXM are one device."""
    return "".join(re.findall(r"[a-z0-9]+", name.lower()))


def near(value: str, names: Iterable[str]) -> list[str]:
    """Names that contain it or are contained in it; else those spelt most alike."""
    known = {bare(name): name for name in names}
    asked = bare(value)
    within = [name for one, name in known.items() if asked and (asked in one or one in asked)]
    return within or [known[one] for one in get_close_matches(asked, known, n=MOST, cutoff=0.6)]


def near_note(value: str, names: Iterable[str], prefix: str = "") -> str:
    """What a refusal ends with; nothing where no name, or too many, are near.

    prefix: of the names, before those that are shown.
    """
    found = near(value, [name for name in names if len(bare(name)) >= SHORTEST])
    if len(bare(value)) < SHORTEST or not 0 < len(found) <= MOST:
        return ""
    return f"; near it: {', '.join(prefix + name for name in found)}"
