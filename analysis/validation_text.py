"""A validation in words: its table in three formats, and the caption of its figure."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.cells import BLANK
from analysis.tables import PIPED_WIDTH, markdown_line
from analysis.validation import Cell, Validation
from analysis.validation_ratios import ahead

_TITLES = (
    "requests\nin flight",
    "policy",
    "rounds\nas replayed",
    "live\n(tokens/s)",
    "predicted\n(tokens/s)",
    "error\n(%)",
    "noise\n(± %)",
    "TPOT p50\nerror (%)",
    "round\nerror (%)",
)


def print_table(validation: Validation) -> None:
    """A rich table and what it rests on."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(Text(_title(validation), style="bold underline"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for at, title in enumerate(_TITLES):
        table.add_column(title, justify="left" if at in (1, 2) else "right", no_wrap=at == 1)
    for cell in validation.cells:
        table.add_row(*map(Text, _row(cell)))
    console.print(table)
    for heading, text in facts(validation):
        console.print(Text.assemble((f"{heading:>10}  ", "dim"), text), soft_wrap=True)


def print_markdown(validation: Validation) -> None:
    """The same, as Markdown."""
    print(f"## {_title(validation)}\n")
    print(markdown_line([title.replace("\n", " ") for title in _TITLES]))
    print(markdown_line(["---:", "---", "---", *["---:"] * (len(_TITLES) - 3)]))
    for cell in validation.cells:
        print(markdown_line(_row(cell)))
    print()
    for heading, text in facts(validation):
        print(f"- {heading}: {text}")


def print_csv(validation: Validation) -> None:
    """One row per cell, in the units of the file; an empty field is a value that does not exist."""
    rows = [_record(cell) for cell in validation.cells]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


FORMATS: dict[str, Callable[[Validation], None]] = {
    "table": print_table,
    "markdown": print_markdown,
    "csv": print_csv,
}


def _title(validation: Validation) -> str:
    data = validation.data
    return f"{data['pair']} on {data['hardware']}: predicted against live"


def _row(cell: Cell) -> list[str]:
    return [
        str(cell.concurrency),
        cell.policy,
        f"no: {_count(cell.differing, 'request')}" if cell.differing else "yes",
        f"{cell.throughput:.1f}",
        f"{cell.predicted:.1f}",
        f"{100 * cell.error['output_throughput']:+.1f}",
        BLANK if cell.noise is None else f"{100 * cell.noise:.1f}",
        f"{100 * cell.error['median_tpot_ms']:+.1f}",
        f"{100 * cell.error['step_ms']:+.1f}",
    ]


def _record(cell: Cell) -> dict:
    record = {
        "max_concurrency": cell.concurrency,
        "policy": cell.policy,
        "requests_differing": cell.differing,
        "output_throughput": cell.throughput,
        "output_throughput_predicted": cell.predicted,
        "noise": cell.noise,
        "median_tpot_ms": cell.tpot_ms[0],
        "median_tpot_ms_predicted": cell.tpot_ms[1],
    }
    for part, (measured, predicted) in cell.parts_ms.items():
        record |= {f"{part}_ms": measured, f"{part}_ms_predicted": predicted}
    return record | {f"{metric}_error": error for metric, error in cell.error.items()}


def facts(validation: Validation) -> list[tuple[str, str]]:
    """Heading and text of what was measured, what was predicted, and how far they are apart."""
    data = validation.data
    return [
        ("pair", f"{data['pair']}, drafter {data['drafter']}, temperature {data['temperature']:g}"),
        (
            "live",
            f"{data['hardware']} ({data['device']}, {data['dtype']}), {data['packing']} packing; "
            f"{_count(data['prompts'], 'prompt')}, {_count(data['repeats'], 'repeat')}, "
            f"seed {data['seed']}",
        ),
        ("predicted", f"latency profile {data['profile']}; {_host(data)}"),
        ("error", _errors(data["summary"])),
        ("order", _order(data)),
        ("noise", _noise(data)),
        ("rounds", _rounds(validation.cells)),
        *_fastest(validation),
    ]


def _fastest(validation: Validation) -> list[tuple[str, str]]:
    found = ahead(validation)
    if found is None:
        return []
    each = "; ".join(f"at {load} {ratio}" for load, ratio in found.at.items())
    return [
        ("fastest", f"{found.policy} over all loads: {'; '.join(map(str, found.over_all))}"),
        ("by load", f"{found.policy} against the fastest other one: {each}"),
    ]


def _host(data: dict) -> str:
    terms = [f"{name} {value * 1e6:.4g} us" for name, value in data["host"].items() if value]
    fitted = data["fitted_on"]
    return (
        f"host terms {', '.join(terms) or 'all 0'}, fitted on "
        f"{_count(fitted['prompts'], 'prompt')} ({_count(fitted['runs'], 'run')})"
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _errors(summary: dict) -> str:
    names = {"output_throughput": "throughput", "median_tpot_ms": "TPOT p50", "step_ms": "round"}
    return "; ".join(
        f"{name} median {100 * summary[metric]['median_abs_error']:.1f} %, worst "
        f"{100 * summary[metric]['worst_abs_error']:.1f} %"
        for metric, name in names.items()
    )


def _order(data: dict) -> str:
    found = data["summary"]["inversions"]
    named = "; ".join(
        f"{one['pair'][0]} over {one['pair'][1]} at {one['concurrency']}: live "
        f"{one['measured_ratio']:.3f}, predicted {one['predicted_ratio']:.3f}"
        for one in found
    )
    ranks = ", ".join(
        f"{BLANK if rho is None else format(rho, '.2f')} at {size}"
        for size, rho in data["summary"]["rank_correlation"].items()
    )
    counted = "unknown from one repeat" if data["repeats"] < 2 else f"{len(found) or 'none'}"
    return (
        f"inversions beyond noise: {counted}{f' ({named})' if named else ''}; "
        f"rank correlation {ranks or BLANK}"
    )


def _noise(data: dict) -> str:
    floor = data["summary"]["noise_floor"]
    if floor is None:
        return "unknown from one repeat"
    return (
        f"95 % Student-t intervals of the mean over {data['repeats']} repeats (A/A); median "
        f"half-width {100 * floor:.1f} % of throughput"
    )


def _rounds(cells: Sequence[Cell]) -> str:
    other = [f"{cell.policy} at {cell.concurrency}" for cell in cells if cell.differing]
    if not other:
        return "every live round as the simulator replays it"
    return f"not all as the simulator replays them: {', '.join(other)}"


SHOWN = (
    "Output throughput of the whole server (tokens/s), live against predicted (solid line: "
    "equal, band: within 5 %); error of the prediction by policy; mean time of a round (ms)."
)
MARKS = (
    "Colour is the policy, marker the number of requests in flight. Grey boxes and horizontal "
    "bars: noise of the live runs.",
    "Rounds: left bar live (greys), right bar predicted (violets); the dot below: policy.",
)


def caption(validation: Validation, command: str) -> str:
    """The text beside the figure."""
    found = (f"{heading}: {text}" for heading, text in facts(validation))
    lines = [SHOWN, *MARKS, "", *found]
    return "\n".join([*lines, f"command: {command}", ""])
