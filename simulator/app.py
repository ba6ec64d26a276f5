"""The command line: `python -m simulator`, composed by Hydra.

Everything is checked before Hydra starts, because Hydra makes its run folders before it calls us:
a refused command leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simulator.command_line import CONF, composed_jobs, normalised, parse
from simulator.one_line import one_line
from traces.pipes import silence_output

INTERRUPTED = 130  # 128 + SIGINT
REFUSED = 2
LONGEST = 200  # characters of a job's folder name


def folder_name(overrides: str) -> str:
    """A job's folder from its overrides: no separators or quotes, and a length any disk takes."""
    name = re.sub(r"[^A-Za-z0-9=,._+-]+", "_", overrides) or "default"
    if name in (overrides, "default") and len(name) <= LONGEST:
        return name
    # A changed or cut name could be another job's as well: the hash keeps them apart.
    return f"{name[:LONGEST]}-{hashlib.sha256(overrides.encode()).hexdigest()[:12]}"


OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 2 for bad input and 130 after Ctrl-C."""
    try:
        words = normalised(sys.argv[1:] if argv is None else argv)
        command = parse(words)
        if command.runs:
            _check(composed_jobs(command))
        with _arguments(words), _composed_once(command.runs):
            _job()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:  # from Hydra (--help), or from a refused job
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return REFUSED
    return 0


def _check(jobs: list[dict[str, Any]]) -> None:
    from simulator.tasks import check

    for config in jobs:
        check(config)


@contextmanager
def _arguments(words: list[str]):
    """Hydra reads sys.argv, and raises its errors to us instead of printing them if told so."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [sys.argv[0], *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before
        os.environ.pop("HYDRA_FULL_ERROR")
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


@contextmanager
def _composed_once(checked: bool):
    """Keep Hydra from composing every job of a sweep only to see that it can: `_check` has.

    Composing is most of the time of a sweep of short runs, and Hydra does it again for each run.
    """
    if checked:
        BasicSweeper.validate_batch_is_legal = lambda self, batch: None
    try:
        yield
    finally:
        if checked:
            del BasicSweeper.validate_batch_is_legal  # the inherited one is back


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _job(cfg: DictConfig) -> None:
    """One job, in the folder that Hydra made for it."""
    from simulator.results import discard
    from simulator.tasks import perform

    running = HydraConfig.get()
    folder = Path(running.runtime.output_dir)
    sweep = " ".join(running.overrides.task) if running.mode == RunMode.MULTIRUN else None
    try:
        perform(OmegaConf.to_container(cfg, resolve=True), folder, sweep)
    except BrokenPipeError:  # the reader of our output has left; Hydra would call that an error
        silence_output()
        raise SystemExit(0) from None
    except BaseException as error:
        discard(folder)
        line = one_line(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        raise SystemExit(REFUSED) from None
