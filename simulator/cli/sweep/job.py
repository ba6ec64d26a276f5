"""One job, in the folder that Hydra made for it: what every launcher calls, wherever it runs.

A plain function of this module, so that any process can find it by its name.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simulator.cli.errors import REFUSED, JobCrashed, JobFailed, one_line
from simulator.cli.overrides import FILES
from simulator.cli.sweep.compose import HydraFiles
from simulator.cli.sweep.lock import claimed
from simulator.cli.sweep.objective import KEYS, split_objective
from simulator.progress import hidden
from traces.common.files import silence_output

# ---------------- Names of jobs, and of their folders.


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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job of a sweep says."""

    value: float | None  # of the objective
    skipped: bool = False  # its results were there
    text: str = ""  # that it would have printed


_waits = True


@contextmanager
def not_waiting() -> Iterator[None]:
    """Within the block, jobs of this process raise `Busy` where another process does them."""
    global _waits
    _waits = False
    try:
        yield
    finally:
        _waits = True


def is_elsewhere(launcher: str) -> bool:
    """Whether the launcher of that class runs jobs in other processes than ours."""
    return not launcher.endswith(".BasicLauncher")


def job(cfg: DictConfig) -> Answer:
    """Perform the job."""
    running = HydraConfig.get()
    swept = running.mode == RunMode.MULTIRUN
    if not (swept and is_elsewhere(running.launcher._target_)):
        return _guarded(cfg, swept, elsewhere=False)
    with suppress(OSError):  # of a machine that has no such folder
        os.chdir(running.runtime.cwd)  # paths are relative to where the sweep was started
    with hidden(), redirect_stdout(io.StringIO()) as printed:
        answer = _guarded(cfg, swept, elsewhere=True)
    return replace(answer, text=printed.getvalue())


def _guarded(cfg: DictConfig, swept: bool, elsewhere: bool) -> Answer:
    """Perform it; failures become one line, or cross to the process that asked for the job."""
    try:
        return _perform(cfg, Path(HydraConfig.get().runtime.output_dir), swept)
    except BrokenPipeError:  # the reader of our output has left; Hydra would call that an error
        silence_output()
        raise SystemExit(0) from None
    except BaseException as error:
        line = one_line(error)
        if line is not None and swept:
            raise JobFailed(line) from None
        if line is not None:
            print(f"error: {line}", file=sys.stderr)
            raise SystemExit(REFUSED) from None
        if elsewhere and isinstance(error, Exception):
            raise JobCrashed("".join(traceback.format_exception(error))) from None
        raise


def _perform(cfg: DictConfig, folder: Path, swept: bool) -> Answer:
    from simulator.results.files import SUMMARY, discard
    from simulator.studies import perform

    summary, name = folder / SUMMARY, job_name(task_overrides(HydraConfig.get()))
    with claimed(folder, _waits) as torn:
        try:
            if torn:  # the tables may not be of the summary's run
                summary.unlink(missing_ok=True)
            before = _stamp(summary)
            config, objective = split_objective(OmegaConf.to_container(cfg, resolve=True))
            files = HydraFiles(folder, cfg, HydraConfig.instance().cfg)
            with files.kept(replacing=before is not None):
                perform(config, folder, name if swept else None)
            value = objective.value(folder) if objective else None
            return Answer(value, skipped=before is not None and before == _stamp(summary))
        except BaseException:
            discard(folder)
            raise


def _stamp(path: Path) -> tuple[int, int] | None:
    """Of the file, as long as nobody writes it anew; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
