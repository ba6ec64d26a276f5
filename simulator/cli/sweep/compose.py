"""Composing the jobs of a sweep: jobs that differ in plain settings share one composition.

Composing is most of the time of a short run; a seed or a load changes no group and no file.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from simulator.cli.sweep import objective
from simulator.cli.sweep.lock import INSIDE
from simulator.engine.settings import SCALARS

KEY = "hydra.output_subdir"
OURS = f"++{KEY}=null"  # nobody else spells it so: the files are ours to write
NAMES = ("config.yaml", "hydra.yaml", "overrides.yaml")


def restored(hydra: DictConfig) -> bool:
    """Make Hydra's node as if `OURS` had not been given; whether it had."""
    words = OmegaConf.to_container(hydra.overrides.hydra, resolve=False)
    if OURS not in words:
        return False
    with read_write(hydra), open_dict(hydra):
        hydra.overrides.hydra = [word for word in words if word != OURS]
        hydra.output_subdir = INSIDE
    return True


class HydraFiles:
    """``.hydra`` in a job's folder.

    hydra: the configuration with nothing but Hydra's node.
    """

    def __init__(self, folder: Path, config: DictConfig, hydra: DictConfig) -> None:
        self._folder = folder / INSIDE
        self._ours = restored(hydra.hydra)
        contents = (config, hydra, hydra.hydra.overrides.task)
        self._contents = dict(zip(NAMES, contents, strict=True))

    @contextmanager
    def kept(self, replacing: bool) -> Iterator[None]:
        """Write them before the block, or, in place of another run's, after it.

        Until then they lie there under temporary names: a process that is killed in the block
        leaves those, and with them the word that the folder may hold parts of two runs.
        """
        if not self._ours:
            yield
            return
        temporary = {name: self._folder / f".{name}.{os.getpid()}.tmp" for name in NAMES}
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            for name, path in temporary.items():
                path.write_text(OmegaConf.to_yaml(self._contents[name]), encoding="utf-8")
            if not replacing:
                self._publish(temporary)
            yield
            if replacing:
                self._publish(temporary)
        finally:
            for path in temporary.values():
                path.unlink(missing_ok=True)

    def _publish(self, temporary: dict[str, Path]) -> None:
        for name, path in temporary.items():
            os.replace(path, self._folder / name)


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
