"""`python -m analysis points`: predictions beside imported measurements."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from analysis.__main__ import main as analyse
from tests.importing import RESULT, imported


def summary(policy: str, throughput: float, **changes) -> dict:
    shares = {"measured": 1.0, "interpolated": 0.0, "modelled": 0.0, "clamped": 0.0}
    return {
        "format": "specdec-summary",
        "version": 1,
        "policy": policy,
        "policy_fit": {},
        "trace": {"recording": "small", "content_hash": "ab" * 16},
        "latency": {"profile": "card", "model": "some-8b"},
        "what_if": False,
        "max_concurrency": 4,
        "request_rate": "inf",
        "burstiness": 1.0,
        "seed": 0,
        "num_prompts": 8,
        "completed": 8,
        "window": {"kind": "full batch"},
        "output_throughput": throughput,
        "mean_ttft_ms": 12.0,
        "median_tpot_ms": 20.0,
        "p99_tpot_ms": 30.0,
        "ttft_note": "queue only",
        "acceptance_length": 2.0,
        "spec_decode_acceptance_length": 2.0,
        "draft_nodes_per_request": 0.0,
        "share_verified_accepted": None,
        "cost_shares": {"time": shares},
        "acceptance_length_by_budget": None,
    } | changes


@pytest.fixture
def runs(here):
    """A function that writes each summary into a folder of its own below runs/."""

    def write(*summaries: dict) -> None:
        for number, data in enumerate(summaries):
            folder = Path("runs", str(number))
            folder.mkdir(parents=True)
            (folder / "summary.json").write_text(json.dumps(data))

    return write


def compared(capsys, *words: str) -> tuple[list[dict], list[str]]:
    """Rows and notes of the CSV format."""
    capsys.readouterr()
    assert analyse(["points", "runs", "--points", "points.json", "--format", "csv", *words]) == 0
    out, err = capsys.readouterr()
    return list(csv.DictReader(io.StringIO(out))), err.splitlines()


def test_errors_are_relative_to_the_measurement(runs, capsys):
    """Seeds of 380 and 420 tokens/s against 400; TPOT 20 ms against 16."""
    runs(summary("cast", 380.0), summary("cast", 420.0, seed=1))
    assert imported("vllm-result", RESULT) == 0
    rows, notes = compared(capsys)
    found = {row["metric"]: row for row in rows}
    assert float(found["output_throughput"]["predicted"]) == 400.0
    assert float(found["output_throughput"]["relative_error"]) == pytest.approx(0.0)
    assert found["output_throughput"]["seeds"] == "0 1"
    assert float(found["median_tpot_ms"]["relative_error"]) == pytest.approx(20 / 16 - 1)
    assert float(found["spec_decode_acceptance_length"]["relative_error"]) == pytest.approx(-0.2)
    assert any("whole duration" in note for note in notes)
    assert any("points.json lacks: prompts and temperature" in note for note in notes)


def test_metrics_that_mean_something_else_have_no_error(runs, capsys):
    runs(summary("cast", 380.0))
    assert imported("vllm-result", RESULT | {"accept_length": 3.0}) == 0
    rows, notes = compared(capsys)
    found = {row["metric"]: row for row in rows}
    assert found["mean_ttft_ms"]["relative_error"] == ""  # queue only: no prefill
    assert "no prefill" in found["mean_ttft_ms"]["note"]
    assert found["accept_length"]["predicted"] == "2.0"
    assert found["accept_length"]["relative_error"] == ""
    assert any(note.startswith("note: accept_length: SGLang") for note in notes)
    absent = "request_throughput, total_token_throughput: measured, but in no summary of cast"
    assert f"note: {absent}" in notes


def test_ttft_with_prefill_is_compared(runs, capsys):
    runs(summary("cast", 380.0, ttft_note="queue and prefill"))
    assert imported("vllm-result", RESULT) == 0
    rows, _ = compared(capsys, "--metric", "mean_ttft_ms")
    assert [float(row["relative_error"]) for row in rows] == [pytest.approx(12 / 50 - 1)]


def test_loads_without_counterpart_are_named(runs, capsys):
    runs(summary("cast", 1.0, max_concurrency=8), summary("cast", 2.0, request_rate=2.0))
    results = [RESULT, RESULT | {"request_rate": 2.0, "max_concurrency": None}]
    assert imported("vllm-result", results) == 0
    rows, notes = compared(capsys)
    assert {(row["point"], row["request_rate"]) for row in rows} == {("in 2", "2.0")}
    assert "note: measured alone: in 1 at concurrency 4 has no run beside it" in notes
    assert "note: predicted alone: small on card at concurrency 8 has no measured point" in notes


@pytest.mark.parametrize(
    ("changes", "matches"),
    [
        ({}, True),
        ({"request_rate": 2.001}, False),
        ({"burstiness": 0.5}, False),
        ({"max_concurrency": 4}, True),
        ({"max_concurrency": 5}, False),
    ],
)
def test_arrivals_match_by_rate_burstiness_and_a_stated_cap(runs, capsys, changes, matches):
    runs(summary("cast", 1.0, request_rate=2.0))
    load = {"request_rate": 2.0, "max_concurrency": None}
    assert imported("vllm-result", RESULT | load | changes) == 0
    rows, notes = compared(capsys)
    assert bool(rows) == matches
    assert any("measured alone" in note for note in notes) != matches


def test_a_named_policy_stands_beside_its_own_runs(runs, capsys):
    runs(summary("cast", 380.0), summary("treespark", 420.0))
    assert imported("vllm-result", RESULT, "--policy", "treespark") == 0
    rows, _ = compared(capsys, "--metric", "output_throughput")
    assert [row["policy"] for row in rows] == ["treespark"]
    assert imported("vllm-result", RESULT) == 0
    rows, _ = compared(capsys, "--metric", "output_throughput")
    assert {row["policy"] for row in rows} == {"cast", "treespark"}
    assert imported("vllm-result", RESULT, "--policy", "mine") == 0
    rows, notes = compared(capsys)
    assert rows == []
    assert any("has no run of policy mine beside it" in note for note in notes)


def test_models_and_what_ifs_are_named(runs, capsys):
    runs(summary("cast", 380.0, what_if=True, what_if_reason="because"))
    assert imported("vllm-result", RESULT | {"model_id": "other-4b"}) == 0
    _, notes = compared(capsys)
    assert "note: in measured other-4b, the runs price steps of some-8b" in notes
    assert "note: small on card is a what-if: because" in notes


def test_tables_and_markdown(runs, capsys):
    runs(summary("cast", 380.0))
    assert imported("vllm-result", RESULT) == 0
    capsys.readouterr()
    assert analyse(["points", "runs", "--points", "points.json"]) == 0
    table = capsys.readouterr().out
    line = next(line for line in table.splitlines() if "output_throughput" in line)
    assert line.split()[-4:] == ["400", "380", "-5.0%", "*"]
    assert "lacks: prompts and temperature" in table
    words = ["points", "runs", "--points", "points.json", "--format", "markdown"]
    assert analyse(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| point | load | runs | policy | metric |")
    wanted = "| in | concurrency 4 | small on card | cast | median_tpot_ms | 16 | 20 | +25.0% |"
    assert wanted in lines


def test_bad_arguments(runs, capsys):
    runs(summary("cast", 380.0))
    assert imported("vllm-result", RESULT) == 0
    capsys.readouterr()
    for words, said in (
        (["runs", "--points", "no.json"], "no.json: no such file"),
        (["runs", "--points", "in.json"], "format is None;"),
        (["runs", "--points", "points.json", "--metric", "x"], "--metric 'x'"),
        (["none", "--points", "points.json"], "none: not a folder"),
    ):
        assert analyse(["points", *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert said in err
        assert err.count("\n") == 1
