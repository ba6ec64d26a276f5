"""`python -m analysis cost`: terms of a known engine come back, bad files do not get far."""

from __future__ import annotations

import csv
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import yaml

from simulator.cli.main import main as simulate
from simulator.cli.overrides import normalised
from simulator.cost import HostOverhead, StepCost, build_step_cost, find_profile
from simulator.studies.host_terms.fit import fit_rounds
from simulator.studies.host_terms.rounds import read_rounds
from tests.figure_cases import printed, refused

KNOWN = HostOverhead(
    round_s=2e-3, node_s=1e-5, tree_step_s=5e-4, plain_s=1e-3, request_s=1e-4, plain_request_s=2e-5
)
COLUMNS = ("batch", "width", "round_ms", "committed", "tree")


def engine_rounds(count=120, host=KNOWN, noise=0.0, profile="b300", seed=0) -> list[dict]:
    """Rounds of an engine that takes what the profile says, and its host terms."""
    rng, cost = np.random.default_rng(seed), StepCost(find_profile(profile), host=host)
    rows = []
    for _ in range(count):
        batch, width = int(rng.integers(1, 33)), int(rng.integers(0, 9))
        tree = bool(width > 0 and rng.random() < 0.5)
        packed = np.full(batch, width + 1)
        time = cost.step(packed, np.full(batch, 8192), drafted=width > 0, tree=tree)
        ms = time.total_s * 1e3 * float(np.exp(noise * rng.normal()))
        rows.append(dict(zip(COLUMNS, (batch, width, ms, batch, int(tree)), strict=True)))
    return rows


