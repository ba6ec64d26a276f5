"""What an import says: what was read, what the source lacks, what was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from traces.importers.files import InputFile
from traces.importers.node import cut

MOST_KEYS = 40  # in a line


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Lines for the user; `lacks` is what the written result carries, word for word.

    warnings: about what was taken as it is and may be a mistake; said on stderr.
    """

    read: tuple[str, ...]
    lacks: tuple[str, ...]
    written: tuple[Path, ...]
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        return [
            *(f"read {line}" for line in self.read),
            *(f"lacks: {line}" for line in self.lacks),
            *(f"wrote {path}" for path in self.written),
        ]


def read_line(source: InputFile, what: str, unused: Iterable[str] = ()) -> str:
    """A file, what was found in it, and the keys that were not used."""
    line = f"{source.path}: {what}; sha256 {source.sha256[:12]}"
    names = sorted(set(unused))
    if not names:
        return line
    more = f" and {len(names) - MOST_KEYS} more" if len(names) > MOST_KEYS else ""
    return f"{line}; keys not used: {', '.join(map(cut, names[:MOST_KEYS]))}{more}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """ "1 round", "2 rounds"."""
    return f"{number} {one if number == 1 else many or one + 's'}"
