"""A validation as text: `markdown` for report.md, `lines` for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import wrap
from typing import Any

from real_runner.validating.agreement import (
    METRICS,
    THROUGHPUT,
    by_concurrency,
    noise_of,
    summarise_cells,
)

WIDTH = 120  # columns of the terminal's lines, at most
_PARTS = ("draft", "verify", "host")
_BLANK = "–"
_NAMES = dict(zip(METRICS, ("output throughput", "median TPOT", "time of a round"), strict=True))
_COLUMNS = (  # Markdown's heading; the terminal's two lines
    ("policy", "", "policy"),
    ("commits identical?", "same", "commits"),
    ("measured tokens/s", "tokens/s", "measured"),
    ("predicted tokens/s", "", "predict."),
    ("error (%)", "", "err %"),
    ("TPOT p50 measured (ms)", "TPOT", "ms"),
    ("predicted (ms)", "", "pred."),
    ("error (%)", "", "err %"),
    ("round measured: draft/verify/host (ms)", "round ms, measured", "draft/verify/host"),
    ("predicted: draft/verify/host (ms)", "predicted", "draft/verify/host"),
    ("error of the whole (%)", "", "err %"),
)


def markdown(validation: Mapping[str, Any]) -> str:
    """report.md: what it rests on, a table per concurrency, the summary, first differences."""
    out = ["# Predicted against live", "", *(f"- {line}" for line in provenance(validation)), ""]
    for size, cells in by_concurrency(validation["cells"]).items():
        out += [f"## {_requests(size)}", "", _markdown_row([name for name, *_ in _COLUMNS])]
        out += [_markdown_row(["---", "---", *["---:"] * (len(_COLUMNS) - 2)])]
        out += [*(_markdown_row(_row(cell)) for cell in cells), ""]
    out += ["## Summary", "", *(f"- {text}" for text in sentences(validation)), ""]
    differences = first_differences(validation)
    if differences:
        out += ["## First differences", "", *(f"- {text}" for text in differences), ""]
    return "\n".join(out)


def lines(validation: Mapping[str, Any]) -> list[str]:
    """The same for the terminal: plain columns, no line above `WIDTH` characters."""
    out = _wrapped(provenance(validation))
    for size, cells in by_concurrency(validation["cells"]).items():
        heads = [[column[level] for column in _COLUMNS] for level in (1, 2)]
        out += ["", _requests(size), *_aligned([*heads, *map(_row, cells)])]
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
    ranks = [
        f"{_BLANK if rho is None else format(rho, '.2f')} at {size}"
        for size, rho in summary["rank_correlation"].items()
    ]
    floor = summary["noise_floor"]
    return [
        f"commits identical to the replay's in {same} of {_count(len(cells), 'cell')} (in "
        "brackets: requests that differ)",
        *(_error(validation, metric) for metric in METRICS),
        *_inversions(validation),
        f"rank correlation over policies (Spearman, of throughput): {', '.join(ranks)}",
        "noise floor: unknown from one repeat"
        if floor is None
        else f"noise floor: {_size(floor)} of throughput (median half-width of the A/A intervals)",
    ]


def _error(validation: Mapping[str, Any], metric: str) -> str:
    worst = max(validation["cells"], key=lambda cell: abs(cell["error"][metric]))
    found = validation["summary"][metric]
    return (
        f"error of {_NAMES[metric]}: median {_size(found['median_abs_error'])}, worst "
        f"{_size(found['worst_abs_error'])} ({worst['policy']} at concurrency "
        f"{worst['concurrency']})"
    )


def _inversions(validation: Mapping[str, Any]) -> list[str]:
    found = validation["summary"]["inversions"]
    if not found and validation["repeats"] < 2:
        return ["inversions beyond noise: unknown from one repeat"]
    return [f"inversions beyond noise: {len(found) or 'none'}"] + [
        f"inversion at concurrency {one['concurrency']}: {one['pair'][0]} over {one['pair'][1]} "
        f"measured {one['measured_ratio']:.3f} ({one['interval'][0]:.3f} to "
        f"{one['interval'][1]:.3f}), predicted {one['predicted_ratio']:.3f}"
        for one in found
    ]


def first_differences(validation: Mapping[str, Any]) -> list[str]:
    """The first round that each policy committed otherwise than its replay, with its margin."""
    return [
        f"{cell['policy']} at concurrency {cell['concurrency']}: {cell['commits']['first']}"
        for cell in validation["cells"]
        if cell["commits"]["first"] is not None
    ]


def _row(cell: Mapping[str, Any]) -> list[str]:
    measured, predicted, error = cell["measured"], cell["predicted"], cell["error"]
    rate, noise = fmean(measured[THROUGHPUT]), cell["noise"]
    differing = cell["commits"]["differing"]
    return [
        cell["policy"],
        f"no ({differing})" if differing else "yes",
        f"{rate:.1f}" + ("" if noise is None else f" ±{noise * rate:.1f}"),
        f"{predicted[THROUGHPUT]:.1f}",
        _signed(error[THROUGHPUT]),
        _ms(fmean(measured["median_tpot_ms"])),
        _ms(predicted["median_tpot_ms"]),
        _signed(error["median_tpot_ms"]),
        "/".join(_ms(fmean(measured["step_ms"][part])) for part in _PARTS),
        "/".join(_ms(predicted["step_ms"][part]) for part in _PARTS),
        _signed(error["step_ms"]),
    ]


def _requests(size: int) -> str:
    return f"{_count(size, 'request')} in flight"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _ms(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _signed(error: float) -> str:
    return f"{100 * error:+.1f}"


def _size(error: float) -> str:
    return f"{100 * error:.1f} %"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _wrapped(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in wrap(text, WIDTH, subsequent_indent="  ")]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two spaces apart, or one; a policy's name that is still too long takes more lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    room = WIDTH - sum(widths[1:]) - gap * (len(widths) - 1)
    widths[0] = min(widths[0], max(room, 1))
    out = []
    for name, *rest in rows:
        first, *more = wrap(name, widths[0]) or [""]
        texts = zip([first, *rest], widths, strict=True)
        aligned = [f"{t:>{w}}" if at else f"{t:<{w}}" for at, (t, w) in enumerate(texts)]
        out += [(" " * gap).join(aligned).rstrip(), *more]
    return out


__all__ = ["lines", "markdown", "noise_of", "summarise_cells"]
