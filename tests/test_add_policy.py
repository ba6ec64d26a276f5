"""The README's example of a user's own policy: the files are its text, and its command runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.cli.main import main
from tests.synthetic import make_pool
from traces import write_recording

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLE = ROOT / "tests" / "example_policy"
MARKER = "<!-- example-policy -->"


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    """Fenced blocks of the README's section after the marker, the first of each language."""
    readme = README.read_text(encoding="utf-8")
    section = readme.split(MARKER, 1)[1].split("\n## ", 1)[0]
    found: dict[str, str] = {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        found.setdefault(language, text)
    return found


def test_readme_shows_the_files(blocks):
    assert blocks["python"] == (EXAMPLE / "half_chain.py").read_text(encoding="utf-8")
    assert blocks["yaml"] == (EXAMPLE / "conf/policy/half_chain.yaml").read_text(encoding="utf-8")


def run_command(line: str, *overrides: str) -> subprocess.CompletedProcess:
    """Run a README line of the form ``NAME=VALUE ... python ARGUMENTS``, overrides appended."""
    words = shlex.split(line)
    first = words.index("python")
    env = os.environ | dict(word.split("=", 1) for word in words[:first])
    command = [sys.executable, *words[first + 1 :], *overrides]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def recording_at(folder: Path) -> Path:
    recording = make_pool(
        np.random.default_rng(3), sequences=9, depths=6, lengths=[30] * 9, noise=0.3
    )
    path = folder / "tiny.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    return path


@pytest.mark.parametrize(("clients", "drafted"), [(2, 6), (20, 3)])
def test_the_command_runs_the_policy(blocks, tmp_path, monkeypatch, clients, drafted):
    """The whole chain of 6 goes to 2 clients; from 16 clients on, half of it."""
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "orders"))
    result = run_command(
        blocks["bash"].strip(),
        f"trace.recording={recording_at(tmp_path)}",
        "latency=b300",
        f"max_concurrency={clients}",
        f"num_prompts={clients}",
        f"hydra.run.dir={tmp_path / 'run'}",
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["policy"] == "half_chain"
    assert summary["completed"] == clients
    nodes = summary["draft_nodes_per_request"]
    assert nodes == drafted if clients == 2 else drafted <= nodes < 6


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("order = ChainOrder(3)\n    def alocate(self, step): return step.draft.size",
         "policy Mine: no method allocate (but alocate); accepted: allocate(step)"),
        ("def plan(self, load): return ChainOrder(3)",
         "policy Mine: no method allocate; accepted: allocate(step)"),
        ("def allocate(self, step): return step.draft.size",
         "policy Mine: order is None and there is no method plan, so it would never draft"),
    ],
)  # fmt: skip
def test_a_policy_that_is_not_whole_is_refused_in_one_line(here, monkeypatch, capsys, body, says):
    Path("mine_broken.py").write_text(
        "from simulator.orders.specs import ChainOrder\n"
        f"from simulator.policy import Policy\nclass Mine(Policy):\n    {body}\n"
    )
    monkeypatch.syspath_prepend(here)
    sys.modules.pop("mine_broken", None)
    words = [f"trace={recording_at(here)}", "policy._target_=mine_broken.Mine", "num_prompts=4"]
    words += ["policy=autoregressive", "hydra.run.dir=out"]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not Path("out").exists()
