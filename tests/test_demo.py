"""`make demo`'s main job, as the Makefile runs it: it must end with a table and figures."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def test_demo_ends_with_a_table_and_a_figure(tmp_path):
    run = tmp_path / "demo"
    command = [
        "make",
        "-s",
        "-o",
        ".venv/base",
        "demo",
        f"RUN={run}",
        f"BIN={Path(sys.executable).parent}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(list(run.rglob("summary.json"))) == 35  # 7 policies x 5 concurrencies
    for policy in (
        "autoregressive",
        "fixed_chain",
        "tuned_chain",
        "fixed_tree",
        "cast",
        "treespark",
        "priced_survival",
    ):
        assert policy in done.stdout
    figures = list((run / "figures").glob("throughput_vs_concurrency*.png"))
    assert figures
    assert all(figure.stat().st_size > 10_000 for figure in figures)
    assert list((run / "figures").glob("acceptance_length_vs_budget*.png"))