def written(path: Path, rows: list[dict], columns=COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def rounds(tmp_path) -> Path:
    return written(tmp_path / "rounds.csv", engine_rounds())


def test_known_terms_come_back_and_price_a_simulation(rounds, here, recorded, capsys):
    out = here / "engine.yaml"
    said = printed(capsys, "cost", rounds, "--profile", "b300", "--out", out)
    assert "round_s" in said
    assert "84 rounds, judged on the other 36" in said
    node = yaml.safe_load(out.read_text())
    for name in KNOWN.changed():
        assert node["host"][name] == pytest.approx(getattr(KNOWN, name), rel=1e-4)
    assert build_step_cost(node).host.round_s == node["host"]["round_s"]
    assert node["provenance"]["rows"] == 120
    assert node["provenance"]["sha256"] == sha256(rounds.read_bytes()).hexdigest()
    assert node["provenance"]["held_out_p90_error"] < 1e-6
    again = here / "again" / "engine.yaml"
    printed(capsys, "cost", rounds, "--profile", "b300", "--out", again)
    assert again.read_bytes() == out.read_bytes()
    words = [f"trace={recorded}", "policy=fixed_chain", "policy.length=3", "max_concurrency=1"]
    more = [f"latency={out}", "latency.host.node_s=0.5", "num_prompts=4", "hydra.run.dir=out"]
    assert simulate([*words, *more]) == 0
    summary = json.loads((here / "out/summary.json").read_text())
    # 2 ms a round and 0.1 ms a request, as fitted; 0.5 s a node, as the word after it says.
    assert summary["step_ms"]["host"] == pytest.approx(2 + 0.1 + 3 * 500, rel=1e-3)
    assert summary["latency"]["host"]["round_s"] == node["host"]["round_s"]
    assert summary["latency"]["profile"] == "b300"


def test_noise_is_judged_on_rounds_that_were_not_fitted(tmp_path):
    """5 % log-normal noise leaves a median error of 0.6745 x 5 % and a p90 of 1.645 x 5 %."""
    rows = engine_rounds(2000, noise=0.05)
    found = fit_rounds(read_rounds(written(tmp_path / "r.csv", rows)), "b300", seed=4)
    assert found.fitted == 1400
    every = found.judged[0]
    assert (every.batch, every.rounds) == (None, 600)
    assert every.median == pytest.approx(0.6745 * 0.05, rel=0.15)
    assert every.p90 == pytest.approx(1.645 * 0.05, rel=0.15)
    assert sum(one.rounds for one in found.judged[1:]) == 600
    assert found.bare.median > 3 * every.median
    measured, predicted = found.tokens_per_s
    assert predicted == pytest.approx(measured, rel=0.02)
    assert found.host["round_s"] == pytest.approx(2e-3, rel=0.15)


def test_terms_that_cannot_be_told_apart_are_named(tmp_path):
    """One batch, one width: a constant of drafted rounds, one of plain ones."""
    rows = [{**row, "batch": 4, "width": 3 * (row["width"] > 0)} for row in engine_rounds(40)]
    found = fit_rounds(read_rounds(written(tmp_path / "r.csv", rows, COLUMNS[:4])), "b300")
    assert set(found.host) == {"round_s", "plain_s"}
    assert set(found.merged) == {"node_s", "request_s", "plain_request_s"}


def test_rounds_faster_than_the_profile_are_warned_of(tmp_path, capsys):
    """A quarter of the rounds in half the time that the profile has for their device alone."""
    cost = StepCost(find_profile("b300"))
    alone = [
        cost.step(np.full(b, 4), np.full(b, 8192), drafted=True, tree=False).total_s * 1e3
        for b in (1, 2, 4, 8)
    ]
    rows = [
        {"batch": b, "width": 3, "round_ms": ms * (0.5 if b == 2 else 1.1), "committed": b}
        for b, ms in zip((1, 2, 4, 8) * 3, alone * 3)
    ]
    path = written(tmp_path / "r.csv", rows, COLUMNS[:4])
    found = fit_rounds(read_rounds(path), "b300")
    assert (found.faster, found.faster_ratio) == (3, pytest.approx(0.5))
    words = ["cost", path, "--profile", "b300", "--context", "8192"]
    said = "warning: 3 of 12 rounds were faster than the profile's draft and verify alone (in the"
    assert said in printed(capsys, *words)
    rows = [row | {"round_ms": row["round_ms"] * 2.2} for row in rows]
    assert fit_rounds(read_rounds(written(path, rows, COLUMNS[:4])), "b300").faster == 0
    said = printed(capsys, *words)
    assert "warning" not in said
    assert "once per step that drafts" in said


def test_optional_columns_count(tmp_path):
    """Two requests, nodes 3 and 0; drafts of 0.5 ms; 14 nodes put in order at 0.1 ms each."""
    cost = StepCost(find_profile("h100_sxm_qwen3_8b_table6"))
    columns = ("batch", "width", "nodes", "round_ms", "draft_ms", "committed", "context", "ordered")
    rows = []
    for ordered in (14, 20, 26, 30):
        verify = cost.verify_s(2, 5, 2048) * 1e3
        rows.append(
            dict(zip(columns, (2, 3, 3, verify + 0.5 + 0.1 * ordered, 0.5, 2, 2048, ordered)))
        )
    path = written(tmp_path / "r.csv", rows, columns)
    found = fit_rounds(read_rounds(path), "h100_sxm_qwen3_8b_table6", hold_out=0.25)
    assert found.host["ordered_node_s"] == pytest.approx(1e-4)
    assert found.host["round_s"] == pytest.approx(0, abs=1e-9)
    assert found.draft_ratio == pytest.approx(cost.draft_s(2, 2048) / 5e-4)
    assert found.beyond == 1  # the probe had one request


def test_dense_batches_and_graphs_are_priced_as_they_ran(tmp_path):
    b300 = StepCost(find_profile("b300"))
    draft = b300.draft_s(4, 8192) * 1e3
    columns = ("batch", "width", "nodes", "round_ms", "committed", "graph")
    rows = [
        dict(zip(columns, (4, 7, 9, draft + ms + 1, 4, graph)))
        for ms, graph in ((5.592, 0), (5.592, 16), (6.262, 32), (7.9, 64)) * 2
    ]  # 13 tokens
    found = fit_rounds(read_rounds(written(tmp_path / "r.csv", rows, columns)), "b300")
    assert found.host["round_s"] == pytest.approx(1e-3)
    dense = [{**row, "round_ms": draft + 6.262 + 1, "graph": 0} for row in rows]  # 32 tokens
    path = written(tmp_path / "d.csv", dense, columns)
    assert fit_rounds(read_rounds(path), "b300", "dense").host["round_s"] == pytest.approx(1e-3)


HEAD = "batch,width,round_ms,committed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 lines; accepted: a header line and at least one row"),
        ("batch,width,round_ms\n1,1,1\n", "column committed is missing; found batch, width, roun"),
        (f"{HEAD}\n1,1,1,1\n", "1 rounds; accepted: at least 4"),
        (f"{HEAD},ms\n1,1,1,1,1\n", "no table has column ms; accepted: batch, width"),
        (f"{HEAD},batch\n1,1,1,1,1\n", "column 'batch' is there twice"),
        (f"{HEAD}\n1,1,5,1\n0,1,5,1\n", "line 3, column batch: value '0'"),
        (f"{HEAD}\n1,1.5,5,1\n", "line 2, column width: value '1.5'; acc"),
        (f"{HEAD}\n1,1,-5,1\n", "line 2, column round_ms: value '-5'"),
        (f"{HEAD}\n1,1,nan,1\n", "line 2, column round_ms: value 'nan'"),
        (f"{HEAD}\n1,1,inf,1\n", "line 2, column round_ms: value 'inf'"),
        (f"{HEAD}\n1,x,1,1\n", "line 2, column width: value 'x'"),
        (f"{HEAD},tree\n1,1,1,1,2\n", "column tree: value '2'; accepted: t"),
        (f"{HEAD},nodes\n2,3,1,1,7\n", "column nodes: value '7'; accepted: up"),
        (f"{HEAD},drafted\n2,3,1,1,0\n", "column width: value '3'; accepted:"),
        (f"{HEAD}\n\xff,1,1,1\n", "cannot read the table"),
        (None, "cannot read the table"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, capsys, text, message):
    path, out = tmp_path / "rounds.csv", tmp_path / "engine.yaml"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    error = refused(capsys, "cost", path, "--profile", "b300", "--out", out)
    assert error.startswith(f"error: {path}: ")
    assert message in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--profile", "h300"], "latency.profile is 'h300'"),
        (["--profile", "b300", "--hold-out", "1"], "--hold-out is 1; accepted: above 0, below 1"),
        (["--profile", "b300", "--seed", "-1"], "--seed is -1"),
        (["--profile", "b300", "--context", "0"], "--context is 0"),
        (["--profile", "b300", "--out", "x.csv"], "--out is x.csv; accepted: a path that ends"),
    ],
)
def test_bad_options_are_refused(rounds, capsys, words, message):
    assert message in refused(capsys, "cost", rounds, *words)


