"""The README's example of a user's own policy: the files are its text, and its command runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_refusals import refused

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


def test_the_command_runs_the_policy(blocks, here, recorded, monkeypatch):
    """NAME=VALUE ... python ARGUMENTS. The whole chain of 7 goes to 2 clients, half of it to 20."""
    words = shlex.split(blocks["bash"])
    first = words.index("python")
    for name, value in (word.split("=", 1) for word in words[:first]):
        monkeypatch.setenv(name, value)
    more = [f"trace.recording={recorded}", "latency=b300", "max_concurrency=2,20"]
    more += ["num_prompts=20", f"hydra.sweep.dir={here}"]
    command = [sys.executable, *words[first + 1 :], *more, "-m"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    found = [json.loads(path.read_text()) for path in here.rglob("summary.json")]
    few, many = sorted(found, key=lambda summary: summary["max_concurrency"])
    assert few["policy"] == many["policy"] == "half_chain"
    assert few["completed"] == many["completed"] == 20
    assert 3 <= many["draft_nodes_per_request"] < few["draft_nodes_per_request"] == 7


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
def test_a_policy_that_is_not_whole(here, recorded, monkeypatch, capsys, body, says):
    Path("mine_broken.py").write_text(
        "from simulator.orders.specs import ChainOrder\n"
        f"from simulator.policy import Policy\nclass Mine(Policy):\n    {body}\n"
    )
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("mine_broken", None)
    words = [f"trace={recorded}", "policy._target_=mine_broken.Mine", "num_prompts=4"]
    words += ["policy=autoregressive", "hydra.run.dir=out"]
    refused(words, capsys, says)
