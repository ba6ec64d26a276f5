"""Measured points from the files of others."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from traces.__main__ import main
from traces.errors import InputError
from traces.importers.points import read_points

TRACES = {
    "rows": [
        {"tree_sizes": [4, 8], "accepted_lens": [3, 1]},
        {"tree_sizes": [6], "accepted_lens": [2], "prompt": "x"},
    ]
}
RESULT = {
    "date": "20260101-000000",
    "backend": "vllm",
    "model_id": "some-8b",
    "num_prompts": 10,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 4,
    "duration": 12.5,
    "completed": 10,
    "failed": 0,
    "request_throughput": 0.8,
    "output_throughput": 400.0,
    "total_token_throughput": 700.0,
    "request_goodput": None,
    "mean_ttft_ms": 50.0,
    "median_tpot_ms": 16.0,
    "p99_tpot_ms": 30.0,
    "spec_decode_acceptance_length": 2.5,
    "max_concurrent_requests": 5,
    "errors": ["", ""],
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(format_name: str, content, *words: str, name: str = "in.json") -> int:
    text = content if isinstance(content, str) else json.dumps(content)
    Path(name).write_text(text, encoding="utf-8")
    return main(["import", format_name, name, "--out", "points.json", *words])


def the_point(format_name: str, content, *words: str):
    assert imported(format_name, content, *words) == 0
    (point,) = read_points(Path("points.json")).points
    return point


def refusal(capsys, format_name: str, content, *words: str) -> str:
    """The one line that refuses `content`; nothing is left but the source."""
    before = set(Path().iterdir()) | {Path("in.json")}
    assert imported(format_name, content, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert set(Path().iterdir()) == before
    (line,) = err.splitlines()
    assert "accepted" in line
    return line


def test_traces_are_pooled_over_rounds(here):
    """Rounds of 3, 1 and 2 tokens with 4, 8 and 6 nodes; prompts' means are 2 and 2."""
    point = the_point("treespark-traces", TRACES, "--max-concurrency", "1", "--policy", "treespark")
    assert point.metrics["acceptance_length"] == pytest.approx((3 + 1 + 2) / 3)
    assert point.metrics["acceptance_length_by_prompt"] == pytest.approx((2 + 2) / 2)
    assert point.metrics["draft_nodes_per_request"] == pytest.approx(18 / 3)
    assert point.metrics["share_verified_accepted"] == pytest.approx((2 + 0 + 1) / 18)
    assert (point.policy, point.closed, point.max_concurrency) == ("treespark", True, 1)
    assert point.facts == {"prompts": 2, "rounds": 3}


def test_tree_sizes_may_count_the_root(here):
    point = the_point("treespark-traces", TRACES, "--tree-sizes", "packed")
    assert point.metrics["draft_nodes_per_request"] == pytest.approx(15 / 3)


def test_prompts_without_rounds_do_not_count_in_the_mean(here):
    rows = [*TRACES["rows"], {"tree_sizes": [], "accepted_lens": []}]
    point = the_point("treespark-traces", {"rows": rows})
    assert point.metrics["acceptance_length_by_prompt"] == pytest.approx(2)


@pytest.mark.parametrize("lines", [False, True])
def test_a_list_is_walked_along_its_own_rounds(here, lines):
    """2 at position 0 goes on at 3, which accepts 0, then 4: 3 beyond the end. Three rounds."""
    content = "2\n5\n5\n0\n\n3\n" if lines else [2, 5, 5, 0, 3]
    point = the_point("accepted-list", content)
    assert point.metrics == {
        "acceptance_length": pytest.approx(1 + (2 + 0 + 3) / 3),
        "committed_round_length": pytest.approx(5 / 3),
        "acceptance_length_over_positions": pytest.approx(1 + 15 / 5),
    }


def test_a_list_may_count_the_bonus(here):
    with_bonus = the_point("accepted-list", [3, 6, 6, 1, 4], "--with-bonus")
    assert with_bonus.metrics == the_point("accepted-list", [2, 5, 5, 0, 3]).metrics


def test_every_file_is_one_text(here):
    """Two texts of one round each: no round runs from one into the other."""
    Path("b.txt").write_text("0\n")
    assert main(["import", "accepted-list", "b.txt", "--out", "one.json"]) == 0
    Path("a.txt").write_text("9\n")
    assert main(["import", "accepted-list", "a.txt", "b.txt", "--out", "two.json"]) == 0
    (point,) = read_points(Path("two.json")).points
    assert point.metrics["acceptance_length"] == pytest.approx(1 + (9 + 0) / 2)
    assert point.facts["texts"] == 2
    assert point.file is None


