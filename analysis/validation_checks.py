"""What a ``validation.json`` must hold before anything is drawn or printed from it."""

from __future__ import annotations

from math import fsum, isfinite
from typing import Any

from analysis.checks import COUNT, MAPPING, MAYBE_NUMBER, NUMBER, POSITIVE, TEXT, Check, check_key
from traces.common.errors import InputError

FORMAT = "specdec-validation"
VERSION = 1
METRICS = ("output_throughput", "median_tpot_ms", "step_ms")
PARTS = ("draft", "verify", "host")
_ROUNDING = 1e-3  # an error may be written with fewer digits


def _is_real(value: Any) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and isfinite(value)


def _is_host(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_real(term) for term in value.values())


def _is_ranks(value: Any) -> bool:
    items = value.items() if isinstance(value, dict) else [("", None)]
    return all(key.isdecimal() and (rho is None or _is_real(rho)) for key, rho in items)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0


_REAL: Check = (_is_real, "a finite number")
_ABOVE: Check = (lambda value: _is_real(value) and value > 0, "a finite number above 0")
_MAYBE_TEXT: Check = (lambda value: value is None or isinstance(value, str), "a text, or null")

_OF_ALL: dict[str, Check] = {
    **dict.fromkeys(("pair", "drafter", "hardware", "device", "dtype", "packing"), TEXT),
    "temperature": NUMBER,
    "profile": TEXT,
    "host": (_is_host, "a mapping of terms to seconds"),
    "fitted_on": MAPPING,
    "fitted_on.prompts": COUNT,
    "fitted_on.runs": COUNT,
    "prompts": POSITIVE,
    "repeats": POSITIVE,
    "seed": COUNT,
    "cells": (_is_list, "one cell or more"),
    "summary": MAPPING,
    "summary.noise_floor": MAYBE_NUMBER,
    "summary.rank_correlation": (_is_ranks, "a mapping of concurrency to number, or null"),
    "summary.inversions": (lambda value: isinstance(value, list), "a list"),
}
_OF_CELL: dict[str, Check] = {
    "policy": TEXT,
    "concurrency": POSITIVE,
    "commits": MAPPING,
    "commits.rounds": COUNT,
    "commits.differing": COUNT,
    "commits.first": _MAYBE_TEXT,
    **dict.fromkeys(("measured", "measured.step_ms", "predicted"), MAPPING),
    "predicted.step_ms": MAPPING,
    "error": MAPPING,
    **{f"error.{metric}": _REAL for metric in METRICS},
    "noise": MAYBE_NUMBER,
}
_ABOVE_0 = ("output_throughput", "median_tpot_ms", "step_ms.total")
_FROM_0 = tuple(f"step_ms.{part}" for part in PARTS)


def check_validation(data: Any) -> None:
    """Raise InputError with one line about the first thing that is wrong."""
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise InputError(f'format is {found!r}, expected "{FORMAT}" (of runs name the folder)')
    if data.get("version") != VERSION:
        raise InputError(f"version {data.get('version')!r} is not supported, expected {VERSION}")
    _check_keys(data, _OF_ALL)
    for metric in METRICS:
        spread = ("median_abs_error", "worst_abs_error")
        names = {f"{metric}.{name}": NUMBER for name in spread}
        _check_keys(data["summary"], {metric: MAPPING, **names}, "summary.")
    for at, one in enumerate(data["summary"]["inversions"]):
        _check_inversion(one, f"summary.inversions[{at}]")
    for at, cell in enumerate(data["cells"]):
        _check_cell(cell, f"cells[{at}]", data["repeats"])


def _check_keys(data: dict, checks: dict[str, Check], where: str = "") -> None:
    for name, check in checks.items():
        check_key(data, name, check, where)


def _check_inversion(one: Any, where: str) -> None:
    if not isinstance(one, dict):
        raise InputError(f"{where} is {one!r}, expected a mapping")
    pair = (lambda v: isinstance(v, list) and len(v) == 2 and all(map(TEXT[0], v)), "two policies")
    ends = (lambda v: isinstance(v, list) and len(v) == 2 and all(map(_is_real, v)), "two numbers")
    checks = {"concurrency": POSITIVE, "pair": pair, "measured_ratio": _ABOVE, "interval": ends}
    _check_keys(one, checks | {"predicted_ratio": _ABOVE}, f"{where}.")


def _check_cell(cell: Any, where: str, repeats: int) -> None:
    if not isinstance(cell, dict):
        raise InputError(f"{where} is {cell!r}, expected a mapping")
    _check_keys(cell, _OF_CELL, f"{where}.")
    for names, one in ((_ABOVE_0, _ABOVE), (_FROM_0, NUMBER)):
        for name in names:
            check_key(cell, f"measured.{name}", _repeated(one, repeats), f"{where}.")
            check_key(cell, f"predicted.{name}", one, f"{where}.")
    for metric in METRICS:
        _check_error(cell, metric, where)


def _repeated(check: Check, repeats: int) -> Check:
    accepts, accepted = check

    def accepts_all(value: Any) -> bool:
        return isinstance(value, list) and len(value) == repeats and all(map(accepts, value))

    return accepts_all, f"a list of {repeats}, one for each repeat, each {accepted}"


def _check_error(cell: dict, metric: str, where: str) -> None:
    """The written error must be the one between the written values: panels draw both."""
    measured, predicted = means(cell, metric.replace("step_ms", "step_ms.total"))
    error, expected = cell["error"][metric], predicted / measured - 1
    if abs(error - expected) > _ROUNDING * (1 + abs(expected)):
        raise InputError(
            f"{where}.error.{metric} is {error:.6g}, expected {expected:.6g}: predicted over the "
            "mean of measured, less 1"
        )


def means(cell: dict, name: str) -> tuple[float, float]:
    """Mean of measured, and predicted, at a dotted name."""
    measured, predicted = cell["measured"], cell["predicted"]
    for key in name.split("."):
        measured, predicted = measured[key], predicted[key]
    return fsum(measured) / len(measured), predicted
