"""Names of jobs, and of their folders."""

from __future__ import annotations

import hashlib
import re

from omegaconf import DictConfig, OmegaConf

LONGEST = 200  # characters of a job's folder name


def folder_name(overrides: str) -> str:
    """A job's folder from its overrides: no separators or quotes, and a length any disk takes."""
    name = re.sub(r"[^A-Za-z0-9=,._+-]+", "_", overrides) or "default"
    if name in (overrides, "default") and len(name) <= LONGEST:
        return name
    # A changed or cut name could be another job's as well: the hash keeps them apart.
    return f"{name[:LONGEST]}-{hashlib.sha256(overrides.encode()).hexdigest()[:12]}"


def job_name(hydra: DictConfig) -> str:
    """What its line on the terminal calls a job: its overrides, as they were given."""
    return " ".join(OmegaConf.to_container(hydra.overrides.task, resolve=False))


# Of conf/config.yaml. Every process that composes a job imports this module.
OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
