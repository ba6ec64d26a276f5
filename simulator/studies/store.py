"""One line for each finished simulation, so that nothing is played twice.

`tournament.jsonl` is a tournament's; other tasks that play many simulations keep theirs likewise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from simulator.studies.contest.play import Result
from traces.common.errors import InputError
from traces.common.json import loads

NAME = "tournament.jsonl"
REFUSED = "refused"


def read_result(data: dict[str, Any]) -> Result:
    """A result as `Store` wrote it; ValueError for what is none."""
    result = Result(**data)
    shares = (result.modelled, result.clamped)
    nodes = result.nodes_per_request or 0.0
    numbers = (result.tokens_s, nodes, *shares, *result.tokens, *result.seconds)
    sizes = {len(result.prompts), len(result.tokens), len(result.seconds)}
    good = min(numbers) >= 0 and max(shares) <= 1 + 1e-9  # sums of seconds round
    if not good or len(sizes) > 1 or len({*result.prompts}) < len(result.prompts):
        raise ValueError("not the numbers of a result")
    return result


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of an annotated type.

    An int is a whole number from 0 (sizes, seeds, places), a float any finite number.
    """
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return any(fits(value, one) for one in parts)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(fits(one, parts[0]) for one in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(fits(one, parts[1]) for one in value.values())
    if kind is int:
        return type(value) is int and value >= 0
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind


def _whole_entry(data: dict[str, Any], read: Callable[[dict[str, Any]], Any]) -> Any:
    """What a line's `result` stands for; an error of `Store` for what is none."""
    result = data["result"]
    if not isinstance(data["key"], str):
        raise TypeError("no key")
    if REFUSED in result:
        return str(result[REFUSED])
    known = read(result)
    for name, kind in get_type_hints(type(known)).items():
        if not fits(getattr(known, name), kind):
            raise TypeError(f"{name} is no {kind}")
    return known


class Store:
    """Results by the key of what was played: those of the file, and what is added to it.

    A result is a dataclass, or the reason in one line why a policy refused.
    """

    def __init__(
        self,
        folder: Path,
        name: str = NAME,
        read: Callable[[dict[str, Any]], Any] = read_result,
        of: str = "a tournament",
    ) -> None:
        """Read the file in `folder`, if there is one; a line cut short by a crash is dropped.

        Args:
            read: from a line's result to the dataclass; ValueError, KeyError, TypeError or
                AttributeError for what is none. What it makes is held against its annotations.
            of: whose results they are, in words.

        Raises:
            InputError: a whole line that is not one of ours.
        """
        self.path = folder / name
        self._of = of
        self._known: dict[str, Any] = {}
        if self.path.is_file():
            self._read(read)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def add(self, key: str, what: dict[str, Any], result: Any) -> None:
        """Keep a result, in the file before anywhere else; `what` says in words whose it is."""
        outcome = {REFUSED: result} if isinstance(result, str) else asdict(result)
        line = json.dumps({"key": key, **what, "result": outcome}, allow_nan=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._known[key] = result

    def _read(self, read: Callable[[dict[str, Any]], Any]) -> None:
        text = self.path.read_bytes()
        whole = text.rfind(b"\n") + 1
        for number, line in enumerate(text[:whole].splitlines(), 1):
            try:
                data = loads(line.decode("utf-8"))
                self._known[data["key"]] = _whole_entry(data, read)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{self.path}: line {number} is no result of {self._of}; accepted: the file "
                    "as it was written, or another hydra.run.dir"
                ) from error
        if whole < len(text):
            with self.path.open("r+b") as file:
                file.truncate(whole)
