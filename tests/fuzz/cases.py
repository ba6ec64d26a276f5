"""What is fuzzed, and what one case came to."""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.guards import Hang, alarm, inside
from traces.common.errors import InputError

Damage = Callable[[bytes, np.random.Generator], bytes]
TRAP = "trapped"  # what code in a file would make, in the working folder
NO_FILE = 0.02  # share of cases in which the file is none
REFUSED, ACCEPTED, SAME, FAULT = "refused", "accepted", "unchanged", "FAULT"


@dataclass(frozen=True, slots=True)
class Target:
    """Files in a folder, what may be damaged in them, and who reads them.

    make: writes the good files into an empty folder. damage: by a pattern of the file's path, the
    first that fits; other files stay good. read: what a user would have from the folder; raises
    InputError, or ends a command with status 2 (`command`). check: asserts what must hold of what
    was read from a damaged folder, given what the good one gave.
    """

    name: str
    make: Callable[[Path], None]
    damage: Mapping[str, Damage]
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

    def damaged_file(self, rng: np.random.Generator) -> tuple[str, bytes]:
        """One file's name and damaged content."""
        kinds = {
            name: next(d for pattern, d in self.target.damage.items() if fnmatch(name, pattern))
            for name in self.files
            if any(fnmatch(name, pattern) for pattern in self.target.damage)
        }
        name = list(kinds)[int(rng.integers(len(kinds)))]
        return name, kinds[name](self.files[name], rng)

    def play(self, rng: np.random.Generator) -> Outcome:
        """One case."""
        name, data = self.damaged_file(rng)
        if rng.random() < NO_FILE:
            put_no_file(self.folder / name, rng)
        elif data == self.files[name]:
            return Outcome(SAME)
        else:
            (self.folder / name).unlink()  # what was read before is mapped
            (self.folder / name).write_bytes(data)
        before = set(self.folder.rglob("*"))
        try:
            with inside(self.folder):
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


def put_no_file(path: Path, rng: np.random.Generator) -> None:
    """Nothing in the file's place, a folder, or a link that leads nowhere or to itself."""
    path.unlink()
    kind = int(rng.integers(4))
    if kind == 0:
        path.mkdir()
    elif kind < 3:
        path.symlink_to(("nowhere", path.name)[kind - 1])


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
