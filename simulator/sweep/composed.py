"""The composed configuration beside a run's results, written whole and under the folder's lock.

Hydra would write it before it calls us: in place, and whoever else is at work in the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from simulator.sweep.claim import INSIDE

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
