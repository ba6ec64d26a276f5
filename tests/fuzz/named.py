"""YAML files of rivals and policies, which name each other."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

from simulator.studies.contest.entrants import Entrant, read_rivals
from tests.fuzz.cases import Target

DEPTHS = 4
RIVALS = {
    "rivals": [
        "autoregressive",
        {"policy": "fixed_chain", "grid": {"length": [1, 2]}},
        {"policy": "mine.yaml", "grid": {"length": "1..D"}},
    ]
}
POLICY = {
    "_target_": "simulator.policies.fixed_chain.FixedChain",
    "length": 3,
    "name": "mine",
}


def _make(folder: Path) -> None:
    (folder / "rivals.yaml").write_text(json.dumps(RIVALS))
    (folder / "mine.yaml").write_text(json.dumps(POLICY))


def _read(folder: Path) -> list[Entrant]:
    with chdir(folder):
        return [one for rival in read_rivals("rivals.yaml") for one in rival.entrants(DEPTHS)]


def _check(folder: Path, found: list[Entrant], good: list[Entrant]) -> None:
    """Policies of this program, each setting once, and nothing of the environment."""
    keys = [one.key for one in found]
    assert keys
    assert "${" not in "".join(keys)
    for one in found:
        assert str(one.node["_target_"]).startswith("simulator.")


TARGETS = [Target("rivals", _make, ("*",), _read, _check)]
