"""A value inside another program's file, with its place for messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from traces.common.errors import InputError

_WHOLE = re.compile(r"0|[1-9][0-9]{0,11}")  # no leading zeros: one spelling for one size
_SHOWN = 40  # characters of a refused value
MOST_MS = 1e9


@dataclass(frozen=True, slots=True)
class Node:
    """`value` at the key path `at` of the file `source`; the file itself has an empty path."""

    source: str
    at: str
    value: Any

    def refuse(self, accepted: str, found: str | None = None) -> NoReturn:
        """Raise the InputError about this value, described by `found` where it is large."""
        place = self.at.rstrip(":") or "the file"
        found = shown(self.value) if found is None else found
        raise InputError(f"{self.source}: {place} is {found}; accepted: {accepted}")

    def below(self, key: str) -> str:
        """The key path of a value inside this one."""
        if self.at.endswith(":"):  # "round 3:", "line 3:"
            return f"{self.at} {key}"
        separator = "" if key.startswith("[") or not self.at else "."
        return f"{self.at}{separator}{key}"

    def mapping(self, accepted: str = "an object") -> dict[str, Node]:
        """The values of an object by key."""
        if not isinstance(self.value, dict):
            self.refuse(accepted)
        return {
            key: Node(self.source, self.below(_one_line(key)), value)
            for key, value in self.value.items()
        }

    def require(self, key: str, accepted: str) -> Node:
        """The value of a key that must be there."""
        found = self.mapping().get(key)
        if found is None:
            raise InputError(f"{self.source}: {self.below(key)} is missing; accepted: {accepted}")
        return found

    def entries(self, accepted: str = "a list") -> list[Node]:
        """The values of a list."""
        if not isinstance(self.value, list):
            self.refuse(accepted)
        return [
            Node(self.source, self.below(f"[{index}]"), value)
            for index, value in enumerate(self.value)
        ]

    def by_size(self, what: str, least: int = 1, most: int = 10**6) -> Iterator[tuple[int, Node]]:
        """The values of an object whose keys are whole numbers, by rising number."""
        accepted = f"{what}, a whole number from {least} to {most}, as every key"
        found = {}
        for key, node in self.mapping(f"an object with {what} as keys").items():
            whole = _WHOLE.fullmatch(key) and least <= int(key) <= most
            if not whole:
                raise InputError(f"{self.source}: key {node.at}; accepted: {accepted}")
            found[int(key)] = node
        if not found:
            self.refuse(f"at least one entry, with {what} as key")
        return iter(sorted(found.items()))

    def whole(self, least: int, most: int) -> int:
        """A whole number; 3.0 is none."""
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(f"a whole number from {least} to {most}")
        return value

    def ms(self) -> float:
        """Milliseconds above 0."""
        if not is_number(self.value) or not 0 < self.value < MOST_MS:
            self.refuse(f"milliseconds above 0 and below {MOST_MS:g}")
        return float(self.value)

    def number(self) -> float:
        """A finite number from 0."""
        if not is_number(self.value) or not 0 <= self.value < 1e300:
            self.refuse("a finite number from 0")
        return float(self.value)


def is_number(value: Any) -> bool:
    """An int or a float, also NaN and infinities; no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """`value` in a few words on one line, however large or deep it is."""
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "a list"
        return f"{kind} of {len(value)}" if value else f"an empty {kind.split()[1]}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, str | int | float | type(None)):
        return f"a {type(value).__name__}"
    return cut(repr(value))


def _one_line(key: str) -> str:
    return cut(key if key.isprintable() else repr(key))


def cut(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
