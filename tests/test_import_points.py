"""Measured points from the files of others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.importing import RESULT, imported, refusal
from traces.__main__ import main
from traces.common.errors import InputError
from traces.importers.points import objectives_in, read_points

TRACES = {
    "rows": [
        {"tree_sizes": [4, 8], "accepted_lens": [3, 1]},
        {"tree_sizes": [6], "accepted_lens": [2], "prompt": "x"},
    ]
}


def the_point(format_name: str, content, *words: str):
    assert imported(format_name, content, *words) == 0
    (point,) = read_points(Path("points.json")).points
    return point


def test_traces_are_pooled_over_rounds(here):
    """Rounds of 3, 1 and 2 tokens with 4, 8 and 6 nodes; prompts' means are 2 and 2."""
    point = the_point("treespark-traces", TRACES, "--max-concurrency", "1", "--policy", "treespark")
    assert point.metrics["acceptance_length"] == pytest.approx((3 + 1 + 2) / 3)
    assert point.metrics["acceptance_length_by_prompt"] == pytest.approx((2 + 2) / 2)
    assert point.metrics["draft_nodes_per_request"] == pytest.approx(18 / 3)
    assert point.metrics["share_verified_accepted"] == pytest.approx((2 + 0 + 1) / 18)
    assert (point.policy, point.closed, point.max_concurrency) == ("treespark", True, 1)
    assert point.facts == {"prompts": 2, "rounds": 3}
    silent = [*TRACES["rows"], {"tree_sizes": [], "accepted_lens": []}]  # not in the mean
    point = the_point("treespark-traces", {"rows": silent})
    assert point.metrics["acceptance_length_by_prompt"] == pytest.approx(2)
    point = the_point("treespark-traces", TRACES, "--tree-sizes", "packed")  # with the root
    assert point.metrics["draft_nodes_per_request"] == pytest.approx(15 / 3)


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
    with_bonus = the_point("accepted-list", [3, 6, 6, 1, 4], "--with-bonus")
    assert with_bonus.metrics == point.metrics


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
    paths = {"label": "../../etc/passwd", "date": "/dev/zero"}  # texts, which open nothing
    point = the_point("vllm-result", RESULT | paths)
    assert point.label == "../../etc/passwd"
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


def unused_in(out: str) -> list[str]:
    """The keys of the one line that says what was read."""
    (line,) = [line for line in out.splitlines() if line.startswith("read ")]
    _, found, names = line.partition("; keys not used: ")
    return names.split(", ") if found else []


def test_every_key_of_a_result_is_used_or_printed(here, capsys):
    """Without a key that is printed the points are the same, without any other they are not.

    The counts of tokens alone go into no point: throughputs are held against them.
    """
    counts = {"total_input_tokens": 3750, "total_output_tokens": 5000}  # 300 and 400 a second
    result = RESULT | counts | {"my_own_key": 3, "label": "b", "model": "x", "ttfts": [0.1]}
    assert imported("vllm-result", result) == 0
    unused = unused_in(capsys.readouterr().out)
    assert unused == ["errors", "max_concurrent_requests", "model", "my_own_key", "ttfts"]
    whole = read_points(Path("points.json")).points
    for key in result:
        assert imported("vllm-result", {k: v for k, v in result.items() if k != key}) == 0
        same = read_points(Path("points.json")).points == whole
        silent = key in unused or key in counts or result[key] is None
        assert same == silent, key


def test_what_cannot_be_used_is_printed_too(here, capsys):
    """A label and a date that are no texts, and a rate that a ramp, which is no load, overrides."""
    odd = {"label": 3, "date": ["x"], "request_rate": 2.0, "ramp_up_strategy": "linear"}
    point = the_point("vllm-result", RESULT | odd | {"backend": None})
    assert (point.open, point.closed) == (False, False)
    out = capsys.readouterr().out
    assert "lacks: load" in out
    unused = unused_in(out)
    assert unused == ["date", "errors", "label", "max_concurrent_requests", "request_rate"]


def test_unused_keys_of_all_results_and_rows_are_printed(here, capsys):
    assert imported("vllm-result", [RESULT | {"a": 1}, RESULT | {"b": 1}]) == 0
    assert {"a", "b"} < set(unused_in(capsys.readouterr().out))
    assert imported("treespark-traces", TRACES | {"seed": 1}) == 0
    assert unused_in(capsys.readouterr().out) == ["rows[].prompt", "seed"]
    assert imported("vllm-result", RESULT | {f"k{i:03}": i for i in range(100)}) == 0
    names = unused_in(capsys.readouterr().out)
    assert len(names) == 40  # of 102
    assert names[-1].endswith(" and 62 more")


