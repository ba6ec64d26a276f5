"""Results of many runs, each played once: kept in a file as they finish, played where missing."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from simulator.progress import Progress
from simulator.results.printing import short_path
from simulator.studies.runs import Result, play
from traces.common.errors import InputError
from traces.common.json import loads

REFUSED = "refused"


class Store(dict[str, Result | str]):
    """Results by the key of what was played: those of `TASK.jsonl`, and what is added to it.

    A result is a `Result`, or the reason in one line why a policy refused. As a context it says
    after an interruption where results are kept and how to go on.
    """

    def __init__(self, folder: Path, task: str) -> None:
        """Read the file in `folder`, if there is one; a line cut short by a crash is dropped.

        Raises:
            InputError: a whole line that is not one of ours.
        """
        super().__init__()
        self.path, self.task, self._begun = folder / f"{task}.jsonl", task, time.monotonic()
        if self.path.is_file():
            self._read()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            kept, folder = short_path(self.path), short_path(self.path.parent)
            print(f"kept in {kept}; to go on: hydra.run.dir={folder}", file=sys.stderr)

    def add(self, key: str, what: Mapping[str, Any], result: Result | str) -> None:
        """Keep a result, in the file before anywhere else; `what` says in words whose it is."""
        outcome = {REFUSED: result} if isinstance(result, str) else asdict(result)
        line = json.dumps({"key": key, **what, "result": outcome}, allow_nan=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self[key] = result

    def say_done(self, count: int, what: str, path: Path) -> None:
        """The last line of a study."""
        seconds = time.monotonic() - self._begun
        print(f"{count} {what} in {seconds:.0f} s, results in {short_path(path)}", flush=True)

    def _read(self) -> None:
        text = self.path.read_bytes()
        whole = text.rfind(b"\n") + 1
        for number, line in enumerate(text[:whole].splitlines(), 1):
            try:
                data = loads(line.decode("utf-8"))
                key, result = data["key"], data["result"]
                if not isinstance(key, str):
                    raise TypeError("no key")
                refused = set(result) == {REFUSED}
                self[key] = str(result[REFUSED]) if refused else _schema().validate_python(result)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{self.path}: line {number} is no result of task={self.task}; accepted: the "
                    "file as it was written, or another hydra.run.dir"
                ) from error
        if whole < len(text):
            with self.path.open("r+b") as file:
                file.truncate(whole)


@cache
def _schema():
    from pydantic import TypeAdapter

    return TypeAdapter(Result)


class Players:
    """Who plays: this process, or `workers` of them, started when they are first needed.

    After an interruption, which reaches the whole group of processes and is decided on by the
    first of them, matches under way are waited for and thrown away.
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
                self._workers,
                get_context("spawn"),
                initializer=signal.signal,
                initargs=(signal.SIGINT, signal.SIG_IGN),
            )
        futures = {self._pool.submit(self._how, match): key for key, match in matches.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def play_all(
    runs: Mapping[str, tuple[Any, Mapping[str, Any]]], store: Store, workers: int = 1
) -> int:
    """Bring every run's result into the store; returns how many had to be played.

    Args:
        runs: by key; what each is, in words, beside it.
    """
    missing = {key: run for key, (run, _) in runs.items() if key not in store}
    if not missing:
        return 0
    workers = min(workers, len(missing))
    with Progress(len(missing), "simulations") as bar, Players(workers, play) as players:
        for finished, (key, result) in enumerate(players.play(missing), 1):
            store.add(key, runs[key][1], result)
            bar.update(finished)
    return len(missing)
