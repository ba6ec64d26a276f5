"""What a command line says about several runs, refused where it would run none or lose some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from omegaconf import OmegaConf

from simulator.words import FILES
from traces.errors import InputError


def refuse_values(overrides: Sequence[Any]) -> None:
    """Raise InputError for several values of a key in a single run."""
    for override in overrides:
        if override.is_sweep_override():
            key, value = typed(override)
            raise InputError(f"{key} is {value}; several values need -m")


def refuse_nothing(overrides: Sequence[Any], loader: Any) -> None:
    """Raise InputError for a pattern or a range that stands for no value: the sweep has no run.

    loader: Hydra's, which knows the options of groups.
    """
    from hydra.core.override_parser.types import Glob

    for override in overrides:
        if not override.is_discrete_sweep() or any(True for _ in override.sweep_iterator()):
            continue
        key, value = typed(override)
        accepted = "a range with a value in it"
        if isinstance(override.value(), Glob):
            options = loader.get_group_options(override.key_or_group)
            accepted = f"a pattern of {', '.join(options)}" if options else "a group's key"
        raise InputError(f"{key} is {value}, which no run has; accepted: {accepted}")


def typed(override: Any) -> tuple[str, str]:
    """Key and value as they stand on the command line."""

    key, _, value = override.input_line.lstrip("+").partition("=")
    groups = {f"{group}.{field}": group for group, (field, _) in FILES.items()}
    return groups.get(key, key), value


def is_of_option(override: Any) -> bool:
    """Whether the key belongs to a chosen option: a policy's setting, say."""
    key = override.key_or_group
    return "." in key and not key.startswith("hydra.")


def held_back(words: Sequence[str], swept: Collection[str]) -> list[str]:
    """`words` with settings of options that differ by job as sweeps of one value.

    Hydra composes the others with the group's default, which need not have them, before any job.
    """
    return [_one_valued(word) if _of_swept(word, swept) else word for word in words]


def _of_swept(word: str, swept: Collection[str]) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and "." in key and key.partition(".")[0] in swept and key not in swept


def _one_valued(word: str) -> str:
    """Hydra's `choice` takes no null, which a key that the default lacks cannot be given."""
    key, _, value = word.partition("=")
    return word if value.strip().lower() == "null" else f"{key}=choice({value})"


def check_folders(hydra: Any) -> None:
    """Raise InputError for a folder without a name: results would lie in the working one."""
    for name in ("run", "sweep"):
        folder = OmegaConf.to_container(hydra[name], resolve=False)["dir"]
        if not str(folder).strip():
            raise InputError(f"hydra.{name}.dir is {folder!r}; accepted: a folder, . for this one")


def check_sweep(hydra: Any, jobs: int) -> None:
    """Raise InputError for a sweep whose `jobs` would lie in one folder, or run in no batches."""
    folder = OmegaConf.to_container(hydra.sweep, resolve=False)["subdir"]
    if jobs > 1 and "${" not in str(folder):
        raise InputError(
            f"hydra.sweep.subdir is {folder!r}, one folder for all runs; accepted: a name that "
            "differs by run, such as '${hydra.job.num}'"
        )
    most = hydra.sweeper.max_batch_size
    if most is not None and most < 1:
        raise InputError(f"hydra.sweeper.max_batch_size is {most}; accepted: 1 or more, or null")