def test_a_result_keeps_its_keys(here, capsys):
    point = the_point("vllm-result", RESULT)
    assert point.metrics == {
        "request_throughput": 0.8,
        "output_throughput": 400.0,
        "total_token_throughput": 700.0,
        "mean_ttft_ms": 50.0,
        "median_tpot_ms": 16.0,
        "p99_tpot_ms": 30.0,
        "spec_decode_acceptance_length": 2.5,
    }
    assert (point.model, point.max_concurrency, point.closed) == ("some-8b", 4, True)
    assert point.facts["backend"] == "vllm"
    assert "lacks: acceptance\n" not in capsys.readouterr().out


def test_other_spellings_and_several_results(here, capsys):
    """One result a line, as --append-result writes them; SGLang writes Infinity and other keys."""
    sglang = {
        "backend": "sglang",
        "request_rate": float("inf"),
        "max_concurrency": 8,
        "mean_e2e_latency_ms": 900.0,
        "accept_length": 3.1,
        "request_goodput:": 0.5,
    }
    open_loop = RESULT | {"request_rate": 2.5, "max_concurrency": None, "failed": 2, "label": "b"}
    lines = "\n".join(json.dumps(one) for one in (sglang, open_loop)) + "\n"
    assert imported("vllm-result", lines) == 0
    first, second = read_points(Path("points.json")).points
    assert first.metrics == {"mean_e2el_ms": 900.0, "accept_length": 3.1, "request_goodput": 0.5}
    assert (first.label, first.closed) == ("in 1", True)
    assert (second.label, second.open, second.request_rate) == ("b", True, 2.5)
    assert "lacks: requests that failed (2 of b)" in capsys.readouterr().out
    assert imported("vllm-result", [sglang, open_loop]) == 0
    assert read_points(Path("points.json")).points == (first, second)


def test_a_ramp_is_no_load(here, capsys):
    point = the_point("vllm-result", RESULT | {"request_rate": 5, "ramp_up_strategy": "linear"})
    assert not point.open
    assert not point.closed
    assert "lacks: load" in capsys.readouterr().out


def test_what_is_lacking_is_printed_and_carried(here, capsys):
    for name, content in (
        ("treespark-traces", TRACES),
        ("accepted-list", [1, 2]),
        ("vllm-result", {"output_throughput": 5}),
    ):
        assert imported(name, content, "--source", "a friend") == 0
        out, found = capsys.readouterr().out, read_points(Path("points.json"))
        assert found.lacks
        assert all(f"lacks: {text}\n" in out for text in found.lacks)
        assert any(text.startswith("load") for text in found.lacks)
        assert (found.importer, found.source) == (name, "a friend")
        digest = hashlib.sha256(Path("in.json").read_bytes()).hexdigest()
        stored = json.loads(Path("points.json").read_text())
        assert stored["files"] == [{"name": "in.json", "sha256": digest}]
        assert f"sha256 {digest[:12]}" in out
    assert "acceptance" in found.lacks


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("treespark-traces", {}, "rows is missing;"),
        ("treespark-traces", [1], "the file is a list of 1;"),
        ("treespark-traces", {"rows": []}, "rows is an empty list;"),
        ("treespark-traces", {"rows": [3]}, "rows[0] is 3;"),
        ("treespark-traces", {"rows": [{"tree_sizes": [1]}]}, "rows[0].accepted_lens is missing;"),
        (
            "treespark-traces",
            {"rows": [{"tree_sizes": [1, 2], "accepted_lens": [1]}]},
            "rows[0].accepted_lens is a list of 1; accepted: 2 entries",
        ),
        (
            "treespark-traces",
            {"rows": [{"tree_sizes": [4], "accepted_lens": [0]}]},
            "rows[0].accepted_lens[0] is 0; accepted: a whole number from 1 to 5",
        ),
        (
            "treespark-traces",
            {"rows": [{"tree_sizes": [4], "accepted_lens": [6]}]},
            "rows[0].accepted_lens[0] is 6; accepted: a whole number from 1 to 5",
        ),
        ("accepted-list", [], "holds no number;"),
        ("accepted-list", "\n", "holds no number;"),
        ("accepted-list", [1, -2], "[1] is -2;"),
        ("accepted-list", [1, 2.0], "[1] is 2.0;"),
        ("accepted-list", [[1]], "[0] is a list of 1;"),
        ("accepted-list", "1\nx\n", "line 2 is 'x';"),
        ("accepted-list", "1\n2 3\n", "line 2 is '2 3';"),
        ("accepted-list", "1\n99999999\n", "line 2 is '99999999';"),
        ("vllm-result", "[]", "the file is an empty list;"),
        ("vllm-result", [3], "[0] is 3;"),
        ("vllm-result", {"hello": 1}, "the file is an object of 1;"),
        ("vllm-result", RESULT | {"mean_ttft_ms": "5"}, "mean_ttft_ms is '5';"),
        ("vllm-result", RESULT | {"mean_ttft_ms": -1}, "mean_ttft_ms is -1;"),
        ("vllm-result", RESULT | {"mean_ttft_ms": float("nan")}, "mean_ttft_ms is nan;"),
        ("vllm-result", RESULT | {"max_concurrency": 0}, "max_concurrency is 0;"),
        ("vllm-result", RESULT | {"request_rate": "trace"}, "request_rate is 'trace';"),
        ("vllm-result", RESULT | {"burstiness": 0}, "burstiness is 0;"),
        ("vllm-result", '{"a": 1}\n{"b": \n', "line 2 column"),
    ],
)
def test_malformed_files_are_named(here, capsys, name, content, said):
    line = refusal(capsys, name, content)
    assert line.startswith("error: in.json: ")
    assert said in line


