"""Watching runs that other processes write: each is told of when its folder is complete."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from simulator.sweep.plan import Planned
from simulator.terminal import print_run
from traces.pipes import silence_output
from traces.strict_json import loads

PERIOD_S = 0.3
SHARE = 0.05  # of the time at most goes into looking


class Watch:
    """While it is entered, a thread looks for finished runs; every run is found once.

    Args:
        found: called with each run.
        out: where its line goes.
    """

    def __init__(self, runs: Sequence[Planned], found: Callable[[Planned], None], out) -> None:
        self._open = {i: run for i, run in enumerate(runs) if run.config_hash is not None}
        self.seen: set[int] = set()  # positions in `runs`
        self._found, self._out = found, out
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.reader_left = False  # nobody reads our output any more

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _look_on(self) -> None:
        pause_s = PERIOD_S
        while not self._stop.wait(pause_s):
            begun = time.monotonic()
            self._look()
            pause_s = max(PERIOD_S, (time.monotonic() - begun) / SHARE)

    def _look(self) -> None:
        for index, run in list(self._open.items()):
            summary = _summary(run)
            if summary is not None:
                del self._open[index]
                self.seen.add(index)
                self._found(run)
                self._tell(run, summary)

    def _tell(self, run: Planned, summary: dict[str, Any]) -> None:
        if self.reader_left:
            return
        try:
            print_run(summary, run.folder, run.name, self._out)
        except BrokenPipeError:
            self.reader_left = True
            silence_output()
            _thread.interrupt_main()


def _summary(run: Planned) -> dict[str, Any] | None:
    """Of the finished run; None where there is none yet, or another configuration's."""
    from simulator.results import SUMMARY

    try:
        summary = loads((run.folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = isinstance(summary, dict) and summary.get("config_hash") == run.config_hash
    return summary if found else None
