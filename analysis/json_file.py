"""Reading a JSON file whose faults are told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.strict_json import loads


def read_json(path: Path, expected: str) -> Any:
    """The file's content; InputError naming the file and what was `expected` in it."""
    try:
        return loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: unreadable ({error.strerror})") from error
    except ValueError as error:  # JSON and UTF-8 alike
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not JSON ({reason}), expected {expected}") from error
