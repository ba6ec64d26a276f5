"""A summary says by hashes what the names in it stood for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.cost import find_profile
from simulator.engine.fingerprint import own_sources

SHIPPED = Path(__file__).parents[1] / "traces" / "latency"


def copied(folder: Path, name: str, change: tuple[str, str] = ("", "")) -> Path:
    """b300's files under another name, the table with `change` made in it."""
    folder.mkdir(exist_ok=True)
    for ending in (".yaml", ".draft.csv"):
        (folder / name).with_suffix(ending).write_bytes((SHIPPED / f"b300{ending}").read_bytes())
    text = (SHIPPED / "b300.csv").read_text()
    assert change[0] in text
    path = folder / f"{name}.csv"
    path.write_text(text.replace(*change))
    return path


def test_a_profile_is_known_by_its_content(tmp_path):
    same = find_profile(copied(tmp_path / "a", "gpu"))
    other = find_profile(copied(tmp_path / "b", "gpu", ("\n1,5.109,", "\n1,5.110,")))
    assert same.content_hash == find_profile("b300").content_hash
    assert other.content_hash != same.content_hash
    assert other.name == same.name


@pytest.fixture
def summary(here, recorded):
    def of(*words: str) -> dict:
        command = [f"trace={recorded}", "num_prompts=3", "hydra.run.dir=out", *words]
        assert main([*command, "max_concurrency=2"]) == 0
        return json.loads(Path("out/summary.json").read_text())

    return of


def test_profile_and_policy(here, summary):
    found = summary("policy=cast", f"latency={copied(here, 'gpu')}")
    assert found["latency"]["profile"] == "gpu"
    assert found["latency"]["content_hash"] == find_profile("b300").content_hash
    node = {"_target_": "simulator.policies.cast.Cast"}
    code = own_sources("simulator.engine.run", node)
    assert found["policy_code"] == {"target": node["_target_"], "sha256": code}


def test_workload_file(summary):
    path = Path("load.csv")
    path.write_text("prompt_tokens,output_tokens\n4,3\n5,2\n4,4\n")
    found = summary("policy=autoregressive", "workload=file", f"workload.path={path}")
    assert found["workload"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
