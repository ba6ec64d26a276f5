"""JSON of files that may be damaged, or made by anybody: one kind of error, no surprises later.

Python's reader takes the last of two equal keys and nests until the interpreter's stack ends: both
are refused here, with what is malformed, and texts that nothing can write. It makes whole numbers
that no float holds: infinite here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from traces.common.errors import InputError

BOM = "\ufeff"  # which Excel and editors of Windows put before UTF-8
DEEPEST = 64  # levels of lists and objects
LONGEST_NUMBER = 300  # digits: any whole number of as many fits in a float


def loads(text: str, *, constants: bool = True) -> Any:
    """The value of a JSON text, with a byte-order mark before it or without.

    constants: whether NaN and Infinity, which are no JSON but are often written, are numbers.

    Raises:
        ValueError: one line; for a key given twice and for deep nesting too.
    """
    try:
        value = (LENIENT if constants else STRICT).decode(text.removeprefix(BOM))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_depth(value)
    if "\\ud" in text.lower():
        check_texts(value)
    return value


def first_twice(names: Iterable[Any]) -> Any:
    """The first of the names that stood there before; None where there is none."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_texts(value: Any) -> None:
    """ValueError for half a surrogate pair in any text: no file and no terminal takes it."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"half a surrogate pair, {error.object[error.start]!a}") from None


def check_depth(value: Any, deepest: int = DEEPEST) -> None:
    """ValueError for lists and objects below each other on more than `deepest` levels."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest + 1):
        held = (node.values() if isinstance(node, dict) else node for node in level)
        level = [one for inner in held for one in inner if isinstance(one, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"nested more than {DEEPEST} levels deep"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    node = dict(pairs)
    if len(node) < len(pairs):
        twice = first_twice([name for name, _ in pairs])
        raise ValueError(f"an object has the key {twice!a:.60} twice")
    return node


def _whole(text: str) -> int | float:
    """As with 1e400: what no float holds is infinite, and refused by whoever knows its key."""
    if len(text) > LONGEST_NUMBER:
        return -math.inf if text.startswith("-") else math.inf
    return int(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


LENIENT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole)
STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole, parse_constant=_no_constant)


# ---------------- Reading a JSON file whose faults are told in one line.


def read_json(path: Path, expected: str) -> Any:
    """The file's content; InputError naming the file and what was `expected` in it."""
    try:
        return loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: unreadable ({error.strerror})") from error
    except ValueError as error:  # JSON and UTF-8 alike
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not JSON ({reason}), expected {expected}") from error
