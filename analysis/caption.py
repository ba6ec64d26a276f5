"""The text beside a figure: what it shows, what it rests on, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.compare import Comparison
from analysis.notes import notes

_NOT_DRAWN = ("TTFT", "speedup")  # notes on columns of the table


def caption(sentence: str, comparison: Comparison, command: str, remarks: Sequence[str]) -> str:
    """A caption of a few lines.

    Args:
        sentence: what the figure shows.
        comparison: the runs behind it.
        command: the command line that draws it.
        remarks: how to read its marks.
    """
    facts = [f"{head}: {text}" for head, text in notes(comparison) if head not in _NOT_DRAWN]
    return "\n".join([sentence, *remarks, "", *facts, f"command: {command}", ""])
