"""One line for each finished simulation, so that nothing is played twice.

`tournament.jsonl` is a tournament's; other tasks that play many simulations keep theirs likewise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.tournament.play import Result
from traces.errors import InputError
from traces.strict_json import loads

NAME = "tournament.jsonl"
REFUSED = "refused"


def read_result(data: dict[str, Any]) -> Result:
    """A result as `Store` wrote it; ValueError for what is none."""
    result = Result(**data)
    numbers = (result.tokens_s, result.modelled, result.clamped, *result.tokens, *result.seconds)
    if result.nodes_per_request is not None:
        numbers = (*numbers, result.nodes_per_request)
    whole = (result.requests, *result.prompts)
    sizes = {len(result.prompts), len(result.tokens), len(result.seconds)}
    good = all(isinstance(one, int | float) and 0 <= one < float("inf") for one in numbers)
    if not good or not all(type(one) is int for one in whole) or len(sizes) > 1:
        raise ValueError("not the numbers of a result")
    return result


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
            read: from a line's result to the dataclass; ValueError, KeyError or TypeError for
                what is none.
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
                result = data["result"]
                known = str(result[REFUSED]) if REFUSED in result else read(result)
                self._known[data["key"]] = known
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InputError(
                    f"{self.path}: line {number} is no result of {self._of}; accepted: the file "
                    "as it was written, or another hydra.run.dir"
                ) from error
        if whole < len(text):
            with self.path.open("r+b") as file:
                file.truncate(whole)
