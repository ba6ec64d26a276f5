"""Names of jobs, and of their folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from omegaconf import DictConfig, OmegaConf

from simulator.sweep.objective import KEYS
from simulator.words import FILES

DEFAULT = "default"  # a job without overrides
LONGEST = 200  # characters of a job's folder name


def folder_name(overrides: str) -> str:
    """A job's folder from its overrides: no separators or quotes, and a length any disk takes."""
    name = re.sub(r"[^A-Za-z0-9=,._+-]+", "_", overrides) or DEFAULT
    if name in (overrides, DEFAULT) and len(name) <= LONGEST:
        return name
    # A changed or cut name could be another job's as well: the hash keeps them apart.
    return f"{name[:LONGEST]}-{hashlib.sha256(overrides.encode()).hexdigest()[:12]}"


def job_name(overrides: Iterable[str]) -> str:
    """What its line on the terminal calls a job: its overrides, the search's own left out.

    Files in place of a group's option are shown as they are typed; without any: default, as its
    folder.
    """
    words = [word for word in overrides if word.lstrip("+").partition("=")[0] not in KEYS]
    own = {word.partition("=")[0]: word for word in words}
    for group, (key, endings) in FILES.items():
        word = own.get(f"{group}.{key}", "")
        if word.strip("'").endswith(endings):
            words[words.index(word)] = group + word.removeprefix(f"{group}.{key}")
            words = [other for other in words if other != f"{group}.name=null"]
    return " ".join(words) or DEFAULT


def task_overrides(hydra: DictConfig) -> list[str]:
    """Those that are not Hydra's own, as they were given."""
    return OmegaConf.to_container(hydra.overrides.task, resolve=False)


# Of conf/config.yaml. Every process that composes a job imports this module.
OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
