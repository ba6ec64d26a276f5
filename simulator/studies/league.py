"""Playing many matches: those not in the store, in this process or in several."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from simulator.progress import Progress
from simulator.studies.contest.play import play
from simulator.studies.store import Store


class Players:
    """Who plays: this process, or `workers` of them, started when they are first needed.

    After an interruption matches under way are waited for and thrown away.
    """

    def __init__(self, workers: int, how: Callable[[Any], Any]) -> None:
        self._workers, self._how = workers, how
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def play(self, matches: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The key and the result of every match, as they finish."""
        if self._workers == 1 or (self._pool is None and len(matches) < 2):
            yield from ((key, self._how(match)) for key, match in matches.items())
            return
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._workers, get_context("spawn"), initializer=_ignore_interrupts
            )
        futures = {self._pool.submit(self._how, match): key for key, match in matches.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def play_all(
    matches: Mapping[str, tuple[Any, dict[str, Any]]],
    store: Store,
    workers: int,
    how: Callable[[Any], Any] | None = None,
) -> int:
    """Bring every match's result into the store; returns how many had to be played.

    Args:
        matches: by key; what each is, in words, beside it.
        how: from a match to its result; a tournament's `play` unless given.
    """
    missing = {key: match for key, (match, _) in matches.items() if key not in store}
    if not missing:
        return 0
    workers = min(workers, len(missing))
    with (
        Progress(len(missing), "simulations") as progress,
        Players(workers, how or play) as players,
    ):
        for finished, (key, result) in enumerate(players.play(missing), 1):
            store.add(key, matches[key][1], result)
            progress.update(finished)
    return len(missing)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group of processes; the first of them decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
