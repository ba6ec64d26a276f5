"""`python -m simulator task=bounds`, and `python -m analysis reach` on what it wrote."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from analysis.__main__ import main as analyse
from simulator.cli.main import main
from tests.figure_cases import summary as finished

RATES = {"plain": 100.0, "o2": 300.0, "o3": 500.0, "o5": 350.0, "o5_free": 550.0}


def test_bounds_of_a_recording(here, recorded, capsys):
    words = ["task=bounds", f"trace={recorded}", "bounds.nodes=15", "bounds.batches=[4,1]"]
    assert main([*words, "hydra.run.dir=out"]) == 0
    found = {path.name for path in (here / "out").glob("*") if path.is_file()}
    assert found == {"bounds.json"}
    result = json.loads((here / "out/bounds.json").read_text())
    assert [entry["batch"] for entry in result["batches"]] == [1, 4]
    assert result["order"] == {"nodes": 15, "branch": 8, "scores": "auto"}
    printed = capsys.readouterr().out
    rate = result["batches"][0]["bounds"]["o2"]["output_throughput"]
    assert f"{rate:.1f}" in printed
    assert "what-if" in printed
    assert "results in out/bounds.json" in printed


def test_settings_of_bounds_are_not_a_runs(here, recorded):
    """A run with other bounds settings is the same run."""
    words = [f"trace={recorded}", "policy=autoregressive", "num_prompts=4", "hydra.run.dir=out"]
    hashes = []
    for more in ([], ["bounds.nodes=7"]):
        assert main([*words, *more]) == 0
        hashes.append(json.loads(Path("out/summary.json").read_text())["config_hash"])
    assert hashes[0] == hashes[1]


def test_a_runs_reach_end_to_end(here, recorded, capsys):
    """Runs and bounds of one recording fit together; no policy reaches more than everything."""
    words = [f"trace={recorded}", "num_prompts=40"]
    sweep = ["-m", "policy=autoregressive,fixed_chain", "max_concurrency=1,4"]
    assert main([*sweep, *words, "hydra.sweep.dir=runs"]) == 0
    assert main(["task=bounds", *words, "bounds.nodes=15", "hydra.run.dir=out"]) == 0
    capsys.readouterr()
    command = ["reach", "runs", "--bounds", "out/bounds.json"]
    rows = reached(command, capsys)
    keys = [(row["max_concurrency"], row["policy"]) for row in rows]
    policies = ("autoregressive", "fixed_chain")
    assert keys == [(batch, policy) for batch in ("1", "4") for policy in policies]
    for row in rows:
        assert float(row["reach_free"]) < 1
        if row["policy"] == "autoregressive":
            assert abs(float(row["reach_free"])) < 0.02
    for text in ("table", "markdown"):
        assert analyse([*command, "--format", text]) == 0
        assert "fixed_chain" in capsys.readouterr().out


@pytest.fixture
def folder(tmp_path):
    """A function that writes bounds and summaries by hand; returns the words of the command."""

    def write(*runs: dict, bounds: dict | None = None) -> list[str]:
        for index, run in enumerate(runs):
            path = tmp_path / "runs" / str(index)
            path.mkdir(parents=True)
            (path / "summary.json").write_text(json.dumps(run))
        path = tmp_path / "bounds.json"
        path.write_text(json.dumps(BOUNDS | (bounds or {})))
        return ["reach", str(tmp_path / "runs"), "--bounds", str(path)]

    return write


TRACE = {"recording": "small", "content_hash": "ab" * 32, "split": "report", "domains": ["a", "b"]}
LATENCY = {"profile": "card_a", "kind": "measured", "packing": "ragged"}
BOUNDS = {
    "format": "specdec-bounds",
    "version": 1,
    "trace": TRACE,
    "latency": LATENCY,
    "order": {"nodes": 63},
    "batches": [
        {"batch": batch, "bounds": {k: {"output_throughput": v} for k, v in RATES.items()}}
        for batch in (1, 4)
    ],
}


def summary(policy: str, throughput: float, **changes) -> dict:
    node = {"trace": TRACE | {"unique_prompts": 5}, "latency": LATENCY} | changes
    return finished(policy, throughput, **node)


def test_shares_by_hand(folder, capsys):
    command = folder(
        summary("cast", 200.0, max_concurrency=1),
        summary("cast", 225.0),
        summary("cast", 275.0, seed=1),
    )
    alone, batch = reached(command, capsys)
    assert (alone["max_concurrency"], batch["max_concurrency"]) == ("1", "4")
    # Alone 100 of the 200 up to O2 and of the 400 up to O3; in the batch 125 and 175 of 250.
    assert float(alone["reach_in_order"]) == 0.5
    assert float(alone["reach_free"]) == 0.25
    assert float(batch["reach_in_order"]) == pytest.approx(0.6)
    # Two seeds: 12.706 times the deviation sqrt(2) * 0.1 over sqrt(2).
    assert float(batch["reach_in_order_ci95"]) == pytest.approx(1.2706, rel=1e-3)
    assert analyse(command) == 0
    assert "60.0% ±127.1%" in capsys.readouterr().out


def reached(command: list[str], capsys) -> list[dict]:
    assert analyse([*command, "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_no_gain_no_share(folder, capsys):
    flat = {name: {"output_throughput": 100.0} for name in RATES}
    command = folder(summary("cast", 90.0), bounds={"batches": [{"batch": 4, "bounds": flat}]})
    (row,) = reached(command, capsys)
    assert row["reach_in_order"] == row["reach_free"] == ""


def test_the_batch_is_what_the_server_runs(folder, capsys):
    """256 clients of a server of 4 sequences are bounded as a batch of 4."""
    command = folder(summary("cast", 225.0, max_concurrency=256, server={"max_num_seqs": 4}))
    (row,) = reached(command, capsys)
    assert float(row["reach_in_order"]) == 0.5


def test_rows_of_several_settings_say_which(folder, capsys):
    servers = ({"max_num_seqs": 4}, {"max_num_seqs": 1})
    runs = (summary("cast", 200.0, server=server) for server in servers)
    command = folder(*runs)
    rows = reached(command, capsys)
    # 100 of 250 up to O5 in a batch of 4, and of 200 up to O2 alone.
    assert [(row["setting"], float(row["reach_in_order"])) for row in rows] == [
        ("server.max_num_seqs=1", 0.5),
        ("server.max_num_seqs=4", pytest.approx(0.4)),
    ]
    assert analyse([*command, "--format", "markdown"]) == 0
    assert "| server.max_num_seqs=1 | 4 | cast | 1 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("run", "bounds", "message"),
    [
        ({"trace": TRACE | {"content_hash": "cd" * 32}}, {}, "trace.content_hash is 'cdcd"),
        ({"trace": TRACE | {"split": "tuning"}}, {}, "trace.split is 'tuning', expected 'report'"),
        ({"trace": TRACE | {"domains": ["a"]}}, {}, "trace.domains is ['a'], expected ['a', 'b']"),
        ({"latency": LATENCY | {"profile": "card_b"}}, {}, "latency.profile is 'card_b', expect"),
        ({"latency": LATENCY | {"packing": "dense"}}, {}, "latency.packing is 'dense', expected"),
        ({"latency": LATENCY | {"draft_steps": 2}}, {}, "latency.draft_steps is 2, expected None"),
        ({"latency": LATENCY | {"content_hash": "ef" * 32}}, {}, "latency.content_hash is 'efef"),
        ({"latency": LATENCY | {"content_hash": "ef"}}, {}, "expected not known as in"),
        ({"server": {"replicas": 2}}, {}, "server.replicas is 2, expected 1: the bounds are of th"),
        ({"workload": {"file": "w.csv"}}, {}, "workload is w.csv, expected the recorded texts"),
        ({"request_rate": 3.0}, {}, "request_rate is 3, expected a closed loop"),
        ({"max_concurrency": 8}, {}, "batch 8 has no bound in"),
        ({}, {"format": "other"}, 'not bounds, expected format "specdec-bounds"'),
        ({}, {"version": 2}, "version is 2; accepted: 1"),
        ({}, {"batches": []}, "batches is []; accepted: more entries"),
        ({}, {"batches": [{"batch": 1, "bounds": {}}]}, "batches[0].bounds.plain is missing"),
        ({}, {"batches": [7]}, "batches[0] is 7; accepted: a mapping"),
        ({}, {"latency": {}}, "latency.profile is missing"),
        ({}, None, "bounds.json: unreadable"),
    ],
)
def test_other_settings_and_damaged_bounds_are_refused(folder, capsys, run, bounds, message):
    command = folder(summary("cast", 1.0), summary("fixed_chain", 1.0, **run), bounds=bounds)
    if bounds is None:
        Path(command[-1]).unlink()
    assert analyse(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