def test_a_run_folder_is_read(here, recorded, capsys):
    words = [f"trace={recorded}", "policy=fixed_chain", "max_concurrency=4", "num_prompts=40"]
    assert simulate([*words, "latency.host.round_s=0.003", "hydra.run.dir=out"]) == 0
    printed(capsys, "cost", "out", "--profile", "b300", "--out", "engine.yaml")
    host = yaml.safe_load(Path("engine.yaml").read_text())["host"]
    assert host["round_s"] == pytest.approx(3e-3, rel=1e-3)
    assert str(here) in refused(capsys, "cost", here, "--profile", "b300")  # no run in it


# ---------------------------------------------------------------- latency=FILE.yaml


def test_a_file_of_settings_becomes_words(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(
        "profile: b300\nstrict: false\nmode: null\ngraph_sizes: [1, 8]\n"
        "cliffs: [{above: 4, factor: 1.5, per: step}]\nhost: {round_s: 1.0e-05}\n"
    )
    assert normalised([f"latency={path}", "seed=1"]) == [
        "++latency.name=my",
        "++latency.profile=b300",
        "++latency.strict=false",
        "++latency.mode=null",
        "++latency.graph_sizes=[1,8]",
        "++latency.cliffs=[{above:4,factor:1.5,per:step}]",
        "++latency.host.round_s=1e-05",
        "seed=1",
    ]


def test_settings_of_an_engine_reach_a_run(here, recorded):
    Path("my file's.yaml").write_text(
        "profile: b300\nmode: eager\ncliffs: [{above: 2, factor: 2.0}]\nhost: {launch_s: 0.05}\n"
    )
    words = [f"trace={recorded}", "policy=fixed_chain", "num_prompts=4", "max_concurrency=2"]
    assert simulate([*words, "latency=my file's.yaml", "hydra.run.dir=out"]) == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["step_ms"]["total"] == pytest.approx(50)
    assert simulate([*words, "latency.mode=graphs", "hydra.run.dir=other"]) == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.yaml", None, "x.yaml: no YAML that can be read"),
        ("x.yaml", "a: [", "x.yaml: no YAML that can be read"),
        ("x.yaml", "- 3\n", "accepted: KEY: VALUE lines"),
        ("x.yaml,y.yaml", None, "accepted: one file; sweep over files as options of a folder"),
        ("x.yaml", "profile: b300\nspeed: 3\n", "unknown key latency.speed; accepted"),
        ("x.yaml", "profile: b300\nhost: {round_ms: 3}\n", "unknown key latency.host.round_ms"),
    ],
)
def test_bad_files_of_settings_are_refused(here, recorded, capsys, name, text, message):
    if text is not None:
        Path("x.yaml").write_text(text)
    assert simulate([f"trace={recorded}", f"latency={name}", "hydra.run.dir=out"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("out").exists()
