"""How far a prediction lies from repeated live measurements, and how far these from one another.

A cell is one policy at one concurrency, as ``validation.json`` holds it: under ``measured`` one
value for each repeat, under ``predicted`` one value. The same repeat of two cells ran under the
same conditions (order of prompts, seed), so their ratio is paired by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from scipy.stats import rankdata

METRICS = ("output_throughput", "median_tpot_ms", "step_ms")
THROUGHPUT = METRICS[0]

# Two-sided 95 % points of Student's t for 1 to 29 degrees of freedom: up to 30 repeats.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045),
)


def noise_of(repeats: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the mean, relative to the mean; None for one repeat."""
    return _half_width(repeats) / fmean(repeats) if len(repeats) > 1 else None


def _half_width(values: Sequence[float]) -> float:
    """t * sd / sqrt(r); beyond 30 repeats the t of 30, at most 5 % too wide."""
    return _T[min(len(values) - 1, len(_T)) - 1] * stdev(values) / sqrt(len(values))


def value_of(side: Mapping[str, Any], metric: str) -> Any:
    """A metric of ``measured`` or ``predicted``; of a step its whole time."""
    return side["step_ms"]["total"] if metric == "step_ms" else side[metric]


def errors_of(measured: Mapping[str, Any], predicted: Mapping[str, Any]) -> dict[str, float]:
    """Signed relative error of each metric: predicted over the mean of measured, less 1."""
    return {
        metric: value_of(predicted, metric) / fmean(value_of(measured, metric)) - 1
        for metric in METRICS
    }


def summarise_cells(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``summary`` of ``validation.json``, from the cells' measured and predicted alone."""
    groups = by_concurrency(cells)
    noises = [noise_of(cell["measured"][THROUGHPUT]) for cell in cells]
    errors = [errors_of(cell["measured"], cell["predicted"]) for cell in cells]
    sizes = {metric: [abs(one[metric]) for one in errors] for metric in METRICS}
    ranks = {
        str(size): rank_correlation(
            [fmean(cell["measured"][THROUGHPUT]) for cell in group],
            [cell["predicted"][THROUGHPUT] for cell in group],
        )
        for size, group in groups.items()
    }
    return {
        **{
            metric: {"median_abs_error": median(every), "worst_abs_error": max(every)}
            for metric, every in sizes.items()
        },
        "rank_correlation": ranks,
        "noise_floor": None if None in noises else median(noises),
        "inversions": [one for group in groups.values() for one in inversions(group)],
    }


def by_concurrency(cells: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """Cells of each concurrency, the smallest first, in their order."""
    sizes = sorted({cell["concurrency"] for cell in cells})
    return {size: [cell for cell in cells if cell["concurrency"] == size] for size in sizes}


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: Pearson's of the ranks; None below 3 values or where all of a side tie."""
    if len(first) < 3:
        return None
    x, y = (rankdata(side) - (len(first) + 1) / 2 for side in (first, second))
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale else None


def inversions(group: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pairs at one concurrency whose measured order is beyond noise and predicted the other way.

    Measured: the geometric mean of the ratios of throughput by repeat, whose 95 % interval must
    leave out 1 (so one repeat finds nothing). The policy that measured faster stands first.
    """
    found = []
    for a, b in combinations(group, 2):
        pairs = zip(a["measured"][THROUGHPUT], b["measured"][THROUGHPUT], strict=True)
        logs = [log(ours / theirs) for ours, theirs in pairs]
        middle = abs(fmean(logs))
        if fmean(logs) < 0:
            a, b = b, a
        predicted = a["predicted"][THROUGHPUT] / b["predicted"][THROUGHPUT]
        half = _half_width(logs) if len(logs) > 1 else float("inf")
        if middle - half > 0 and predicted < 1:
            found.append(
                {
                    "concurrency": a["concurrency"],
                    "pair": [a["policy"], b["policy"]],
                    "measured_ratio": exp(middle),
                    "interval": [exp(middle - half), exp(middle + half)],
                    "predicted_ratio": predicted,
                }
            )
    return found
