"""A run is known by the sources that decide its numbers, and by no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.engine.fingerprint import reached

ROOT = Path(__file__).resolve().parents[1]
RUN = "simulator.engine.run"
POLICY = """
from house import Base
from helper import WIDTH
import numpy as np

class Mine(Base):
    def allocate(self, step):
        return np.minimum(step.draft.size, self.most(WIDTH))
"""
BASE = """
from simulator.orders.specs import ChainOrder
from simulator.policy import Policy

class Base(Policy):
    order = ChainOrder()

    def most(self, width):
        return min(width, 7)
"""


@pytest.fixture
def place(tmp_path):
    """A user's folder: a copy of the packages, a policy, its helper and its base class."""
    for name in ("simulator", "traces"):
        leave = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.csv")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=leave)
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "house.py").write_text(BASE)
    (tmp_path / "helper.py").write_text("WIDTH = 7\n")
    return tmp_path


def known_by(place: Path) -> bytes:
    """What the sources of a run in `place` come to, in a process of its own."""
    node = {"_target_": "mine.Mine"}
    program = f"from simulator.engine.fingerprint import sources; print(sources({RUN!r}, {node}))"
    own = {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    words, env = [sys.executable, "-c", program], os.environ | own
    return subprocess.run(words, cwd=place, env=env, capture_output=True, check=True).stdout


def test_what_decides_counts_and_what_prints_does_not(place):
    first = known_by(place)
    for name in (
        "simulator/results/printing.py",
        "simulator/cli/sweep/launch.py",
        "simulator/progress.py",
        "traces/common/errors.py",
        "simulator/policies/treespark.py",
    ):
        with (place / name).open("a") as file:
            file.write("\nNOTHING = 'a word'\n")
    assert known_by(place) == first
    found = {first}
    # what the policy imports, its base class's file, the engine
    for number, name in enumerate(("helper.py", "house.py", "simulator/engine/server.py"), 2):
        with (place / name).open("a") as file:
            file.write("\n# edited\n")
        found.add(known_by(place))
        assert len(found) == number


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("def f():\n    import far.near as n, numpy", "far.near"),
        ("from .near import (\n    a,  # one (of two)\n    b,\n)", "far.near"),
        ("from . import \\\n    near", "far.near"),
        ("from far.folder import low", "far.folder.low"),  # without an __init__.py
        ("if True: from far import near", "far.near"),
        ("import importlib; m = importlib.import_module('far.near')", "far.near"),
        ("from __future__ import annotations\nfrom far.near import *", "far.near"),
    ],
)
def test_imports_are_found(tmp_path, monkeypatch, line, module):
    (tmp_path / "far").mkdir()
    (tmp_path / "far/folder").mkdir()
    (tmp_path / "far/folder/low.py").touch()
    (tmp_path / "far/__init__.py").touch()
    (tmp_path / "far/near.py").write_text("TABLE = 'table.csv'\n")
    (tmp_path / "far/here.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    assert {"far.here", module} == reached("far.here").keys() - {"far"}


def test_a_tokenizer_counts_by_its_content(here, recorded, capsys):
    tokenizers = pytest.importorskip("tokenizers")
    turns = [{"from": "human", "value": "go go go"}, {"from": "gpt", "value": "a b c d"}]
    Path("s.json").write_text(json.dumps([{"conversations": turns}] * 3))
    words = ["policy=autoregressive", f"trace={recorded}", "hydra.run.dir=out", "num_prompts=3"]
    words += ["max_concurrency=2", "workload=file", "workload.path=s.json"]
    skipped = []
    for splitter in ("WhitespaceSplit", "Whitespace", "WhitespaceSplit"):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, "?"))
        tokenizer.pre_tokenizer = getattr(tokenizers.pre_tokenizers, splitter)()
        tokenizer.save("t.json")
        assert main([*words, "workload.tokenizer=t.json"]) == 0
        skipped.append("skipped" in capsys.readouterr().out)
    assert skipped == [False, False, False]
    assert main([*words, "workload.tokenizer=t.json"]) == 0
    assert "skipped" in capsys.readouterr().out
