"""What a summary must hold before anything is computed from it."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from traces.common.errors import InputError

FORMAT = "specdec-summary"
VERSION = 1

Check = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and isfinite(value) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_rate(value: Any) -> bool:
    return value in (None, "inf", float("inf")) or (_is_number(value) and value > 0)


def _is_curve(value: Any) -> bool:
    if value is None:
        return True
    items = value.items() if isinstance(value, dict) else [("", None)]
    return all(key.isdecimal() and _is_number(length) for key, length in items)


def _is_shares(value: Any) -> bool:
    time = value.get("time") if isinstance(value, dict) else None
    names = ("measured", "interpolated", "modelled", "clamped")
    return isinstance(time, dict) and all(_is_share(time.get(name)) for name in names)


def _is_share(value: Any) -> bool:
    return _is_number(value) and value <= 1 + 1e-9  # sums of seconds round


TEXT: Check = (lambda value: isinstance(value, str) and value != "", "a text")
FLAG: Check = (lambda value: isinstance(value, bool), "true or false")
COUNT: Check = (_is_count, "an integer from 0")
POSITIVE: Check = (lambda value: _is_count(value) and value > 0, "an integer from 1")
NUMBER: Check = (_is_number, "a finite number from 0")
MAYBE_NUMBER: Check = (lambda value: value is None or _is_number(value), "a number from 0, or null")
MAPPING: Check = (lambda value: isinstance(value, dict), "a mapping")

CHECKS: dict[str, Check] = {
    "policy": TEXT,
    "policy_fit": MAPPING,
    "trace": MAPPING,
    "trace.recording": TEXT,
    "trace.content_hash": TEXT,
    "latency": MAPPING,
    "latency.profile": TEXT,
    "what_if": FLAG,
    "max_concurrency": POSITIVE,
    "request_rate": (_is_rate, 'a number above 0, or "inf"'),
    "burstiness": NUMBER,
    "seed": COUNT,
    "num_prompts": POSITIVE,
    "completed": COUNT,
    "output_throughput": NUMBER,
    "median_tpot_ms": MAYBE_NUMBER,
    "p99_tpot_ms": MAYBE_NUMBER,
    "acceptance_length": MAYBE_NUMBER,
    "draft_nodes_per_request": MAYBE_NUMBER,
    "share_verified_accepted": (lambda v: v is None or _is_share(v), "a share up to 1, or null"),
    "ttft_note": (lambda value: value is None or isinstance(value, str), "a text, or null"),
    "cost_shares": (_is_shares, "time shares measured, interpolated, modelled, clamped"),
    "acceptance_length_by_budget": (_is_curve, "a mapping of budget to length, or null"),
}


_NUMBERS: Check = (
    lambda value: isinstance(value, dict) and all(map(MAYBE_NUMBER[0], value.values())),
    "a mapping of names to numbers from 0, or null",
)
_MAPPINGS: Check = (
    lambda value: isinstance(value, dict) and all(isinstance(v, dict) for v in value.values()),
    "a mapping of names to mappings",
)
# Keys that a summary may lack, or have as null.
OPTIONAL: dict[str, Check] = {
    **dict.fromkeys(("policy_config", "policy_code", "server", "window"), MAPPING),
    **dict.fromkeys(("policy_code.target", "latency.content_hash"), TEXT),
    "policy_code.sha256": (lambda value: isinstance(value, str), "a text"),
    "step_ms": _NUMBERS,
    "goodput": _NUMBERS,
    "by_domain": _MAPPINGS,
    "server.max_num_seqs": POSITIVE,
    "server.replicas": POSITIVE,
    "window.kind": TEXT,
    "window.start_s": NUMBER,
    "window.end_s": NUMBER,
    "window.requests": COUNT,
    **dict.fromkeys(("rejected", "ramp"), COUNT),
}


def check_summary(data: Any) -> None:
    """Raise InputError with one line about the first thing that is wrong."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f'not a result summary, expected format "{FORMAT}"')
    if data.get("version") != VERSION:
        found = data.get("version")
        raise InputError(f"version {found!r:.40} is not supported, expected {VERSION}")
    for name, check in CHECKS.items():
        check_key(data, name, check)
    for name, check in OPTIONAL.items():
        first, _, second = name.partition(".")
        held = data if not second else data.get(first) or {}
        if held.get(second or first) is not None:
            check_key(data, name, check)
    over = data["completed"] + _whole_or_0(data.get("rejected"))  # rejected ones never complete
    if over < data["num_prompts"]:
        raise InputError(f"incomplete: {over} of {data['num_prompts']} prompts done")
    if over > data["num_prompts"]:
        raise InputError(f"{over} prompts completed or rejected, expected {data['num_prompts']}")
    median, p99 = data["median_tpot_ms"], data["p99_tpot_ms"]
    if None not in (median, p99) and median > p99 * (1 + 1e-9):
        raise InputError(f"median_tpot_ms is {median}, expected at most p99_tpot_ms, {p99}")


def check_key(data: dict, name: str, check: Check, where: str = "") -> None:
    """Raise InputError unless the value at a dotted ``name`` passes; ``where`` stands before it."""
    accepts, accepted = check
    node = data
    for key in name.split("."):
        if not isinstance(node, dict) or key not in node:
            raise InputError(f"incomplete: {where}{name} is missing, expected {accepted}")
        node = node[key]
    if not accepts(node):
        shown = repr(node) if len(repr(node)) <= 40 else repr(node)[:37] + "..."
        raise InputError(f"{where}{name} is {shown}, expected {accepted}")


def _whole_or_0(value) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
