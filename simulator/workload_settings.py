"""Where requests come from: the `workload` group of the configuration, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from traces.errors import InputError

ARRIVALS = ("load", "file")


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """A file of traffic and what is changed of it; without a path the recorded texts as they are.

    Raises InputError naming the key, its value and what is accepted.
    """

    prompt_tokens: int | None = None  # of every recorded text, in place of its own
    path: str | None = None
    format: str = "auto"
    arrivals: str = "load"  # file: when the file says; load: by request_rate or max_concurrency
    time_scale: float = 1.0  # times are multiplied by it: 2 halves the rate
    max_gap_s: float | None = None
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    min_output_tokens: int = 1
    characters_per_token: float | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        for name in ("path", "tokenizer"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                _refuse(name, value, "a path, or null")
        if not isinstance(self.format, str):
            _refuse("format", self.format, "auto, or a format's name")
        if self.arrivals not in ARRIVALS:
            _refuse("arrivals", self.arrivals, ", ".join(ARRIVALS))
        _number("time_scale", self.time_scale, optional=False)
        for name in ("max_gap_s", "characters_per_token"):
            _number(name, getattr(self, name), optional=True)
        for name in ("prompt_tokens", "max_prompt_tokens", "max_output_tokens"):
            _whole(name, getattr(self, name), optional=True)
        _whole("min_output_tokens", self.min_output_tokens, optional=False)
        self._check_together()

    def _check_together(self) -> None:
        most = self.max_output_tokens
        if most is not None and most < self.min_output_tokens:
            _refuse("max_output_tokens", most, "at least workload.min_output_tokens, or null")
        of_file = [item for item in fields(self) if item.name != "prompt_tokens"]
        changed = any(getattr(self, item.name) != item.default for item in of_file)
        if self.path is not None and self.prompt_tokens is not None:
            _refuse("prompt_tokens", self.prompt_tokens, "null with workload.path, whose they are")
        if self.arrivals == "load":
            for name, none in (("time_scale", 1.0), ("max_gap_s", None)):
                if getattr(self, name) != none:
                    accepted = "1.0" if none else "null"
                    _refuse(name, getattr(self, name), f"{accepted} with workload.arrivals=load")
        if self.path is None and changed:
            raise InputError(
                "workload.path is null; accepted with other workload settings: a file of requests"
            )

    @property
    def recorded(self) -> bool:
        """Whether the recorded texts are served as they are."""
        return self.path is None


def read_workload(node: Mapping[str, Any] | None) -> WorkloadSettings:
    """Settings of a `workload` node whose names are known; its `name` is a label."""
    given = {key: value for key, value in (node or {}).items() if key != "name"}
    if (node or {}).get("name") == "file" and given.get("path") is None:
        _refuse("path", None, "with workload=file the path of a file of requests")
    return WorkloadSettings(**given)


def _number(name: str, value: Any, optional: bool) -> None:
    if value is None and optional:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        _refuse(name, value, "a finite number above 0" + (", or null" if optional else ""))


def _whole(name: str, value: Any, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        _refuse(name, value, "a whole number of at least 1" + (", or null" if optional else ""))


def _refuse(name: str, value: Any, accepted: str) -> None:
    raise InputError(f"workload.{name} is {value!r}; accepted: {accepted}")


RECORDED = WorkloadSettings()  # the recorded texts as they are
