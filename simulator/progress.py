"""Progress of slow work, on a terminal only."""

from __future__ import annotations

import sys
import time
from typing import Self

PATIENCE_S = 1.0  # shorter work shows no progress


class Progress:
    """A bar on a terminal, for work that takes longer than a second; nothing elsewhere."""

    def __init__(self, total: int, what: str) -> None:
        self._what, self._total, self._bar, self._task = what, total, None, None
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def update(self, finished: int) -> None:
        """Tell how much of the total is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=finished)
        elif sys.stderr.isatty() and time.monotonic() - self._begun > PATIENCE_S:
            self._show(finished)

    def _show(self, finished: int) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        self._bar = Bar(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=self._total, completed=finished)
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
