"""Rows of workload files made to fit a run: what changes, and that it is counted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.workload_texts import BURSTGPT, OURS, SHAREGPT, write
from traces import InputError
from traces.workloads import Clip, Rows, open_workload, scaled

HEADER = "time_s,prompt_tokens,output_tokens\n"


def of_times(folder, times):
    text = HEADER + "".join(f"{t},5,5\n" for t in times)
    return open_workload(write(folder, "w.csv", text))


def read(played):
    """All of a small file, and what its report says."""
    (rows,) = list(played)
    facts = played.report.describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    return rows, facts


def test_nothing_asked_nothing_changed(tmp_path):
    file = open_workload(write(tmp_path, "w.csv", OURS))
    rows, facts = read(scaled(file))
    assert rows.time_s.tolist() == [0.0, 0.25]
    assert rows.domain == ["math", "code"]
    assert facts["rows"] == 2
    assert facts["file_rate"] == facts["scaled_rate"] == facts["played_rate"] == 4.0
    changed = ("rows_clipped", "prompts_cut", "outputs_raised", "gaps_cut", "gap_seconds_removed")
    assert [facts[name] for name in changed] == [0, 0, 0, 0, 0.0]


def test_time_scale_two_halves_the_rate(tmp_path):
    rows, facts = read(scaled(of_times(tmp_path, [10, 11, 15]), time_scale=2.0))
    assert rows.time_s.tolist() == [0.0, 2.0, 10.0]
    assert facts["file_span_s"] == 5.0
    rates = (facts["file_rate"], facts["scaled_rate"], facts["played_rate"])
    assert rates == (2 / 5, 2 / 10, 2 / 10)


def test_gaps_are_cut_after_scaling_and_later_rows_move_up(tmp_path):
    file = of_times(tmp_path, [0, 1, 11, 12, 32])  # scaled by a half: gaps 0.5, 5, 0.5, 10
    rows, facts = read(scaled(file, time_scale=0.5, max_gap_s=2))
    assert rows.time_s.tolist() == [0.0, 0.5, 2.5, 3.0, 5.0]
    assert (facts["gaps_cut"], facts["gap_seconds_removed"]) == (2, 3.0 + 8.0)
    rates = (facts["file_rate"], facts["scaled_rate"], facts["played_rate"])
    assert rates == (4 / 32, 4 / 16, 4 / 5)


@pytest.mark.parametrize("read_by", ["file", "rows"])
def test_a_huge_gap_is_accepted_where_gaps_are_cut(tmp_path, read_by):
    file = of_times(tmp_path, [0, 1e9, 1e9 + 1])
    with pytest.raises(InputError, match=r"line 3: .* 11574\.1 days after .* or max_gap_s"):
        list(scaled(file))
    rows, facts = read(scaled(file if read_by == "file" else file.rows(), max_gap_s=60.0))
    assert rows.time_s.tolist() == [0.0, 60.0, 61.0]
    assert (facts["gaps_cut"], facts["gap_seconds_removed"]) == (1, 1e9 - 60)


def test_gaps_across_chunks(tmp_path):
    """A gap of 9 s between chunks of 4096 lines, and equal times that stay equal."""
    times = [i // 2 + (9 if i >= 4095 else 0) for i in range(10_000)]
    played = scaled(of_times(tmp_path, times), max_gap_s=1.0)
    time_s = np.concatenate([rows.time_s for rows in played])
    # The 4096th row would come 0 s after the one before it (both i // 2 = 2047), so 1 of 9 stays.
    assert (time_s == [i // 2 + (1 if i >= 4095 else 0) for i in range(10_000)]).all()
    facts = played.report.describe()
    assert (facts["gaps_cut"], facts["gap_seconds_removed"]) == (1, 8.0)
    assert facts["played_rate"] == 9999 / (4999 + 1)


def test_clipped_rows_are_counted(tmp_path):
    text = "prompt_tokens,output_tokens\n0,0\n1,1\n700,9\n50,901\n701,900\n"
    file = open_workload(write(tmp_path, "w.csv", text))
    rows, facts = read(scaled(file, clip=Clip(max_prompt_tokens=100, max_output_tokens=800)))
    assert rows.prompt_tokens.tolist() == [1, 1, 100, 50, 100]
    assert rows.output_tokens.tolist() == [1, 1, 9, 800, 800]
    names = ("rows_clipped", "prompts_cut", "prompts_raised", "outputs_cut", "outputs_raised")
    assert [facts[name] for name in names] == [4, 2, 1, 2, 1]
    assert facts["prompt_tokens_changed"] == 1 - 600 - 601
    assert facts["output_tokens_changed"] == 1 - 101 - 100
    assert (facts["max_prompt_tokens"], facts["min_output_tokens"]) == (100, 1)
    assert [facts[name] for name in ("file_rate", "scaled_rate", "played_rate")] == [None] * 3


def test_limit_takes_the_first_rows_and_their_rate(tmp_path):
    file = of_times(tmp_path, [0, 1, 3, 3.5])
    rows, facts = read(scaled(file, limit=3))
    assert rows.time_s.tolist() == [0.0, 1.0, 3.0]
    assert (facts["rows"], facts["limit"], facts["file_rate"]) == (3, 3, 2 / 3)
    rows, facts = read(scaled(file, limit=9))
    assert (facts["rows"], facts["limit"]) == (4, 9)
    chunks = scaled(of_times(tmp_path, range(9000)), limit=5000)
    assert [len(rows) for rows in chunks] == [4095, 905]
    assert chunks.report.own.last_s == 4999.0


def test_failures_among_the_rows_played_are_counted(tmp_path):
    failures = "121,GPT-4,1,0,1,API log\n122,GPT-4,1,0,1,API log\n"
    file = open_workload(write(tmp_path, "w.csv", BURSTGPT + failures))
    reason = "0 response tokens (a failed request)"
    counted = {limit: read(scaled(file, limit=limit))[1]["dropped"] for limit in (2, 3, None)}
    assert counted == {2: {}, 3: {reason: 1}, None: {reason: 3}}


def test_every_pass_counts_anew(tmp_path):
    played = scaled(of_times(tmp_path, [0, 9]), max_gap_s=1.0, clip=Clip(max_prompt_tokens=2))
    first, second = read(played)[1], read(played)[1]
    assert first == second
    assert (second["rows"], second["gaps_cut"], second["prompts_cut"]) == (2, 1, 2)


def test_rows_from_anywhere():
    tokens = np.array([3, 4])
    rows = Rows(np.array([7.0, 9.0]), tokens, tokens, None, np.array([1, 2]))
    played, facts = read(scaled([rows], time_scale=3.0))
    assert played.time_s.tolist() == [21.0, 27.0]
    assert (facts["file_rate"], facts["scaled_rate"], facts["dropped"]) == (1 / 2, 1 / 6, {})


@pytest.mark.parametrize("option", [{"time_scale": 2.0}, {"max_gap_s": 5.0}])
def test_time_options_need_times(tmp_path, option):
    file = open_workload(write(tmp_path, "s.json", SHAREGPT), characters_per_token=4)
    with pytest.raises(InputError, match=f"s.json: {next(iter(option))} is .*no arrival times"):
        scaled(file, **option)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_scale": 0}, "time_scale is 0; accepted: a number from 1e-06 to 1e"),
        ({"time_scale": float("nan")}, "time_scale is nan"),
        ({"time_scale": "2"}, "time_scale is '2'"),
        ({"max_gap_s": -1.0}, "max_gap_s is -1.0"),
        ({"limit": 0}, "limit is 0; accepted: a whole number from 1"),
        ({"limit": True}, "limit is True"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens is 0; accepted: a whole number from 1"),
        ({"max_output_tokens": 2.5}, r"max_output_tokens is 2\.5"),
        ({"min_output_tokens": 0}, "min_output_tokens is 0"),
        ({"min_output_tokens": 9, "max_output_tokens": 8}, "is 8; accepted: a whole number from 9"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        Clip(**options) if next(iter(options)).endswith("tokens") else scaled([], **options)
