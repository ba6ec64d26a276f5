"""What importing the simulator loads; how long that takes is told by tests/benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "matplotlib", "seaborn", "transformers", "tokenizers", "pandas")


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("simulator", ()),
        ("simulator.engine.run, simulator.studies, simulator.cli.main", ()),
        ("real_runner.validating.report", ()),
        ("traces", ("traces.importers", "simulator")),
        ("traces.app", ("simulator", "real_runner")),
        ("traces.workloads", ("simulator",)),
    ],
)
def test_nothing_heavy_is_loaded(module, without):
    loaded = python(f"import {module}, sys; print(*sys.modules)").split()
    assert module.partition(",")[0] in loaded
    assert not {"analysis", *HEAVY, *without} & set(loaded)
    assert "numba" not in loaded  # only where a table must be built
