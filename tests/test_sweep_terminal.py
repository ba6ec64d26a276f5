"""What a sweep shows: progress on a terminal, nothing but its lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import threading
from pathlib import Path

import pytest

from simulator.cli.main import main
from tests.sweeping import JOBLIB, PATIENCE_S, environment, launched_by, start

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LINE = re.compile(r"runs( \(\d+ skipped\))? [^\n]*?(\d+)/(\d+) (-:--:--|\d+:\d\d:\d\d) left")


def on_terminal(words: list[str]) -> tuple[int, str, str]:
    """Status, stdout (which is a file) and what a terminal as stderr got."""
    main, side = pty.openpty()
    process = start(words, stderr=side, env=environment() | {"TERM": "xterm", "COLUMNS": "150"})
    os.close(side)
    shown: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(main, 4096):
                shown.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=PATIENCE_S)
    reader.join()
    os.close(main)
    text = CODES.sub("", b"".join(shown).decode()).replace("\r", "\n")
    return process.returncode, out, text


@pytest.fixture
def at_once(here, monkeypatch):
    """Bars show themselves at once: whether a sweep takes a second depends on the machine."""
    Path("sitecustomize.py").write_text(
        "import simulator.progress\nsimulator.progress.PATIENCE_S = -1\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(here), prepend=os.pathsep)


@pytest.fixture
def words(here, recorded) -> list[str]:
    sweep = ["-m", f"trace={recorded}", "num_prompts=30", "hydra.sweep.dir=out"]
    return [*sweep, "policy=autoregressive,fixed_tree"]


@pytest.mark.parametrize("launcher", ["basic", pytest.param("joblib", marks=JOBLIB)])
@pytest.mark.usefixtures("at_once")
def test_progress(words, launcher):
    """The bar counts what is to be done; of a sweep that goes on, what is new."""
    assert main([*words, "seed=0"]) == 0
    words = [*words, *launched_by(launcher)]
    status, out, shown = on_terminal([*words, "seed=range(0,4)"])
    assert status == 0
    lines = out.splitlines()  # of runs, and nothing of the bar
    assert len(lines) == 8
    assert sum(line.startswith("skipped: ") for line in lines) == 2
    assert sum("tokens/s" in line for line in lines) == 6
    found = [match for match in LINE.finditer(shown) if match[1] == " (2 skipped)"]
    assert {match[3] for match in found} == {"6"}
    assert any(match[4] != "-:--:--" for match in found)  # an estimate
    assert re.search(r"8 runs: 6 new, 2 skipped, in [\d.]+ s; results in out\n", shown)
