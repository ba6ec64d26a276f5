"""Strict checks of JSON files: every key there, of its kind, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from traces.errors import InputError
from traces.strict_json import loads

NUMBER = int | float
NUMBERS = list
_NAMES = {
    str: "a text",
    int: "a whole number",
    NUMBER: "a number",
    NUMBERS: "a list of numbers",
    dict: "an object",
}
_SHOWN = 60  # characters of a refused value


def load_json(path: Path, format_name: str) -> dict[str, Any]:
    """The object in the file; InputError unless its `format` is `format_name`."""
    try:
        data = loads(path.read_text(encoding="utf-8"), constants=False)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a {format_name} file") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
    found = data.get("format") if isinstance(data, dict) else data
    if not isinstance(data, dict) or found != format_name:
        refuse(path, "format", found, repr(format_name))
    return data


def check_keys(node: Mapping[str, Any], kinds: Mapping[str, Any], path: Path, at: str = "") -> None:
    """Raise InputError naming file, key and value of the first fault in `node`.

    kinds: of every key; a mapping stands for an object with those keys, `dict` for any object.
    """
    for key in [*kinds, *node]:
        if key not in kinds or key not in node:
            what = "missing" if key in kinds else "unknown"
            key = key if key.isprintable() else ascii(key)
            raise InputError(f"{path}: {at}{key} is {what}; accepted: {', '.join(kinds)}")
    for key, kind in kinds.items():
        below = isinstance(kind, Mapping)
        _check_kind(node[key], dict if below else kind, path, at + key)
        if below:
            check_keys(node[key], kind, path, f"{at}{key}.")


def _check_kind(value: Any, kind: Any, path: Path, key: str) -> None:
    numbers = kind is not NUMBERS or (isinstance(value, list) and all(map(_is_number, value)))
    if not isinstance(value, kind) or isinstance(value, bool) or not numbers:
        refuse(path, key, value, _NAMES[kind])


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def refuse(path: Path, key: str, value: Any, accepted: str) -> NoReturn:
    """Raise the InputError about one value."""
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    raise InputError(f"{path}: {key} is {text}; accepted: {accepted}")
