"""`python -m analysis points`: predictions beside imported measurements."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main as analyse
from tests.figure_cases import summary, write_run
from tests.importing import RESULT, imported


@pytest.fixture
def runs(here):
    """A function that writes each summary into a folder of its own below runs/."""
    return lambda *summaries: [write_run(Path("runs"), data) for data in summaries]


def played(policy: str = "cast", throughput: float = 380.0, **changes) -> dict:
    """The summary of a run that paid no prefill; its first token waits for the queue alone."""
    usual = {"mean_ttft_ms": 12.0, "ttft_note": "queue only", "goodput": None}
    usual |= {"spec_decode_acceptance_length": 2.0, "acceptance_length": 2.0}
    usual["latency"] = {"profile": "card", "model": "some-8b"}
    without = {"request_throughput", "request_goodput"}
    return {k: v for k, v in summary(policy, throughput, **usual | changes).items()
            if k not in without - set(changes)}  # fmt: skip


def compared(capsys, result, *words: str, policy: str = "") -> tuple[list[dict], list[str]]:
    """Rows and notes of the CSV format, of the runs beside an import of `result`."""
    assert imported("vllm-result", result, *(["--policy", policy] if policy else [])) == 0
    capsys.readouterr()
    assert analyse(["points", "runs", "--points", "points.json", "--format", "csv", *words]) == 0
    out, err = capsys.readouterr()
    return list(csv.DictReader(io.StringIO(out))), err.splitlines()


def test_errors_are_relative_to_the_measurement(runs, capsys):
    """Seeds of 380 and 420 tokens/s against 400; TPOT 20 ms against 16."""
    runs(played(), played("cast", 420.0, seed=1))
    rows, notes = compared(capsys, RESULT)
    found = {row["metric"]: row for row in rows}
    assert float(found["output_throughput"]["predicted"]) == 400.0
    assert float(found["output_throughput"]["relative_error"]) == pytest.approx(0.0)
    assert found["output_throughput"]["seeds"] == "0 1"
    assert float(found["median_tpot_ms"]["relative_error"]) == pytest.approx(20 / 16 - 1)
    assert float(found["spec_decode_acceptance_length"]["relative_error"]) == pytest.approx(-0.2)
    assert any("whole duration" in note for note in notes)
    assert any("points.json lacks: prompts and temperature" in note for note in notes)


def test_metrics_that_mean_something_else_have_no_error(runs, capsys):
    runs(played())
    result = RESULT | {"accept_length": 3.0}
    rows, notes = compared(capsys, result)
    found = {row["metric"]: row for row in rows}
    assert found["mean_ttft_ms"]["relative_error"] == ""  # queue only: no prefill
    assert "no prefill" in found["mean_ttft_ms"]["note"]
    assert found["accept_length"]["predicted"] == "2.0"
    assert found["accept_length"]["relative_error"] == ""
    assert any(note.startswith("note: accept_length: SGLang") for note in notes)
    absent = "request_throughput, total_token_throughput: measured, but in no summary of cast"
    assert f"note: {absent}" in notes
    runs(played(ttft_note="queue and prefill", seed=1))
    shutil.rmtree("runs/run0")
    rows, _ = compared(capsys, result, "--metric", "mean_ttft_ms")
    assert [float(row["relative_error"]) for row in rows] == [pytest.approx(12 / 50 - 1)]


def test_loads_without_counterpart_are_named(runs, capsys):
    runs(played("cast", 1.0, max_concurrency=8), played("cast", 2.0, request_rate=2.0))
    results = [RESULT, RESULT | {"request_rate": 2.0, "max_concurrency": None}]
    rows, notes = compared(capsys, results)
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
    runs(played("cast", 1.0, request_rate=2.0))
    load = {"request_rate": 2.0, "max_concurrency": None}
    rows, notes = compared(capsys, RESULT | load | changes)
    assert bool(rows) == matches
    assert any("measured alone" in note for note in notes) != matches


def test_a_named_policy_stands_beside_its_own_runs(runs, capsys):
    runs(played(), played("treespark", 420.0))
    throughput = ("--metric", "output_throughput")
    rows, _ = compared(capsys, RESULT, *throughput, policy="treespark")
    assert [row["policy"] for row in rows] == ["treespark"]
    rows, _ = compared(capsys, RESULT, *throughput)
    assert {row["policy"] for row in rows} == {"cast", "treespark"}
    rows, notes = compared(capsys, RESULT, policy="mine")
    assert rows == []
    assert any("has no run of policy mine beside it" in note for note in notes)


def test_models_and_what_ifs_are_named(runs, capsys):
    runs(played(what_if=True, what_if_reason="because"))
    _, notes = compared(capsys, RESULT | {"model_id": "other-4b"})
    assert "note: in measured other-4b, the runs price steps of some-8b" in notes
    assert "note: small on card is a what-if: because" in notes


def test_tables_and_markdown(runs, capsys):
    runs(played())
    assert imported("vllm-result", RESULT) == 0
    capsys.readouterr()
    assert analyse(["points", "runs", "--points", "points.json"]) == 0
    table = capsys.readouterr().out
    line = next(line for line in table.splitlines() if "output_throughput" in line)
    assert line.split()[-4:] == ["400", "380", "-5.0%", "*"]
    assert "lacks: prompts and temperature" in table
    assert analyse(["points", "runs", "--points", "points.json", "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| point | load | runs | policy | metric |")
    wanted = "| in | concurrency 4 | small on card | cast | median_tpot_ms | 16 | 20 | +25.0% |"
    assert wanted in lines


def test_bad_arguments(runs, capsys):
    runs(played())
    assert imported("vllm-result", RESULT) == 0
    capsys.readouterr()
    for words, said in (
        (["runs", "--points", "no.json"], "no.json: no such file"),
        (["runs", "--points", "in.json"], "format is missing;"),
        (["runs", "--points", "points.json", "--metric", "x"], "--metric 'x'"),
        (["none", "--points", "points.json"], "none: not a folder"),
    ):
        assert analyse(["points", *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert said in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("stated", "ours", "error"),
    [
        (None, {"tpot": 50.0}, "of the measurement are not known"),
        ("quick", {"tpot": 50.0}, "of the measurement are not known"),
        ("tpot:50", None, "the runs have no objectives"),
        ("tpot:50", {"tpot": 50.0, "e2el": 9.0}, "are tpot:50, of the runs tpot:50 e2el:9"),
        ("e2el:9 tpot:50.0", {"tpot": 50.0, "e2el": 9.0}, None),
    ],
)
def test_goodput_is_compared_where_both_ask_for_the_same(runs, capsys, stated, ours, error):
    """0.75 requests/s predicted against 0.5 is 50 % more, if the question was the same."""
    runs(played(goodput=ours, request_goodput=0.75 if ours else None))
    stated = {"goodput": stated} if stated else {}
    found, notes = compared(capsys, RESULT | {"request_goodput": 0.5} | stated)
    rows = {row["metric"]: row for row in found}
    assert ("request_goodput" in rows) == (error is None)
    if error is None:
        assert float(rows["request_goodput"]["relative_error"]) == pytest.approx(0.5)
    else:
        assert any("request_goodput: left out: " in one and error in one for one in notes)
    words = ["points", "runs", "--points", "points.json", "--metric", "request_goodput"]
    assert analyse(words) == 0
    alone = capsys.readouterr().out
    assert ("or a metric of the same meaning" in alone) == (error is not None)


def test_arrivals_of_a_file_are_no_drawn_ones(runs, capsys):
    """A point at 0.5 requests/s of drawn gaps is no run that plays a file of that rate."""
    file = {"file": "w.csv", "sha256": "a", "played_rate": 0.5}
    runs(played(request_rate=0.5, workload=file))
    rows, notes = compared(capsys, RESULT | {"request_rate": 0.5, "max_concurrency": None})
    assert rows == []
    assert "measured alone: in at request rate 0.5/s" in "".join(notes)
