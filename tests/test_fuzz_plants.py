"""The harness itself: planted faults of readers are found, whatever way they fail."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.fuzz import cases, run
from tests.fuzz.cases import ACCEPTED, FAULT, REFUSED, Bench, Target, alarm
from traces.common.errors import InputError

ROOT = Path(__file__).parents[1]
MOST = 1000  # cases until a fault must have been found
EARLY = {"recording pool": 10, "recording pool sampled": 8}  # seeds that find theirs soon


def _hang(folder: Path) -> None:
    while True:
        pass


def _litter(folder: Path) -> None:
    (folder / "half.tmp").touch()
    raise InputError("x: refused")


def _code(folder: Path) -> None:
    Path("trapped").mkdir()


def _lines(folder: Path) -> None:
    error = InputError("x")
    error.args = ("two\nlines",)
    raise error


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (_hang, "hangs for"),
        (_litter, "refused, and left"),
        (_code, "ran code"),
        (_lines, "refused in 2 lines"),
        (lambda folder: {}[folder], "KeyError"),
        (lambda folder: 2, "accepted, but"),
    ],
)
def test_a_reader_that_fails_is_a_fault(tmp_path, monkeypatch, read, says):
    monkeypatch.setattr(cases, "alarm", lambda: alarm(0.05))
    monkeypatch.setattr(cases, "NO_FILE", 0)

    def check(folder, found, good):
        assert found == good

    monkeypatch.setattr(cases, "file_damaged", lambda *words: b"bad")
    is_good = lambda folder: (folder / "x").read_bytes() == b"good"  # noqa: E731
    target = Target(
        "toy",
        lambda folder: (folder / "x").write_bytes(b"good"),
        ("x",),
        lambda folder: 1 if is_good(folder) else read(folder),
        check,
    )
    bench = Bench(target, tmp_path / "bench")
    outcome = bench.play(np.random.default_rng(0))
    assert outcome.kind == FAULT
    assert says in outcome.text
    assert {path.name for path in bench.folder.iterdir()} == {"x"}
    assert is_good(bench.folder)


def test_a_process_that_ends_is_a_fault_of_its_case(tmp_path, monkeypatch):
    script = tmp_path / "run.py"
    script.write_text(
        "import json, os, sys\n"
        "for case in range(*map(int, sys.argv[2].split(':'))):\n"
        "    print(json.dumps({'case': case}), flush=True)\n"
        "    if case == 1:\n"
        "        os._exit(3)\n"
        "    print(json.dumps({'case': case, 'kind': 'accepted'}), flush=True)\n"
    )
    monkeypatch.setattr(run, "__file__", str(script))
    found = list(run.outcomes(0, 3, 0))
    assert [node["kind"] for node in found] == [ACCEPTED, FAULT, ACCEPTED]
    assert "ends with 3" in found[1]["text"]


@pytest.mark.parametrize(("kinds", "status"), [((ACCEPTED, REFUSED), 0), ((ACCEPTED,), 1)])
def test_a_target_that_refuses_nothing_is_a_fault(monkeypatch, capsys, kinds, status):
    count = 2 * run.ENOUGH
    played = ({"case": i, "target": "t", "kind": kinds[i % len(kinds)]} for i in range(count))
    monkeypatch.setattr(run, "outcomes", lambda *words: played)
    assert run.main(["--cases", str(count)]) == status
    assert ("none refused: it checks nothing" in capsys.readouterr().out) == bool(status)


def test_memory_has_a_limit():
    code = (
        "from tests.fuzz.cases import limit_memory\n"
        "limit_memory()\n"
        "try:\n    held = bytearray(3 << 30)\n"
        "except MemoryError:\n    print('no more')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "no more\n", done.stderr


def _unsorted(clock, piece, largest_gap_s):
    """`Clock.relative_s` without its check."""
    if clock.first is None:
        clock.first = piece.time[0]
    return (piece.time - clock.first) / clock.source.per_second


def _unsafe_yaml(text: str):
    import yaml

    return yaml.unsafe_load(text)


def _unsafe_torch(source):
    import io

    import torch

    return torch.load(io.BytesIO(source.data), weights_only=False)


def _any_result():
    return SimpleNamespace(validate_python=lambda result: SimpleNamespace(**result))


def _nothing(*words):
    return None


GUTTED = [
    ("recording pool", "traces.recordings.validate._refuse_duplicates", _nothing),
    ("recording pool", "traces.recordings.validate._check_sums", _nothing),
    ("recording pool", "traces.recordings.validate._check_path_in_pool", _nothing),
    ("recording pool sampled", "traces.recordings.validate._check_anchors", _nothing),
    ("recording tree", "traces.recordings.validate._check_siblings", _nothing),
    ("manifest", "traces.recordings.manifest._check_agree", _nothing),
    ("workload csv", "traces.workloads.rows.Clock.relative_s", _unsorted),
    ("workload mooncake", "traces.workloads.rows.Clock.relative_s", _unsorted),
    ("latency profile", "traces.profiles.tables.check_sorted", _nothing),
    ("latency profile", "traces.profiles.header.load_yaml", _unsafe_yaml),
    ("latency=FILE.yaml", "simulator.studies.options.load_yaml", json.loads),
    ("paired", "traces.common.columns._check_numbers", _nothing),
    ("paired", "traces.common.columns._check", _nothing),
    ("steps", "traces.common.columns._check", _nothing),
    ("compare", "analysis.read.runs.check_summary", _nothing),
    ("reliability", "analysis.read.calibrations.check_map", _nothing),
    ("validation", "analysis.read.validations._ROUNDING", float("inf")),
    ("store of a study", "simulator.studies.store._schema", _any_result),
    ("import cast-rounds", "traces.importers.cast_log._loaded", _unsafe_torch),
]


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return {target.name: target for target in run.targets()}


@pytest.mark.parametrize(("name", "gutted", "by"), GUTTED)
def test_a_check_left_out_is_found(tmp_path, monkeypatch, targets, name, gutted, by):
    if name.startswith("import cast-rounds"):
        pytest.importorskip("torch")
    bench = Bench(targets[name], tmp_path / "bench")
    place, _, attribute = gutted.rpartition(".")
    try:
        owner = importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, cls = place.rpartition(".")
        owner = getattr(importlib.import_module(module), cls)
    monkeypatch.setattr(owner, attribute, by)
    before = os.getcwd()
    seed = EARLY.get(name, 7)
    kinds = (bench.play(np.random.default_rng([seed, case])).kind for case in range(MOST))
    assert FAULT in kinds
    assert os.getcwd() == before
