"""What is fuzzed, and what one case came to."""

from __future__ import annotations

import io
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.damage import pick
from tests.fuzz.formats import TRAP, file_damaged
from traces.common.errors import InputError

MOST_S = 5.0  # of computing, in one case
MOST_BYTES = 2 << 30  # of the process's data
NO_FILE = 0.02  # share of cases in which the file is none
REFUSED, ACCEPTED, SAME, FAULT = "refused", "accepted", "unchanged", "FAULT"


class Hang(BaseException):
    """A case took too long; no `except Exception` swallows it."""


@contextmanager
def alarm(seconds: float = MOST_S) -> Iterator[None]:
    """Raise Hang in the block once it has computed for `seconds`; of the main thread alone.

    Others may use the machine: what counts is this process's time. One that waits, for whatever,
    is left to who started it.
    """

    def ring(number: int, frame: object) -> None:
        raise Hang(f"{seconds:g} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory(most: int = MOST_BYTES) -> None:
    """Let this process hold no more than `most` bytes of data; reserved code does not count."""
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@dataclass(frozen=True, slots=True)
class Target:
    """Files in a folder, what may be damaged in them, and who reads them.

    make: writes the good files into an empty folder. damage: patterns of the paths of files that
    are damaged; others stay good. read: what a user would have from the folder; raises InputError,
    or ends a command with status 2 (`command`). check: asserts what must hold of what was read from
    a damaged folder, given what the good one gave.
    """

    name: str
    make: Callable[[Path], None]
    damage: tuple[str, ...]
    read: Callable[[Path], Any]
    check: Callable[[Path, Any, Any], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text`: the refusal, or what is wrong."""

    kind: str
    text: str = ""


@dataclass(slots=True)
class Bench:
    """A target with its good files in memory and a folder to play in."""

    target: Target
    folder: Path
    files: dict[str, bytes] = field(default_factory=dict)
    good: Any = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.target.make(self.folder)
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        self.files = {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}
        self.good = quietly(self.target.read, self.folder)
        self.target.check(self.folder, self.good, self.good)
        self.restore()

    def restore(self) -> None:
        """The good files, and no others."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            name = str(path.relative_to(self.folder))
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif name not in self.files or path.is_symlink():
                path.unlink(missing_ok=True)
        for name, data in self.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != data:
                path.unlink(missing_ok=True)  # it may be mapped
                path.write_bytes(data)

    def play(self, rng: np.random.Generator) -> Outcome:
        """One case."""
        names = [n for n in self.files if any(fnmatch(n, one) for one in self.target.damage)]
        name = pick(names, rng)
        data = file_damaged(name, self.files[name], rng)
        if rng.random() < NO_FILE:
            path = self.folder / name
            path.unlink()
            kind = pick(("nothing", "folder", "nowhere", path.name), rng)  # links to the last two
            if kind == "folder":
                path.mkdir()
            elif kind != "nothing":
                path.symlink_to(kind)
        elif data == self.files[name]:
            return Outcome(SAME)
        else:
            (self.folder / name).unlink()  # what was read before is mapped
            (self.folder / name).write_bytes(data)
        before = set(self.folder.rglob("*"))
        try:
            with chdir(self.folder):
                outcome = self._read(before)
            ran = (self.folder / TRAP).exists()
            return Outcome(FAULT, "a file ran code") if ran else outcome
        finally:
            self.restore()

    def _read(self, before: set[Path]) -> Outcome:
        try:
            with alarm():
                value = quietly(self.target.read, self.folder)
                self.target.check(self.folder, value, self.good)
        except InputError as error:
            return _refusal(error, set(self.folder.rglob("*")) - before)
        except AssertionError as error:
            return Outcome(FAULT, f"accepted, but {_place(error)}")
        except Hang as hang:
            return Outcome(FAULT, f"hangs for {hang}: {_place(hang)}")
        except Exception as error:
            return Outcome(FAULT, f"{type(error).__name__}: {str(error)[:200]}: {_place(error)}")
        return Outcome(ACCEPTED)


def _refusal(error: InputError, left: set[Path]) -> Outcome:
    text = str(error)
    if "\n" in text or not text.strip():
        return Outcome(FAULT, f"refused in {text.count(chr(10)) + 1} lines: {text[:200]!r}")
    if left:
        return Outcome(FAULT, f"refused, and left {sorted(map(str, left))}")
    return Outcome(REFUSED, text)


def _place(error: BaseException) -> str:
    """The last lines of the code that it went through, innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.line}" for frame in frames]
    return " <- ".join(reversed(places))


def of_file(read: Callable[[Path], Any], name: str) -> Callable[[Path], Any]:
    """`read` of a folder's file, for a target."""
    return lambda folder: read(folder / name)


def quietly(read: Callable[[Path], Any], folder: Path) -> Any:
    """What `read` returns; warnings are none of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(folder)


def command(main: Callable[[list[str]], int], *words: str | Path) -> str:
    """What a command prints; InputError with its one line where its exit status is 2.

    Its output takes what UTF-8 takes, no more, as a pipe does.
    """
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
    said = err.buffer.getvalue().decode()
    if status == 2:
        lines = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, f"status 2 with {said!r}"
        assert said.splitlines()[-1] == lines[0], f"status 2 with {said!r}"
        raise InputError(lines[0])
    assert status == 0, f"status {status}"
    return out.buffer.getvalue().decode()
