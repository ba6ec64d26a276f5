"""The mapping ``latency.roofline`` of a configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.cost.roofline.model import Roofline
from traces.common.errors import InputError
from traces.profiles.devices import find_gpu, find_model
from traces.profiles.header import DTYPE_BYTES

ROOFLINE = "roofline"
_WHERE = f"latency.{ROOFLINE}"
_SHARES = ("bandwidth_efficiency", "compute_efficiency")
_COUNTS = ("tensor_parallel", "draft_layers", "draft_tokens")
_TIMES = ("allreduce_us", "overhead_ms")
_KEYS = ("gpu", "model", "dtype", *_SHARES, *_COUNTS, *_TIMES, "calibrate")


def read_roofline(node: Any) -> Roofline:
    """The roofline of a configuration, fitted to the points it names under ``calibrate``.

    Args:
        node: ``gpu`` and ``model`` (names of the shipped tables, or mappings of numbers), and any
            of `Roofline`'s numbers; null where the default holds.

    Raises:
        InputError: an unknown key, or a value that is not accepted.
    """
    if not isinstance(node, Mapping):
        raise InputError(f"{_WHERE} is {node!r}; accepted: a mapping of {', '.join(_KEYS)}")
    for key in node:
        if key not in _KEYS:
            raise InputError(f"{_WHERE}.{key} is not a setting; accepted: {', '.join(_KEYS)}")
    given = {key: value for key, value in node.items() if value is not None}
    calibrate = given.pop("calibrate", None)
    for key in ("gpu", "model"):
        if key not in given:
            raise InputError(f"{_WHERE}.{key} is missing; accepted: a name, or a mapping")
    for key, value in given.items():
        _check(key, value)
    given["gpu"] = find_gpu(given["gpu"], f"{_WHERE}.gpu")
    given["model"] = find_model(given["model"], f"{_WHERE}.model")
    roofline = Roofline(**given)
    if roofline.draft_layers > roofline.model.layers:
        raise InputError(
            f"{_WHERE}.draft_layers is {roofline.draft_layers}; accepted: up to "
            f"{roofline.model.layers}, the layers of {roofline.model.name}"
        )
    if calibrate is None:
        return roofline
    from simulator.cost.roofline.calibrate import calibrated

    return calibrated(roofline, calibrate)


def _check(key: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in _SHARES:
        good, accepted = number and 0 < value <= 1, "above 0, up to 1"
    elif key in _COUNTS:
        good, accepted = type(value) is int and value >= 1, "a whole number of at least 1"
    elif key in _TIMES:
        good, accepted = number and 0 <= value <= 1e6, "a number from 0"
    elif key == "dtype":
        good, accepted = value in tuple(DTYPE_BYTES), ", ".join(DTYPE_BYTES)
    else:
        return
    if not good:
        raise InputError(f"{_WHERE}.{key} is {value!r}; accepted: {accepted}")
