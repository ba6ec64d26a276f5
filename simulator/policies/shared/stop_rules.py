"""How many nodes to verify, from a survival curve and a cost.

CAST (arXiv 2610.00321) draws a line through a latency probe and stops where the next node's mean
mass falls under its share of the round; the other rules look at the costs themselves.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import traces
from traces.common.errors import InputError

if TYPE_CHECKING:
    from simulator.cost import StepCost

DEPLOYED_WIDTHS = (15, 31, 47, 63, 95, 127)  # the widths CAST compiles a graph for
MASS_CURVES = Path(traces.__file__).parent / "published" / "cast_mass_curves.csv"
_LINE = (16, 128)  # packed tokens between which CAST fits its line


def fit_line(packed: np.ndarray, ms: np.ndarray, of: str = "") -> tuple[float, float]:
    """Least-squares line through the probe points of 16 to 128 packed tokens.

    Args:
        packed: (n,) packed tokens, root included. ms: (n,) milliseconds. of: whose, in errors.

    Returns:
        c0 in milliseconds and c1 in milliseconds per packed token.

    Raises:
        InputError: fewer than two points in the range.
    """
    packed, ms = np.asarray(packed, float), np.asarray(ms, float)
    inside = (packed >= _LINE[0]) & (packed <= _LINE[1])
    if np.count_nonzero(inside) < 2:
        raise _too_few(of, packed, f"two sizes from {_LINE[0]} to {_LINE[1]}")
    x, y = packed[inside], ms[inside]
    c1 = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return float(y.mean() - c1 * x.mean()), c1


def stop_width(rho: np.ndarray, c0_ms: float, c1_ms: float, draft_ms: float = 0.0) -> int:
    """CAST's width: add node N+1 while rho_(N+1) >= c1 * (g(N) + 1) / l(N), from N = 1.

    g(N) is the sum of the first N masses, l(N) = draft + c0 + c1 * (N + 1). A slope of 0 or less
    never stops.

    Args:
        rho: (M,) mean N-th largest path mass, N = 1..M. c1_ms: milliseconds per packed token.
    """
    if c1_ms <= 0:
        return len(rho)
    gain = float(rho[0])
    for width in range(1, len(rho)):
        round_ms = draft_ms + c0_ms + c1_ms * (width + 1)
        if rho[width] < c1_ms * (gain + 1) / round_ms:
            return width
        gain += float(rho[width])
    return len(rho)


def deploy_width(stop: int, widths: Sequence[int] = DEPLOYED_WIDTHS) -> int:
    """The first of the ascending `widths` that reaches `stop`, else the largest."""
    return next((width for width in widths if width >= stop), widths[-1])


def measured_width(
    rho: np.ndarray, packed: np.ndarray, ms: np.ndarray, draft_ms: float = 0.0, of: str = ""
) -> tuple[int, float]:
    """Width of the most tokens per millisecond among measured sizes; the smallest of equals.

    Measured sizes are the ends of the plateaus, so a jump between two of them cannot be missed.
    Arguments as in `stop_width` and `fit_line`.

    Returns:
        The width, and (1 + g) / (draft + ms) there.

    Raises:
        InputError: no size has between 1 and M nodes.
    """
    packed, ms = np.asarray(packed), np.asarray(ms, float)
    inside = (packed >= 2) & (packed <= len(rho) + 1)
    if not inside.any():
        raise _too_few(of, packed, f"one size from 2 to {len(rho) + 1}")
    width = packed[inside] - 1
    rate = (1 + np.cumsum(rho)[width - 1]) / (draft_ms + ms[inside])
    return int(width[rate.argmax()]), float(rate.max())


def probed(cost: StepCost, context: float, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """The points of `cost`'s width probe from `low` to `high` packed tokens, at least one.

    Raises:
        InputError: none of them.
    """
    packed, ms = cost.width_probe(context)
    inside = (packed >= low) & (packed <= high)
    if not inside.any():
        raise _too_few(cost.profile.described, packed, f"one size from {low} to {high}")
    return packed[inside], ms[inside]


def _too_few(of: str, packed: np.ndarray, accepted: str) -> InputError:
    sizes = ", ".join(f"{size:g}" for size in np.asarray(packed).tolist())
    where = f"{of}: " if of else ""
    return InputError(
        f"{where}width probe of a lone request at {sizes} packed tokens; accepted: at least "
        f"{accepted}"
    )


def published_mass_curve(domain: str = "gsm8k") -> np.ndarray:
    """CAST's own mean masses of Qwen3-8B: (128,), only to reproduce the paper's widths."""
    with MASS_CURVES.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["domain"] == domain]
    if not rows:
        raise InputError(f"{MASS_CURVES.name}: no domain {domain!r}")
    return np.array([float(row["mean_prefix_mass"]) for row in rows])


def first_stop_widths(survival: np.ndarray, step_s: np.ndarray) -> np.ndarray:
    """Width where each request's tokens per second first fail to rise (CaDDTree): (B,).

    Args:
        survival: (B, M) non-increasing survival of the nodes. step_s: (B, M + 1) seconds of a step
            with 0..M of them, or (M + 1,) for all.
    """
    gain = np.zeros((len(survival), survival.shape[1] + 1))
    np.cumsum(survival, axis=-1, out=gain[:, 1:])
    rate = (1 + gain) / step_s
    stops = rate[:, 1:] <= rate[:, :-1]
    return np.where(stops.any(axis=-1), stops.argmax(axis=-1), stops.shape[-1])
