"""Tables of results, written one way everywhere: terminal, Markdown, CSV and LaTeX.

A `Table` holds what people read (headings and rows of text) and what programs read (records of raw
numbers). `emit` prints it, alone or as one of several parts of a page::

    table = Table(
        headings=["policy", "output\\ntokens/s"],
        rows=[["cast", Cell("812.4 ±3.1", best=True)], ["autoregressive", "501.0"]],
        records=[{"policy": "cast", "output_throughput": 812.41}, ...],
        caption="concurrency 4",
        notes=["autoregressive: 2 of 40 requests were rejected"],
        label="tab:concurrency4",
    )
    table.emit("table")                                     # to stdout
    emit([Title("gsm8k on h200"), table, Notes([("seeds", "0, 1")])], "latex")
    path.write_text(render([table], "markdown"))

What a format shows:

- ``table``: columns as wide as their words; in a narrow terminal the last of the columns in
  `Table.spare` are left out, and a line says so. The best cells are bold, or marked * in a pipe.
- ``markdown``: the caption is a heading of level 3, a title of level 2; the best cells are bold.
- ``csv``: the records of all tables, one header; no title, caption or note.
- ``latex``: a ``table`` with caption, label and notes, its rules by the package booktabs; titles
  and notes of the page are comments.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("table", "markdown", "csv", "latex")
BLANK = "–"  # in place of a value that does not exist
PIPED_WIDTH = 160  # characters of a line where the output is no terminal
_GAPS = 2  # characters at the sides of a table


@dataclass(frozen=True, slots=True)
class Cell:
    """A text of a table; `best`: of its column, and set off from the others."""

    text: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table with what is said about it.

    Attributes:
        headings: one a column; line breaks keep a column narrow in a terminal.
        rows: as many texts or cells each as there are headings.
        records: raw values by column name, in the units of the files; None is an empty field.
            Without any, CSV holds the rows' texts.
        columns: names of the CSV's columns; by default those of the first record.
        notes: sentences below the table.
        caption: one line above the table; empty: none.
        label: LaTeX's, as in ``tab:results``; empty: none.
        align: ``l`` or ``r`` for each column; by default the first is left, the others right.
        spare: indices of the columns that a narrow terminal may leave out, the last first.
        empty: sentence in place of a table without rows.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    records: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    notes: Sequence[str] = ()
    caption: str = ""
    label: str = ""
    align: str = ""
    spare: Sequence[int] = ()
    empty: str = ""

    @property
    def alignment(self) -> str:
        """``l`` or ``r`` for each column."""
        return self.align or "l" + "r" * (len(self.headings) - 1)

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, every text a cell."""
        return [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in self.rows]

    @property
    def marks(self) -> bool:
        """Whether any cell is the best of its column."""
        return any(cell.best for row in self.cells for cell in row)

    def without(self, columns: Sequence[int]) -> Table:
        """The table for people, without the columns of these indices."""
        kept = [at for at in range(len(self.headings)) if at not in columns]
        return replace(
            self,
            headings=[self.headings[at] for at in kept],
            rows=[[row[at] for at in kept] for row in self.rows],
            align="".join(self.alignment[at] for at in kept),
            spare=(),
        )

    def emit(self, form: str, out: TextIO | None = None) -> None:
        """Print the table alone; see `emit`."""
        emit([self], form, out)


@dataclass(frozen=True, slots=True)
class Title:
    """A heading above several tables."""

    text: str


@dataclass(frozen=True, slots=True)
class Notes:
    """(heading, text) of what several tables rest on."""

    facts: Sequence[tuple[str, str]]


Part = Title | Table | Notes


def emit(parts: Iterable[Part], form: str, out: TextIO | None = None) -> None:
    """Print the parts of a page, in one of `FORMATS`, to `out` or stdout."""
    out = out or sys.stdout
    if form == "table":
        _print(parts, out, None if out.isatty() else PIPED_WIDTH)
    else:
        out.write(render(parts, form))


def render(parts: Iterable[Part], form: str, width: int = PIPED_WIDTH) -> str:
    """The text of a page; `width`: characters of a line of the form ``table``."""
    if form == "table":
        file = io.StringIO()
        _print(parts, file, width)
        return file.getvalue()
    if form == "csv":
        return _csv([part for part in parts if isinstance(part, Table)])
    lines = {"markdown": _markdown, "latex": _latex}[form]
    return "".join(f"{line}\n" for part in parts for line in lines(part))


def _print(parts: Iterable[Part], out: TextIO, width: int | None) -> None:
    from rich.console import Console
    from rich.text import Text

    console, marks = Console(file=out, highlight=False, width=width), False
    for at, part in enumerate(parts):
        if isinstance(part, Title):
            console.print("\n" * min(at, 1), end="")
            console.print(Text(part.text, style="bold underline"), soft_wrap=True)
        elif isinstance(part, Notes):
            for heading, text in part.facts:
                console.print(Text.assemble((f"{heading:>10}  ", "dim"), text), soft_wrap=True)
        else:
            marks |= part.marks
            _print_table(part, console)
    if marks:
        mark = "bold" if console.is_terminal else "*"
        console.print(Text(f"{mark:>10}  best mean of its column", style="dim"))


