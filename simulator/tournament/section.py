"""One section of the configuration, read key by key; refusals name the section and the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.settings import KNOWN
from traces.errors import InputError


class Section:
    """The values of ``NAME.*``; a method for each kind raises InputError for any other."""

    def __init__(self, cfg: Mapping[str, Any], name: str) -> None:
        """Raises InputError where a key that the section must have is missing."""
        self.name, self._node = name, cfg.get(name) or {}
        missing = [key for key in KNOWN[name] if key not in self._node]
        if missing:
            raise InputError(f"{name}.{missing[0]} is missing; accepted: see --help")

    def __getitem__(self, key: str) -> Any:
        return self._node[key]

    def one_of(self, key: str, accepted: tuple[str, ...]) -> str:
        if self[key] not in accepted:
            self.refuse(key, ", ".join(accepted))
        return self[key]

    def whole(self, key: str, least: int, optional: bool = False) -> int | None:
        value = self[key]
        if value is None and optional:
            return None
        if not _is_whole(value, least):
            self.refuse(key, f"a whole number of at least {least}")
        return value

    def whole_list(self, key: str, least: int) -> tuple[int, ...]:
        """Ascending, each once; at least one."""
        values = self[key]
        good = isinstance(values, list) and values and all(_is_whole(v, least) for v in values)
        if not good:
            self.refuse(key, f"a list of whole numbers of at least {least}")
        return tuple(int(value) for value in np.unique(values))

    def seeds(self, key: str, first: int, count: int) -> tuple[int, ...]:
        """A list of seeds; where it is null, `count` of them from `first` on."""
        if self[key] is None:
            return tuple(range(first, first + count))
        return self.whole_list(key, 0)

    def number(
        self,
        key: str,
        above: float,
        below: float,
        *,
        optional: bool = False,
        closed: bool = False,
        words: str | None = None,
    ) -> float | None:
        """A number between both; `closed`: the upper end too. `words` say what is accepted."""
        value = self[key]
        if value is None and optional:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (above < value < below or (closed and value == below)):
            end = f"to {below:g}" if closed else f"and below {below:g}"
            self.refuse(key, words or f"a number above {above:g} {end}")
        return float(value)

    def refuse(self, key: str, accepted: str) -> None:
        """Raise InputError about the key's value."""
        raise InputError(f"{self.name}.{key} is {self[key]!r}; accepted: {accepted}")


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least