def test_options_may_add_but_not_contradict(here, capsys):
    assert "--max-concurrency is 5, but in.json has 4" in refusal(
        capsys, "vllm-result", RESULT, "--max-concurrency", "5"
    )
    assert "--request-rate is 'x'" in refusal(capsys, "vllm-result", RESULT, "--request-rate", "x")
    assert "--burstiness is -1.0" in refusal(capsys, "vllm-result", RESULT, "--burstiness", "-1")
    point = the_point("vllm-result", {"output_throughput": 5}, "--request-rate", "2")
    assert (point.open, point.request_rate) == (True, 2.0)
    assert the_point("vllm-result", {"output_throughput": 5}, "--max-concurrency", "2").closed


def test_unknown_formats_and_help(here, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import", "nonsense", "x", "--out", "y"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'nonsense'" in line
    assert "cast-rounds" in line
    with pytest.raises(SystemExit) as ended:
        main(["import", "--help"])
    assert ended.value.code == 0
    listed = capsys.readouterr().out
    names = ("cast-rounds", "cast-probe", "treespark-cost", "treespark-traces", "accepted-list")
    assert all(name in listed for name in (*names, "vllm-result"))


def test_a_file_that_names_paths_opens_none(here):
    """Strings that look like paths stay strings."""
    point = the_point("vllm-result", RESULT | {"label": "../../etc/passwd", "date": "/dev/zero"})
    assert point.label == "../../etc/passwd"


def test_points_files_are_checked(here):
    assert imported("vllm-result", RESULT) == 0
    good = json.loads(Path("points.json").read_text())
    (own,) = good["points"]
    for change, said in (
        ({"format": "x"}, "format is 'x';"),
        ({"version": 2}, "version is 2;"),
        ({"version": True}, "version is True;"),
        ({"points": []}, "points is an empty list;"),
        ({"lacks": [3]}, "lacks[0] is 3;"),
        ({"points": [own | {"metrics": {}}]}, "points[0].metrics is an empty object;"),
        ({"points": [own | {"metrics": {"x": "1"}}]}, "points[0].metrics.x is '1';"),
        ({"points": [own | {"request_rate": "fast"}]}, "points[0].request_rate is 'fast';"),
        ({"points": [own | {"colour": 1}]}, "points[0].colour is 1;"),
        ({"points": [own | {"facts": {"x": []}}]}, "points[0].facts.x is an empty list;"),
    ):
        Path("bad.json").write_text(json.dumps(good | change))
        with pytest.raises(InputError) as raised:
            read_points(Path("bad.json"))
        assert f"bad.json: {said}" in str(raised.value)
        assert "accepted" in str(raised.value)


def test_nothing_heavy_is_loaded(here):
    code = "import traces, traces.__main__, sys; print(*sys.modules)"
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "traces.importers.cast_log" in loaded
    assert not loaded & {"torch", "yaml", "matplotlib", "simulator"}
    light = subprocess.run(
        [sys.executable, "-c", "import traces, sys; print(*sys.modules)"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert "traces.importers" not in light.stdout.split()
