"""What importing the simulator loads, and how long it takes."""

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
    "module", ["simulator", "simulator.engine.run, simulator.studies, simulator.cli.main"]
)
def test_nothing_heavy_is_loaded(module):
    loaded = python(f"import {module}, sys; print(*sys.modules)").split()
    assert "simulator" in loaded
    assert not set(HEAVY) & set(loaded)
    assert "numba" not in loaded  # only where a table must be built


def test_numpy_is_most_of_the_import():
    """simulator and its cost and order modules against numpy alone, in the same process."""
    seconds = python(
        "from time import perf_counter as now\n"
        "start = now(); import numpy; middle = now()\n"
        "import simulator, simulator.engine.run; end = now()\n"
        "print(middle - start, end - middle)"
    )
    numpy_s, ours_s = map(float, seconds.split())
    assert ours_s < 3 * max(numpy_s, 0.1)
