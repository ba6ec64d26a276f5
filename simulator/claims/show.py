"""What the check prints: a table for each claim, then a line for each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.claims.verdict import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    Cell,
    Claim,
    Row,
    counted,
    overall,
)

WIDTH = 160  # of output that is no terminal
SIGNS = {CONFIRMED: "+", REFUTED: "-", UNDECIDED: " "}


def print_claims(found: Sequence[tuple[Claim, Sequence[Row]]]) -> None:
    """Ratios with the favoured side on top; 95 % intervals over prompts."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    for claim, rows in found:
        console.print(Text(f"\n{claim.name}. {claim.statement}"), style="bold")
        console.print(Text(claim.ratio))
        console.print(_rows(claim, rows))
    cells = [cell for _, rows in found for row in rows for cell in row.cells]
    console.print(_legend(cells), style="dim")
    console.print(_verdicts(found))


def _rows(claim: Claim, rows: Sequence[Row]) -> Table:
    names = {"recording": "recording", "profile": "profile", "setting": ""}
    shown = [key for key in names if any(getattr(row.where, key) for row in rows)]
    columns = list(dict.fromkeys(cell.at for row in rows for cell in row.cells))
    table = Table(*(names[key] for key in shown), box=None, pad_edge=False)
    for at in columns:
        table.add_column(at, justify="right", no_wrap=True)
    for heading in ("mean", "95 % interval", "verdict"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        place = [getattr(row.where, key) for key in shown]
        cells = {cell.at: cell for cell in row.cells}
        ratios = [_ratio(cells[at]) if at in cells else "" for at in columns]
        mean = row.ratio
        span = "-" if mean.low is None else f"{mean.low:.3f} to {mean.high:.3f}"
        table.add_row(*place, *ratios, f"{mean.value:.3f}", span, row.verdict)
    return table


def _ratio(cell: Cell) -> str:
    sign = "=" if cell.same else SIGNS[cell.verdict]
    return f"{cell.ratio.value:.3f}{sign}{'m' if cell.beyond_table else ' '}"


def _legend(cells: Sequence[Cell]) -> str:
    text = (
        "\n+ and -: the 95 % interval over prompts is above or below 1; =: both did the same; mean:"
        " geometric, and judged (claim 1: every cell is)"
    )
    if any(cell.beyond_table for cell in cells):
        text += "; m: steps of either lie beyond the measured table"
    return text


def _verdicts(found: Sequence[tuple[Claim, Sequence[Row]]]) -> Table:
    table = Table("claim", "", "verdict", "rows", box=None, pad_edge=False)
    for kind in (CONFIRMED, REFUTED, UNDECIDED):
        table.add_column(kind, justify="right")
    for claim, rows in found:
        count = counted(rows)
        kinds = (str(count[kind]) for kind in (CONFIRMED, REFUTED, UNDECIDED))
        table.add_row(claim.name, claim.statement, overall(rows), str(len(rows)), *kinds)
    return table
