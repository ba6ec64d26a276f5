"""Composing the jobs of a sweep: jobs that differ in plain settings share one composition.

Composing is most of the time of a short run; a seed or a load changes no group and no file.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from simulator.settings import SCALARS
from simulator.sweep import objective
from simulator.sweep.composed import OURS, restored

MOST_KNOWN = 64  # compositions kept in a process
_known: dict[tuple, DictConfig] = {}  # by sweep and overrides; a worker unpickles many loaders


class Composing:
    """Hydra's loader of configurations, for the jobs of one sweep.

    master: the sweep's own configuration; the word that leaves Hydra's files to us is taken out of
        it. elsewhere: jobs run in other processes, perhaps in another folder.
    """

    def __init__(self, inner: Any, master: DictConfig, elsewhere: bool) -> None:
        self._inner = inner
        self._sweep = uuid.uuid4().hex
        self._more = [OURS] if restored(master.hydra) else []
        self._cwd = os.getcwd()
        self._kept: tuple[list[str], DictConfig] | None = None
        self._folder = os.path.abspath(master.hydra.sweep.dir) if elsewhere else None

    def load_sweep_config(self, master: DictConfig, overrides: Sequence[str]) -> DictConfig:
        """What Hydra's own gives, except that objectives are left out of folders' names."""
        from hydra.core.override_parser.overrides_parser import OverridesParser

        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == list(overrides):
            return kept[1]
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        late = [o for o in parsed if _is_plain(o)]
        whole = [o.input_line for o in parsed if not _is_plain(o)]
        config = copy.deepcopy(self._composed(master, whole))
        for override in late:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        self._name(config, parsed)
        OmegaConf.copy_cache(from_config=master, to_config=config)  # one `now` for all jobs
        return config

    def keep(self, overrides: Sequence[str], config: DictConfig) -> None:
        """Give `config`, as it was looked at, if the same overrides are asked for next."""
        if self._folder is None:
            self._kept = (list(overrides), config)

    def _composed(self, master: DictConfig, whole: list[str]) -> DictConfig:
        key = (self._sweep, *whole)
        if key not in _known:
            from hydra.types import RunMode

            hydra = [*OmegaConf.to_container(master.hydra.overrides.hydra), *self._more]
            found = self._inner.load_configuration(
                config_name=master.hydra.job.config_name,
                overrides=[*hydra, *whole],
                run_mode=RunMode.RUN,
            )
            while len(_known) >= MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[key] = found
        return _known[key]

    def _name(self, config: DictConfig, parsed: list) -> None:
        """Hydra's records of a job's overrides, all of them and in their order."""
        from hydra._internal.config_loader_impl import get_overrides_dirname

        task = [o for o in parsed if not o.is_hydra_override()]
        settings = config.hydra.job.config.override_dirname
        excluded = [*settings.exclude_keys, *objective.KEYS]
        with open_dict(config.hydra):
            config.hydra.overrides.task = [o.input_line for o in task]
            config.hydra.job.override_dirname = get_overrides_dirname(
                task, exclude_keys=excluded, item_sep=settings.item_sep, kv_sep=settings.kv_sep
            )
            config.hydra.runtime.cwd = self._cwd
            if self._folder is not None:
                config.hydra.sweep.dir = self._folder

    def __getattr__(self, name: str) -> Any:
        """Whatever else a launcher may ask of Hydra's loader."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_inner"], name)


def _is_plain(override: Any) -> bool:
    """Whether the override sets one of the settings that choose nothing else."""
    from hydra.core.override_parser.types import OverrideType

    return (
        override.key_or_group in SCALARS
        and override.type == OverrideType.CHANGE
        and override.package is None
    )
