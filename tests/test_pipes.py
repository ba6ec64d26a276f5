"""Output into a pipe that is closed early: nothing is said about it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "words",
    [
        ["traces", "inspect", "small_semi_t0"],
        ["simulator", "policy=autoregressive", "num_prompts=64", "hydra.run.dir={}/run"],
        ["simulator", "task=published"],
    ],
    ids="-".join,
)
def test_a_reader_that_leaves_is_no_error(tmp_path, words):
    command = [sys.executable, "-u", "-m", *(word.format(tmp_path) for word in words)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    message = process.stderr.read()
    assert process.wait(timeout=120) in (0, 1)  # rich, which prints the tables, leaves with 1
    assert message == ""
