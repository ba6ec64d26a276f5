"""The one error that bad input raises anywhere in the project."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: one line naming the file or key, the value, and what is accepted.

    Command lines print it as ``error: ...`` on stderr and exit with status 2. Names and values
    come from files: what no line holds is shown as a space or escaped, so that it stays one.
    """

    def __init__(self, message: object = "") -> None:
        text = str(message)
        super().__init__(text if text.isprintable() else _one_line(text))


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)
