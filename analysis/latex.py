"""Comparisons as LaTeX: plain ``tabular`` environments that need no package."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.cells import BLANK, Cell, baseline_notes, block_cells, headings, rejected_notes
from analysis.compare import Block, Comparison
from analysis.metrics import SPEEDUP, Metric
from analysis.notes import notes, setting_title

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


def escape(text: str) -> str:
    """A text that LaTeX prints as it is; ? for what cannot be printed."""
    shown = (one if one.isprintable() or one == "\n" else "?" for one in text)
    return "".join(_SPECIAL.get(one, one) for one in shown)


def print_latex(comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> None:
    """One table per setting and load; what a setting rests on stands above it as comments."""
    print("\n".join(latex(comparisons, metrics)))


def latex(comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> list[str]:
    """Its lines."""
    lines: list[str] = []
    for comparison in comparisons:
        lines.append(_comment(setting_title(comparison)))
        lines += [_comment(f"{heading}: {text}") for heading, text in notes(comparison)]
        for block in comparison.blocks:
            lines += ["", _comment(block.load.title), *_tabular(block, metrics)]
        lines.append("")
    return lines


def _comment(text: str) -> str:
    return "% " + "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))


def _tabular(block: Block, metrics: Sequence[Metric]) -> list[str]:
    """Names left, numbers right, the best mean of a column in bold."""
    titles = headings(metrics)
    columns = "l" + "r" * (len(metrics) + 1) + "l"
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline"]
    lines += [_row(map(escape, titles)), r"\hline"]
    lines += [_row(map(_cell, cells)) for cells in block_cells(block, metrics)]
    lines.append(r"\hline")
    # What was not served is printed, since every number beside it leaves it out.
    lines += [_across(note, len(columns)) for note in rejected_notes(block)]
    lines.append(r"\end{tabular}")
    if any(metric.key == SPEEDUP for metric in metrics):
        lines += [_comment(note) for note in baseline_notes(block)]
    return lines


def _across(text: str, columns: int) -> str:
    return rf"\multicolumn{{{columns}}}{{l}}{{\footnotesize {escape(text)}}} \\"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.best else text


def _row(cells) -> str:
    return " & ".join(cells) + r" \\"
