"""Output into a pipe that is closed early: nothing is said about it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from traces.common.files import until_closed

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


def test_an_interrupted_command_says_so(capsys):
    def main():
        raise KeyboardInterrupt

    assert until_closed(main) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    "module", ["analysis.commands", "traces.app", "simulator.cli.main", "real_runner.app"]
)
def test_every_program_is_heard_while_it_loads(module, tmp_path):
    """^C in the middle of an import, as of one that is slow."""
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins, sys\n"
        "load = builtins.__import__\n"
        "def halted(name, *rest, **more):\n"
        f"    if name == {module!r}:\n"
        "        raise KeyboardInterrupt\n"
        "    return load(name, *rest, **more)\n"
        "builtins.__import__ = halted\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", module.partition(".")[0]],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