def _print_table(table: Table, console: Console) -> None:
    from rich.text import Text

    if table.caption:
        console.print(Text(f"\n{table.caption}"), soft_wrap=True)
    # Of the spare columns the first is kept, and those without which no word is broken.
    fewer = (table.spare[len(table.spare) - count :] for count in range(len(table.spare)))
    fits = (lost for lost in fewer if _narrowest(table.without(lost)) <= console.width)
    lost = next(fits, table.spare[1:])
    console.print(_rich(table.without(lost), console) if table.rows else Text(table.empty))
    notes = list(table.notes)
    if lost:
        names = ", ".join(_line(table.headings[at]) for at in lost)
        notes.insert(0, f"not shown in {console.width} columns: {names} (Markdown has all)")
    for note in notes:
        console.print(Text(f"  {note}", style="italic"), soft_wrap=True)


def _rich(table: Table, console: Console):
    """Closer columns in a narrow terminal; a star for the best where bold cannot be seen."""
    from rich import box
    from rich import table as rich_table
    from rich.text import Text

    tight, starred = console.width < PIPED_WIDTH, table.marks and not console.is_terminal
    found = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if tight else 1))
    for at, (title, side) in enumerate(zip(table.headings, table.alignment, strict=True)):
        justify = "right" if side == "r" else "left"
        found.add_column(Text(title), justify=justify, no_wrap=at == 0, overflow="fold")
    best, other = (("*", "bold"), (" ", "")) if starred else (("", "bold"), ("", ""))
    for row in table.cells:
        styles = [best if cell.best else other for cell in row]
        cells = zip(row, styles, strict=True)
        found.add_row(*(Text(cell.text + end, style) for cell, (end, style) in cells))
    return found


def _narrowest(table: Table) -> int:
    """Characters of a line in which no word is broken; those of the first column stay together."""
    rows = [[cell.text for cell in row] for row in table.cells]
    widths = [
        max(len(word) for text in column for word in (text.split() or [""]))
        for column in zip(table.headings, *rows, strict=True)
    ]
    widths[0] = max((len(row[0]) for row in rows), default=widths[0])
    return sum(widths) + _GAPS + 2 * len(widths)


def _markdown(part: Part) -> list[str]:
    if isinstance(part, Title):
        return [f"## {markdown_text(part.text)}", ""]
    if isinstance(part, Notes):
        return [*(f"- {heading}: {markdown_text(text)}" for heading, text in part.facts), ""]
    lines = [f"### {markdown_text(part.caption)}", ""] if part.caption else []
    if part.rows:
        lines.append(markdown_line(part.headings))
        lines.append(markdown_line(["---:" if one == "r" else "---" for one in part.alignment]))
        lines += [markdown_line([_bold(cell, "**{}**") for cell in row]) for row in part.cells]
    else:
        lines.append(markdown_text(part.empty))
    return [*lines, "", *(line for note in part.notes for line in (markdown_text(note), ""))]


def _line(text: str) -> str:
    return " ".join(text.split())


def markdown_line(cells: Iterable[str]) -> str:
    """A row of a table; a text with a bar in it stays in its cell."""
    return "| " + " | ".join(markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"


def markdown_text(text: str) -> str:
    """A text on one line that is no markup of HTML."""
    return _line(text).replace("&", "&amp;").replace("<", "&lt;")


def _bold(cell: Cell, form: str) -> str:
    return form.format(cell.text) if cell.best else cell.text


def _csv(tables: Sequence[Table]) -> str:
    records = [record for table in tables for record in _records(table)]
    names = next((table.columns for table in tables if table.columns), ())
    names = names or list(records[0] if records else map(_line, tables[0].headings))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _records(table: Table) -> Iterable[Mapping[str, Any]]:
    if table.records or table.columns:
        return table.records
    names = [_line(one) for one in table.headings]
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in table.cells]


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "[": "{[}",  # at the start of a row it would be an option of the line break before it
    "]": "{]}",
    "*": "{*}",  # likewise
    BLANK: "--",
    "\n": " ",
}


def latex_text(text: str) -> str:
    """A text that LaTeX prints as it is; ? for what cannot be printed."""
    shown = (one if one.isprintable() or one == "\n" else "?" for one in text)
    return "".join(_SPECIAL.get(one, one) for one in shown)


def _latex(part: Part) -> list[str]:
    if isinstance(part, Title):
        return [_comment(part.text)]
    if isinstance(part, Notes):
        return [*(_comment(f"{heading}: {text}") for heading, text in part.facts), ""]
    lines = ["", r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{latex_text(part.caption)}}}"] if part.caption else []
    lines += [rf"\label{{{part.label}}}"] if part.label else []
    lines += [rf"\begin{{tabular}}{{{part.alignment}}}", r"\toprule"]
    lines += [_latex_row(map(latex_text, part.headings)), r"\midrule"]
    lines += [
        _latex_row(_bold(Cell(latex_text(cell.text), cell.best), r"\textbf{{{}}}") for cell in row)
        for row in part.cells
    ]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par{{\footnotesize {latex_text(note)}}}" for note in part.notes]
    return [*lines, r"\end{table}"]


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _comment(text: str) -> str:
    return "% " + "".join(one if one.isprintable() else "?" for one in _line(text))
