"""Playing many matches: those not in the store, in this process or in several."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from simulator.progress import Progress
from simulator.tournament.play import Match, Result, play
from simulator.tournament.store import Store


def play_all(
    matches: Mapping[str, tuple[Match, dict[str, Any]]], store: Store, workers: int
) -> int:
    """Bring every match's result into the store; returns how many had to be played.

    matches: by key; what each is, in words, beside it.
    """
    missing = {key: match for key, (match, _) in matches.items() if key not in store}
    if not missing:
        return 0
    with Progress(len(missing), "simulations") as progress:
        for finished, (key, result) in enumerate(_played(missing, workers), 1):
            store.add(key, matches[key][1], result)
            progress.update(finished)
    return len(missing)


def _played(missing: Mapping[str, Match], workers: int) -> Iterable[tuple[str, Result | str]]:
    if workers == 1 or len(missing) == 1:
        return ((key, play(match)) for key, match in missing.items())
    return _in_processes(missing, workers)


def _in_processes(missing: Mapping[str, Match], workers: int) -> Iterator[tuple[str, Result | str]]:
    """As they finish; after an interruption those under way are waited for and thrown away."""
    pool = ProcessPoolExecutor(
        min(workers, len(missing)), get_context("spawn"), initializer=_ignore_interrupts
    )
    try:
        futures = {pool.submit(play, match): key for key, match in missing.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group of processes; the first of them decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
