"""Progress of slow work, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

PATIENCE_S = 1.0  # shorter work shows no progress
_shown: list[Any] = []  # the bars on the terminal: work within work is one more line of them
_hidden = False  # in a process that shares its terminal with others


@contextmanager
def hidden() -> Iterator[None]:
    """Within the block no work shows its progress."""
    global _hidden
    before, _hidden = _hidden, True
    try:
        yield
    finally:
        _hidden = before


class Progress:
    """A bar on a terminal, for work that takes longer than a second; nothing elsewhere.

    Inside other work that shows its progress it is a line below that.
    """

    def __init__(self, total: int, what: str) -> None:
        self._what, self._total, self._bar, self._task = what, total, None, None
        self._owner = False
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def update(self, finished: int, total: int | None = None, note: str = "") -> None:
        """Tell how much of the total is done; a new total, and a note on it, if there are any."""
        self._total = self._total if total is None else total
        what = f"{self._what} ({note})" if note else self._what
        if self._bar is None:
            slow = time.monotonic() - self._begun > PATIENCE_S
            if not slow or _hidden or not sys.stderr.isatty():
                return
            self._owner = not _shown
            if self._owner:
                _shown.append(_bars())
                _shown[0].start()
            self._bar = _shown[0]
            self._task = self._bar.add_task(what, total=self._total)
        self._bar.update(self._task, completed=finished, total=self._total, description=what)

    def __exit__(self, *_: object) -> None:
        if self._bar is None:
            return
        if self._owner:
            self._bar.stop()
            _shown.clear()
        else:
            self._bar.remove_task(self._task)


def _bars():
    """Bars with the time left, on stderr, which keep clear of lines that are printed meanwhile."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
    )
    return progress.Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else the lines would follow the bar to stderr
        speed_estimate_period=float("inf"),  # runs are few, and may take minutes each
    )
