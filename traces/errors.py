"""The one error that bad input raises anywhere in the project."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: one line naming the file or key, the value, and what is accepted.

    Command lines print it as ``error: ...`` on stderr and exit with status 2.
    """
