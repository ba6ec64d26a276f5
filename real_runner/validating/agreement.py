"""How far a prediction lies from repeated live measurements, and how far these from one another.

A cell is one policy at one concurrency, as ``validation.json`` holds it: under ``measured`` one
value for each repeat, under ``predicted`` one value. The same repeat of two cells ran under the
same conditions (order of prompts, seed), so their ratio is paired by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import exp, isfinite, log, sqrt
from statistics import fmean, median, stdev
from typing import Any

from traces.common.errors import InputError

METRICS = ("output_throughput", "median_tpot_ms", "step_ms")
THROUGHPUT = METRICS[0]

# Two-sided 95 % points of Student's t for 1 to 29 degrees of freedom: up to 30 repeats.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045),
)


def noise_of(repeats: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the mean, relative to the mean; None for one repeat.

    Raises:
        InputError: a value that is not a finite number above 0.
    """
    _above_0(repeats, "a measured value")
    if len(repeats) < 2:
        return None
    return _half_width(repeats) / fmean(repeats)


def _above_0(values: Iterable[float], name: str) -> None:
    for value in values:
        if not (isfinite(value) and value > 0):
            raise InputError(f"{name} is {value!r}; accepted: a finite number above 0")


def _half_width(values: Sequence[float]) -> float:
    """t * sd / sqrt(r); beyond 30 repeats the t of 30, at most 5 % too wide."""
    return _T[min(len(values) - 1, len(_T)) - 1] * stdev(values) / sqrt(len(values))


def value_of(side: Mapping[str, Any], metric: str) -> Any:
    """A metric of ``measured`` or ``predicted``; of a step its whole time."""
    return side["step_ms"]["total"] if metric == "step_ms" else side[metric]


def errors_of(measured: Mapping[str, Any], predicted: Mapping[str, Any]) -> dict[str, float]:
    """Signed relative error of each metric: predicted over the mean of measured, less 1.

    Raises:
        InputError: a value that is not a finite number above 0.
    """
    for metric in METRICS:
        _above_0((*value_of(measured, metric), value_of(predicted, metric)), metric)
    return {
        metric: value_of(predicted, metric) / fmean(value_of(measured, metric)) - 1
        for metric in METRICS
    }


def summarise_cells(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``summary`` of ``validation.json``, from the cells' measured and predicted alone.

    Raises:
        InputError: no cell; a time or rate that is not above 0; repeats that cannot be paired.
    """
    if not cells:
        raise InputError("cells is empty; accepted: one cell or more")
    for cell in cells:
        _check(cell, len(cells[0]["measured"][THROUGHPUT]))
    groups = by_concurrency(cells)
    noises = [noise_of(cell["measured"][THROUGHPUT]) for cell in cells]
    return {
        **_errors([errors_of(cell["measured"], cell["predicted"]) for cell in cells]),
        "rank_correlation": {str(size): _group_rank(group) for size, group in groups.items()},
        "noise_floor": None if None in noises else median(noises),
        "inversions": [one for group in groups.values() for one in inversions(group)],
    }


def _check(cell: Mapping[str, Any], repeats: int) -> None:
    for metric in METRICS:
        measured = list(value_of(cell["measured"], metric))
        where = f"{metric} of {cell['policy']} at concurrency {cell['concurrency']}"
        if not measured or len(measured) != repeats:
            raise InputError(f"{where} has {len(measured)} repeats; accepted: {max(repeats, 1)}")
        _above_0((*measured, value_of(cell["predicted"], metric)), where)


def _errors(found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    sizes = {metric: [abs(one[metric]) for one in found] for metric in METRICS}
    return {
        metric: {"median_abs_error": median(every), "worst_abs_error": max(every)}
        for metric, every in sizes.items()
    }


def by_concurrency(cells: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """Cells of each concurrency, the smallest first, in their order."""
    sizes = sorted({cell["concurrency"] for cell in cells})
    return {size: [cell for cell in cells if cell["concurrency"] == size] for size in sizes}


def _group_rank(group: Sequence[Mapping[str, Any]]) -> float | None:
    return rank_correlation(
        [fmean(cell["measured"][THROUGHPUT]) for cell in group],
        [cell["predicted"][THROUGHPUT] for cell in group],
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: Pearson's of the ranks; None below 3 values or where all of a side tie."""
    if len(first) < 3:
        return None
    x, y = _ranks(first), _ranks(second)
    middle = (len(first) + 1) / 2  # mean of any ranks, tied or not
    x, y = [rank - middle for rank in x], [rank - middle for rank in y]
    scale = sqrt(sum(a * a for a in x) * sum(b * b for b in y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / scale if scale else None


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def inversions(group: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pairs at one concurrency whose measured order is beyond noise and predicted the other way.

    Measured: the geometric mean of the ratios of throughput by repeat, whose 95 % interval must
    leave out 1 (so one repeat finds nothing). The policy that measured faster stands first.
    """
    found = []
    for a, b in combinations(group, 2):
        if _log_mean(a, b) < 0:
            a, b = b, a
        middle = _log_mean(a, b)
        predicted = a["predicted"][THROUGHPUT] / b["predicted"][THROUGHPUT]
        logs = _log_ratios(a, b)
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


def _log_mean(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    return fmean(_log_ratios(a, b))


def _log_ratios(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[float]:
    pairs = zip(a["measured"][THROUGHPUT], b["measured"][THROUGHPUT], strict=True)
    return [log(ours / theirs) for ours, theirs in pairs]
