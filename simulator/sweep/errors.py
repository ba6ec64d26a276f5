"""Failures that cross from the process of a job to the one that started it."""

from __future__ import annotations

REFUSED = 2  # exit status of bad input
CRASHED = 1


class JobFailed(Exception):
    """A job of a sweep that ended without its results; what to print is its only argument.

    Exceptions of other kinds may not survive the way from one process to another.
    """

    status = REFUSED

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def shown(self, name: str) -> str:
        """For the terminal, with the job's overrides."""
        return f"error: {name}: {self.text}"


class JobCrashed(JobFailed):
    """A fault of ours; its argument is a traceback."""

    status = CRASHED

    def shown(self, name: str) -> str:
        return f"{self.text.rstrip()}\nerror: {name}: see above"


class JobLost(JobFailed):
    """A job whose process ended without an answer."""

    status = CRASHED
