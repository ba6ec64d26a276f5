"""A validation as text: `markdown` for report.md, `lines` for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import wrap
from typing import Any

from real_runner.validating.agreement import METRICS, THROUGHPUT, by_concurrency
from traces.common.table import BLANK, Table, Title, render

WIDTH = 120  # columns of the terminal's lines, at most
_PARTS = ("draft", "verify", "host")
_NAMES = dict(zip(METRICS, ("output throughput", "median TPOT", "time of a round"), strict=True))
_COLUMNS = (  # Markdown's heading: the terminal's
    ("policy", "policy"),
    ("commits identical?", "same\ncommits"),
    ("measured tokens/s", "tokens/s\nmeasured"),
    ("predicted tokens/s", "\npredict."),
    ("error (%)", "\nerr %"),
    ("TPOT p50 measured (ms)", "TPOT\nms"),
    ("predicted (ms)", "\npred."),
    ("error (%)", "\nerr %"),
    ("round measured: draft/verify/host (ms)", "round ms, measured\ndraft/verify/host"),
    ("predicted: draft/verify/host (ms)", "predicted\ndraft/verify/host"),
    ("error of the whole (%)", "\nerr %"),
)


def markdown(validation: Mapping[str, Any]) -> str:
    """report.md: what it rests on, a table per concurrency, the summary, first differences."""
    out = ["# Predicted against live", "", *(f"- {line}" for line in provenance(validation)), ""]
    for title, rows in _tables(validation):
        table = Table([name for name, _ in _COLUMNS], rows, align="ll" + "r" * (len(_COLUMNS) - 2))
        out += render([Title(title), table], "markdown").splitlines()
    out += ["## Summary", "", *(f"- {text}" for text in sentences(validation)), ""]
    differences = first_differences(validation)
    if differences:
        out += ["## First differences", "", *(f"- {text}" for text in differences), ""]
    return "\n".join(out)


def lines(validation: Mapping[str, Any]) -> list[str]:
    """The same for the terminal: plain columns, no line above `WIDTH` characters."""
    out = _wrapped(provenance(validation))
    for title, rows in _tables(validation):
        table = Table([name for _, name in _COLUMNS], rows, caption=title)
        out += [line.rstrip() for line in render([table], "table", WIDTH).splitlines()]
    out += ["", *_wrapped(sentences(validation))]
    return out + _wrapped([f"first difference: {one}" for one in first_differences(validation)])


def provenance(validation: Mapping[str, Any]) -> list[str]:
    """What was measured, on what, and what the prediction was given."""
    v, fitted = validation, validation["fitted_on"]
    host = [f"{name} {value * 1e6:.4g} us" for name, value in v["host"].items() if value]
    return [
        f"pair {v['pair']}, drafter {v['drafter']}, temperature {v['temperature']:g}",
        f"measured on {v['hardware']} ({v['device']}, {v['dtype']}, {v['packing']} packing): "
        f"{_count(v['prompts'], 'prompt')}, {_count(v['repeats'], 'repeat')}, seed {v['seed']}",
        f"predicted with latency profile {v['profile']} and host terms "
        f"{', '.join(host) or 'all 0'}, fitted on {_count(fitted['prompts'], 'prompt')} in "
        f"{_count(fitted['runs'], 'run')}",
        "± is the half-width of the 95 % interval over the repeats (A/A); errors are of predicted "
        "against the mean of measured",
    ]


def sentences(validation: Mapping[str, Any]) -> list[str]:
    """Commits, errors, inversions, rank correlation and noise floor."""
    cells, summary = validation["cells"], validation["summary"]
    same = sum(cell["commits"]["differing"] == 0 for cell in cells)
    out = [
        f"commits identical to the replay's in {same} of {_count(len(cells), 'cell')} (in "
        "brackets: requests that differ)"
    ]
    for metric, name in _NAMES.items():
        worst = max(cells, key=lambda cell: abs(cell["error"][metric]))
        found = summary[metric]
        out.append(
            f"error of {name}: median {100 * found['median_abs_error']:.1f} %, worst "
            f"{100 * found['worst_abs_error']:.1f} % ({worst['policy']} at concurrency "
            f"{worst['concurrency']})"
        )
    known = len(summary["inversions"]) or ("none" if validation["repeats"] > 1 else "")
    out.append(f"inversions beyond noise: {known or 'unknown from one repeat'}")
    out += [
        f"inversion at concurrency {one['concurrency']}: {one['pair'][0]} over {one['pair'][1]} "
        f"measured {one['measured_ratio']:.3f} ({one['interval'][0]:.3f} to "
        f"{one['interval'][1]:.3f}), predicted {one['predicted_ratio']:.3f}"
        for one in summary["inversions"]
    ]
    ranks = [
        f"{BLANK if rho is None else format(rho, '.2f')} at {size}"
        for size, rho in summary["rank_correlation"].items()
    ]
    out.append(f"rank correlation over policies (Spearman, of throughput): {', '.join(ranks)}")
    floor = "unknown from one repeat"
    if summary["noise_floor"] is not None:
        size = 100 * summary["noise_floor"]
        floor = f"{size:.1f} % of throughput (median half-width of the A/A intervals)"
    return [*out, f"noise floor: {floor}"]


def first_differences(validation: Mapping[str, Any]) -> list[str]:
    """The first round that each policy committed otherwise than its replay, with its margin."""
    return [
        f"{cell['policy']} at concurrency {cell['concurrency']}: {cell['commits']['first']}"
        for cell in validation["cells"]
        if cell["commits"]["first"] is not None
    ]


def _tables(validation: Mapping[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """A title and rows for each concurrency."""
    groups = by_concurrency(validation["cells"]).items()
    return [
        (f"{_count(size, 'request')} in flight", list(map(_row, cells))) for size, cells in groups
    ]


def _row(cell: Mapping[str, Any]) -> list[str]:
    measured, predicted, noise = cell["measured"], cell["predicted"], cell["noise"]
    rate, differing = fmean(measured[THROUGHPUT]), cell["commits"]["differing"]
    rate_error, tpot_error, step_error = (f"{100 * cell['error'][one]:+.1f}" for one in METRICS)
    return [
        cell["policy"],
        f"no ({differing})" if differing else "yes",
        f"{rate:.1f}" + ("" if noise is None else f" ±{noise * rate:.1f}"),
        f"{predicted[THROUGHPUT]:.1f}",
        rate_error,
        _ms(fmean(measured["median_tpot_ms"])),
        _ms(predicted["median_tpot_ms"]),
        tpot_error,
        "/".join(_ms(fmean(measured["step_ms"][part])) for part in _PARTS),
        "/".join(_ms(predicted["step_ms"][part]) for part in _PARTS),
        step_error,
    ]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _ms(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _wrapped(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in wrap(text, WIDTH, subsequent_indent="  ")]