EXACT = {"duration": 12.345678901, "request_throughput": 10 / 12.345678901}
EXACT |= {"total_output_tokens": 4930}  # 399.33 a second


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"completed": 96, "duration": 1.3, "request_throughput": 738}, "96 / 1.3 = 73.8"),
        ({"request_throughput": 0.9}, "is 0.9; accepted: (completed) / duration"),
        # 10 / 13 = 0.769, and 13 may be anything from 12.5 to 13.5: 0.741 to 0.8
        ({"duration": 13}, None),
        ({"duration": 13, "request_throughput": 0.739}, "10 / 13 = 0.769231"),
        ({"duration": 13, "request_throughput": 0.741}, None),
        ({"total_output_tokens": 5000}, None),
        ({"total_output_tokens": 5100}, "output_throughput is 400.0;"),
        ({"total_output_tokens": 5000, "total_input_tokens": 3750}, None),
        ({"total_output_tokens": 5000, "total_input_tokens": 3800}, "total_token_throughput is"),
        ({"duration": 0}, None),
        ({"completed": None}, None),
        (EXACT, "output_throughput is 400.0;"),
    ],
)
def test_rates_must_be_those_of_the_counts(here, capsys, changes, said):
    if said is None:
        assert imported("vllm-result", RESULT | changes) == 0
    else:
        assert said in refusal(capsys, "vllm-result", RESULT | changes)


def test_a_policy_that_nothing_is_called_is_warned_about(here, capsys):
    """It is taken: a run of one's own policy may have the name. Labels add settings to a name."""
    for policy, near in (("kast", "near it: cast"), ("mine", ""), ("cast", "")):
        point = the_point("vllm-result", RESULT, "--policy", policy)
        assert point.policy == policy
        err = capsys.readouterr().err
        assert err.count("\n") == (policy != "cast")
        assert err.startswith(f"warning: --policy is {policy!r}") == (policy != "cast")
        assert near in err
    the_point("vllm-result", RESULT, "--policy", "cast theta=0.4")
    assert capsys.readouterr().err == ""


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


def _row(sizes: list, lengths: list) -> tuple:
    return "treespark-traces", {"rows": [{"tree_sizes": sizes, "accepted_lens": lengths}]}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("treespark-traces", {}, "rows is missing;"),
        ("treespark-traces", [1], "the file is a list of 1;"),
        ("treespark-traces", {"rows": []}, "rows is an empty list;"),
        ("treespark-traces", {"rows": [3]}, "rows[0] is 3;"),
        ("treespark-traces", {"rows": [{"tree_sizes": [1]}]}, "rows[0].accepted_lens is missing;"),
        (*_row([1, 2], [1]), "rows[0].accepted_lens is a list of 1; accepted: 2 entries"),
        (*_row([4], [0]), "accepted_lens[0] is 0; accepted: a whole number from 1 to 5"),
        (*_row([4], [6]), "accepted_lens[0] is 6; accepted: a whole number from 1 to 5"),
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
    for words, said in (
        (["--max-concurrency", "5"], "--max-concurrency is 5, but in.json has 4"),
        (["--request-rate", "x"], "--request-rate is 'x'"),
        (["--burstiness", "-1"], "--burstiness is '-1'"),
    ):
        assert said in refusal(capsys, "vllm-result", RESULT, *words)
    point = the_point("vllm-result", {"output_throughput": 5}, "--request-rate", "2")
    assert (point.open, point.request_rate) == (True, 2.0)
    assert the_point("vllm-result", {"output_throughput": 5}, "--max-concurrency", "2").closed


def test_points_files_are_checked(here):
    assert imported("vllm-result", RESULT) == 0
    good = json.loads(Path("points.json").read_text())
    (own,) = good["points"]
    for change, said in (
        ({"format": "x"}, "format is 'x';"),
        ({"version": 2}, "version is 2;"),
        ({"version": True}, "version is True;"),
        ({"points": []}, "points is an empty list;"),
        ({"lacks": [3]}, "lacks is [3];"),
        ({"points": [own | {"metrics": {}}]}, "points[0].metrics is {};"),
        ({"points": [own | {"metrics": {"x": "1"}}]}, "points[0].metrics is {'x': '1'};"),
        ({"points": [own | {"request_rate": "fast"}]}, "points[0].request_rate is 'fast';"),
        ({"points": [own | {"colour": 1}]}, "unknown key points[0].colour;"),
        ({"points": [own | {"facts": {"x": []}}]}, "points[0].facts is {'x': []};"),
    ):
        Path("bad.json").write_text(json.dumps(good | change))
        with pytest.raises(InputError) as raised:
            read_points(Path("bad.json"))
        assert f"bad.json: {said}" in str(raised.value)
        assert "accepted" in str(raised.value)


GOOD = RESULT | {"request_goodput": 0.5}


def test_missing_objectives_are_lacking(here, capsys):
    assert imported("vllm-result", [GOOD, GOOD | {"goodput": "tpot:50", "label": "b"}]) == 0
    assert "lacks: objectives of request_goodput (in 1)\n" in capsys.readouterr().out
    first, second = read_points(Path("points.json")).points
    assert (first.objectives, second.objectives) == (None, {"tpot": 50.0})
    for content, said in ((GOOD, True), (GOOD | {"goodput": "tpot:50"}, False), (RESULT, False)):
        assert imported("vllm-result", content) == 0
        out = capsys.readouterr().out
        assert ("lacks: objectives of request_goodput\n" in out) == said


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("tpot:50 e2el:2000.5", {"tpot": 50.0, "e2el": 2000.5}),
        (" ttft:1  tpot:2 ", {"ttft": 1.0, "tpot": 2.0}),
        ("tpot:50 tpot:60", None),
        ("tpot:50ms", None),
        ("tpot=50", None),
        ("latency:5", None),
        ("", None),
        (50, None),
        (None, None),
    ],
)
def test_objectives_in_words(text, limits):
    assert objectives_in(text) == limits
