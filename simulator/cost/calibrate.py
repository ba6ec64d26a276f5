"""Efficiencies and overhead of a roofline from measured points.

Least squares on log milliseconds of

    slower(matrices) + slower(attention) + all-reduces + overhead
    slower  max(read / bandwidth_efficiency, compute / compute_efficiency)

with efficiencies from 0.02 to 1 and an overhead from 0 to the shortest point, from the best point
of a grid on. What no point depends on (the compute of points that are all bound by memory) keeps
the value that was given.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost.roofline import Roofline
from traces.common.errors import InputError
from traces.profiles.tables import read_cells, require

_COLUMNS = ("batch", "packed_tokens_total", "kv_prefix_tokens", "verify_ms")
_LEAST = 0.02  # efficiency
_MOST = 5000  # points: the grid is gone through with all of them
_FEWEST = 3  # points: as many as there are numbers to fit


def calibrated(roofline: Roofline, path: Any) -> Roofline:
    """The roofline that fits the points of a file best, with what it leaves over in words.

    Raises:
        InputError: see `read_points`.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"latency.roofline.calibrate is {path!r}; accepted: a path to a CSV, null")
    *steps, ms = read_points(path)
    fitted, kept = _fitted(roofline, *steps, ms)
    off = np.abs(fitted.verify_ms(*steps) / ms - 1)
    text = (
        f"Fitted to {len(ms)} points of {path}: off by {np.median(off):.1%} in the median and "
        f"{off.max():.1%} at most"
    )
    notes = [f"{side} efficiency kept, no point depends on it" for side in kept]
    return fitted.with_(calibration="; ".join([text, *notes]) + ".")


def read_points(path: str | Path) -> np.ndarray:
    """A CSV of ``batch, packed_tokens_total, kv_prefix_tokens, verify_ms``, as (4, n).

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
    return np.array(rows, float).T


def _fitted(
    roofline: Roofline, batch: np.ndarray, total: np.ndarray, context: np.ndarray, ms: np.ndarray
) -> tuple[Roofline, list[str]]:
    """The best roofline for (n,) steps, and which efficiency none of them depends on."""
    from scipy.optimize import least_squares

    kernels = [roofline.matrices_ms(total), roofline.attention_ms(batch, total, context)]
    read, compute = np.array(kernels).swapaxes(0, 1)  # (kernel, n) each, at full efficiency
    fixed_ms = roofline.allreduce_ms(roofline.model.layers)

    def off(x: np.ndarray) -> np.ndarray:
        """(n,) logarithms at x: inverse efficiencies of reading and computing, overhead."""
        slower = np.maximum(read * x[0], compute * x[1])
        return np.log((slower.sum(axis=0) + fixed_ms + x[2]) / ms)

    slowness = np.geomspace(1, 1 / _LEAST, 24)
    grid = product(slowness, slowness, np.linspace(0, 0.95 * ms.min(), 8))
    start = min((np.array(x) for x in grid), key=lambda x: np.sum(off(x) ** 2))
    bounds = [1.0, 1.0, 0.0], [1 / _LEAST, 1 / _LEAST, ms.min()]
    close = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-15)
    best = least_squares(off, start, bounds=bounds, method="dogbox", **close).x
    reads = read * best[0] >= compute * best[1]
    values, kept = {"overhead_ms": float(best[2])}, []
    for side, name, used in ((0, "bandwidth", reads), (1, "compute", ~reads)):
        if used.any():
            values[f"{name}_efficiency"] = float(1 / best[side])
        else:
            kept.append(name)
    return roofline.with_(**values), kept
