"""Checks of the live runner's settings; loads no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from traces.errors import InputError

if TYPE_CHECKING:
    from real_runner.record import RecordPlan

SIZES = ("small", "large")
LONGEST = 100_000  # most of anything that is counted here


def whole(key: str, value: Any) -> int:
    """`value` as a count; InputError naming the key otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LONGEST:
        raise InputError(f"{key} is {value!r}; accepted: a whole number, 1 to {LONGEST}")
    return value


def choice(key: str, value: Any, accepted: Sequence[str]) -> str:
    """`value` if it is one of the names."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(f"{key} is {value!r}; accepted: {', '.join(accepted)}")
    return value


def folder(key: str, value: Any) -> str | None:
    """`value` as a folder's name, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"{key} is {value!r}; accepted: a folder, or null")
    return value


def mapping(key: str, value: Any) -> dict[str, Any]:
    """`value` as keys and values."""
    if not isinstance(value, dict):
        raise InputError(f"{key} is {value!r}; accepted: its keys, see --help")
    return value


def read_plan(config: dict[str, Any]) -> RecordPlan:
    """What to record, from the `size` and `record` nodes; InputError for the first bad one."""
    from real_runner.corpus import DOMAINS
    from real_runner.record import RecordPlan

    size = choice("size", config["size"], SIZES)
    settings = mapping("record", config["record"])
    chosen = mapping(f"record.{size}", settings[size])
    domains = chosen["domains"]
    if not isinstance(domains, list) or not domains:
        raise InputError(
            f"record.{size}.domains is {domains!r}; accepted: a list of {', '.join(DOMAINS)}"
        )
    for name in domains:
        choice(f"record.{size}.domains", name, tuple(DOMAINS))
    if len(set(domains)) < len(domains):
        raise InputError(f"record.{size}.domains is {domains!r}; accepted: every domain once")
    return RecordPlan(
        domains=tuple(domains),
        **{k: whole(f"record.{size}.{k}", v) for k, v in chosen.items() if k != "domains"},
        temperatures=_temperatures(settings["temperatures"]),
        pool=whole("record.pool", settings["pool"]),
        seed=whole("record.seed", settings["seed"]),
        name=size,
    )


def _temperatures(value: Any) -> tuple[float, ...]:
    accepted = "accepted: a list of different numbers, 0 to 10"
    if not isinstance(value, list) or not value:
        raise InputError(f"record.temperatures is {value!r}; {accepted}")
    for one in value:
        number = isinstance(one, int | float) and not isinstance(one, bool)
        if not number or not math.isfinite(one) or not 0 <= one <= 10:
            raise InputError(f"record.temperatures holds {one!r}; {accepted}")
    if len(set(value)) < len(value):
        raise InputError(f"record.temperatures is {value!r}; {accepted}")
    return tuple(float(one) for one in value)
