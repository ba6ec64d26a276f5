"""What a command line stands for, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from simulator.cli.overrides import normalised
from simulator.cli.survey import opened, parse, planned
from simulator.studies.options import CONF


def composed(name: str, *overrides: str) -> dict[str, Any]:
    """What Hydra composes of a file of conf/, as plain data."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose(name, list(overrides)), resolve=True)


def composed_jobs(words: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations of its jobs, as plain data; of a large sweep or a search, a sample."""
    with opened(parse(normalised(words))) as composer:
        return [composer.settings(job)[0] for _, job in planned(composer).sample()]


def job_overrides(words: Sequence[str]) -> list[list[str]]:
    """The overrides of each of its jobs."""
    with opened(parse(normalised(words))) as composer:
        return planned(composer).jobs
