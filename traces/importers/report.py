"""What an import says: what was read, what the source lacks, what was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traces.importers.files import Source


@dataclass(frozen=True, slots=True)
class Report:
    """Lines for the user; `lacks` is what the written result carries, word for word."""

    read: tuple[str, ...]
    lacks: tuple[str, ...]
    written: tuple[Path, ...]

    def lines(self) -> list[str]:
        return [
            *(f"read {line}" for line in self.read),
            *(f"lacks: {line}" for line in self.lacks),
            *(f"wrote {path}" for path in self.written),
        ]


def read_line(source: Source, what: str, unused: Sequence[str] = ()) -> str:
    """A file, what was found in it, and the keys that were not used."""
    line = f"{source.path}: {what}; sha256 {source.sha256[:12]}"
    if not unused:
        return line
    names = ", ".join(sorted(unused)[:6]) + (", ..." if len(unused) > 6 else "")
    return f"{line}; keys not used: {names}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """ "1 round", "2 rounds"."""
    return f"{number} {one if number == 1 else many or one + 's'}"
