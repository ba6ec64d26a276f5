"""Sweeps in processes of their own, as a user starts them, for tests that interrupt them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ("requests.parquet", "steps.parquet", "summary.json")
COMPOSED = (".hydra/config.yaml", ".hydra/overrides.yaml")  # hydra.yaml names the sweep's folder
PATIENCE_S = 120.0


def installed(plugin: str) -> pytest.MarkDecorator:
    """Skips a test that needs the plugin of Hydra's where it is not."""
    there = find_spec("hydra_plugins") and find_spec(f"hydra_plugins.{plugin}")
    return pytest.mark.skipif(not there, reason=f"{plugin} is not installed")


JOBLIB = installed("hydra_joblib_launcher")
ELSEWHERE = [
    pytest.param("joblib", marks=JOBLIB),
    pytest.param("submitit_local", marks=installed("hydra_submitit_launcher")),
]


def launched_by(launcher: str) -> list[str]:
    """The overrides that choose the launcher."""
    return [f"hydra/launcher={launcher}", *["hydra.launcher.n_jobs=2"] * (launcher == "joblib")]


def environment(*folders: Path) -> dict[str, str]:
    """Ours, in which processes find this checkout and modules in `folders`."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = dict.fromkeys(filter(None, [str(ROOT), *map(str, folders), *known]))
    return os.environ | {"PYTHONPATH": os.pathsep.join(found)}


def start(words: Sequence[str], **more) -> subprocess.Popen:
    """`python -m simulator`, in a group of its own."""
    command = [sys.executable, "-m", "simulator", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    settings = {"env": environment()} | pipes | more
    # In the background of a shell, or under nohup, ^C would be ignored from the start.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen(command, start_new_session=True, **heard, **settings)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    """Its exit status and what it printed."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def until(condition: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """Wait for `condition`, or for the end of `process`."""
    limit = time.monotonic() + PATIENCE_S
    while not condition() and (process is None or process.poll() is None):
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.005)


def summaries(sweep: Path) -> int:
    return len(list(sweep.glob("*/summary.json")))


def runs(sweep: Path) -> dict[str, dict[str, bytes]]:
    """Content of the results and configurations of every run's folder."""
    return {
        folder.name: {name: (folder / name).read_bytes() for name in (*RESULTS, *COMPOSED)}
        for folder in sweep.iterdir()
        if folder.is_dir() and not folder.name.startswith(".")
    }


def remains(sweep: Path) -> list[Path]:
    """Files that only a process at work, or a killed one, has in a run's folder."""
    return [*sweep.glob("*/.*.tmp"), *sweep.glob("*/.hydra/.*")]
