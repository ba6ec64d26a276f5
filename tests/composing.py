"""What a command line stands for, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.cli.overrides import normalised
from simulator.cli.survey import opened, parse, planned


def composed_jobs(words: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations of its jobs, as plain data; of a large sweep or a search, a sample."""
    with opened(parse(normalised(words))) as composer:
        return [composer.settings(job)[0] for _, job in planned(composer).sample()]


def job_overrides(words: Sequence[str]) -> list[list[str]]:
    """The overrides of each of its jobs."""
    with opened(parse(normalised(words))) as composer:
        return planned(composer).jobs
