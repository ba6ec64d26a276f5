"""Efficiencies and overhead of a roofline from measured points.

Least squares on log milliseconds of

    slower(matrices) + slower(attention) + all-reduces + overhead
    slower  max(read / bandwidth_efficiency, compute / compute_efficiency)

with efficiencies from 0.02 to 1 and an overhead from 0 to the shortest point: the best point of a
grid, then Gauss-Newton steps that are halved until they help. What no point depends on (the
compute of points that are all bound by memory) keeps the value that was given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost.roofline.model import Roofline
from traces.common.errors import InputError
from traces.profiles.tables import read_cells, require

_COLUMNS = ("batch", "packed_tokens_total", "kv_prefix_tokens", "verify_ms")
_LEAST = 0.02  # efficiency
_STEPS = 60  # of Gauss-Newton, far more than it takes
_MOST = 5000  # points: the grid is gone through with all of them
_FEWEST = 3  # points: as many as there are numbers to fit


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Measured target steps, all (n,)."""

    batch: np.ndarray
    total: np.ndarray
    context: np.ndarray
    ms: np.ndarray


def read_points(path: str | Path) -> Points:
    """A CSV of ``batch, packed_tokens_total, kv_prefix_tokens, verify_ms``, in any order.

    Raises:
        InputError: naming file, row, column, value and what is accepted, or too few rows.
    """
    path = Path(path)
    columns, cells = read_cells(path)
    require(path, columns, _COLUMNS)
    rows = [
        (*(cell.size(name) for name in _COLUMNS[:3]), cell.time_ms("verify_ms")) for cell in cells
    ]
    for cell, (batch, total, *_) in zip(cells, rows, strict=True):
        if total < batch:
            cell.refuse("packed_tokens_total", f"at least {batch}, one token for each request")
    if not _FEWEST <= len(rows) <= _MOST:
        raise InputError(f"{path}: {len(rows)} rows; accepted: at least {_FEWEST}, at most {_MOST}")
    return Points(*np.array(rows, float).T)


def calibrated(roofline: Roofline, path: Any) -> Roofline:
    """The roofline that fits the points of a file best, with what it leaves over in words.

    Raises:
        InputError: see `read_points`.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"latency.roofline.calibrate is {path!r}; accepted: a path to a CSV, null")
    points = read_points(path)
    fitted, bound = fit(roofline, points)
    off = np.abs(fitted.verify_ms(points.batch, points.total, points.context) / points.ms - 1)
    kept = [f"{side} efficiency kept, no point depends on it" for side in ("bandwidth", "compute")
            if side not in bound]  # fmt: skip
    text = (
        f"Fitted to {len(points.ms)} points of {path}: off by {np.median(off):.1%} in the median "
        f"and {off.max():.1%} at most"
    )
    return replace(fitted, calibration="; ".join([text, *kept]) + ".")


def fit(roofline: Roofline, points: Points) -> tuple[Roofline, tuple[str, ...]]:
    """The best roofline, and which of bandwidth and compute its points depend on."""
    times = np.array(
        [
            roofline.matrices_ms(points.total),
            roofline.attention_ms(points.batch, points.total, points.context),
        ]
    )  # (kernel, read or compute, n) at full efficiency
    fixed_ms = roofline.added_ms - roofline.overhead_ms
    best = _refined(_coarse(times, fixed_ms, points.ms), times, fixed_ms, points.ms)
    reads = _reads(best, times)
    values, bound = {"overhead_ms": float(best[2])}, []
    for side, name, used in ((0, "bandwidth", reads), (1, "compute", ~reads)):
        if used.any():
            bound.append(name)
            values[f"{name}_efficiency"] = float(1 / best[side])
    return replace(roofline, **values), tuple(bound)


def _reads(x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """(kernel, n) bool: bound by reading."""
    return times[:, 0] * x[0] >= times[:, 1] * x[1]


def _predicted(x: np.ndarray, times: np.ndarray, fixed_ms: float) -> np.ndarray:
    """Milliseconds (n,) at x: inverse efficiencies of reading and computing, overhead."""
    return np.maximum(times[:, 0] * x[0], times[:, 1] * x[1]).sum(axis=0) + fixed_ms + x[2]


def _error(x: np.ndarray, times: np.ndarray, fixed_ms: float, ms: np.ndarray) -> float:
    return float(np.sum(np.log(_predicted(x, times, fixed_ms) / ms) ** 2))


def _coarse(times: np.ndarray, fixed_ms: float, ms: np.ndarray) -> np.ndarray:
    slowness = np.geomspace(1, 1 / _LEAST, 24)
    grid = product(slowness, slowness, np.linspace(0, 0.95 * ms.min(), 8))
    return min((np.array(x) for x in grid), key=lambda x: _error(x, times, fixed_ms, ms))


def _refined(x: np.ndarray, times: np.ndarray, fixed_ms: float, ms: np.ndarray) -> np.ndarray:
    low, high = np.array([1.0, 1.0, 0.0]), np.array([1 / _LEAST, 1 / _LEAST, ms.min()])
    for _ in range(_STEPS):
        now = _predicted(x, times, fixed_ms)
        reads = _reads(x, times)
        sums = [(times[:, 0] * reads).sum(axis=0), (times[:, 1] * ~reads).sum(axis=0)]
        slopes = np.stack([*sums, np.ones_like(ms)]) / now  # (3, n) of the logarithm
        step = np.linalg.lstsq(slopes.T, np.log(ms / now), rcond=None)[0]
        error = _error(x, times, fixed_ms, ms)
        for _ in range(30):
            tried = np.clip(x + step, low, high)
            if _error(tried, times, fixed_ms, ms) < error:
                break
            step = step / 2
        else:
            return x
        x = tried
    return x
