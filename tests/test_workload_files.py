"""Workload files people have: what is read from each format, lazily and in flat memory."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

from tests.workload_texts import AZURE, OURS, TEXTS, write
from traces import InputError
from traces.workloads import Tally, open_workload, scaled

FAILED = "0 response tokens (a failed request)"


def only(file):
    """The one chunk of a small file."""
    (rows,) = file.rows()
    return rows


@pytest.mark.parametrize(
    ("format", "time_s", "prompts", "outputs", "lines", "dropped", "unused"),
    [
        # 50.9951690 - 46.6805900 and a minute later; the seventh decimal counts.
        ("azure", [0.0, 4.3145790, 60.0], [374, 396, 879], [44, 109, 55], [2, 3, 4], {}, []),
        (
            "burstgpt", [0.0, 40.0, 115.5], [472, 1087, 1360], [18, 230, 203], [2, 3, 5],
            {FAILED: 1}, ["Model", "Total tokens", "Log Type"],
        ),
        (
            "mooncake", [0.0, 0.0, 3.052], [6755, 7319, 7234], [500, 490, 794], [1, 2, 3],
            {}, ["hash_ids"],
        ),
        (  # characters: ceil(4 / 4), ceil(3 / 4); ceil(9 / 4), ceil(8 / 4)
            "sharegpt", None, [1, 1], [3, 2], [1, 3],
            {"no human turn with a gpt turn after it": 1}, ["id"],
        ),
        ("csv", [0.0, 0.25], [10, 11], [20, 21], [2, 3], {}, []),
    ],
)  # fmt: skip
def test_formats_are_told_apart_by_suffix_and_header(
    tmp_path, format, time_s, prompts, outputs, lines, dropped, unused
):
    """Named, with a byte-order mark and without a suffix they are read alike."""
    name, text = TEXTS[format]
    rule = {"characters_per_token": 4} if format == "sharegpt" else {}
    path, marked = write(tmp_path, name, text), write(tmp_path, "x", "\ufeff" + text)
    file = open_workload(path, **rule)
    assert (file.path, file.format, file.has_times) == (path, format, time_s is not None)
    assert file.tally is None
    for rows in (only(file), only(open_workload(marked, format, **rule))):
        assert (rows.time_s is None) == (time_s is None)
        assert time_s is None or rows.time_s.tolist() == time_s
        assert rows.prompt_tokens.tolist() == prompts
        assert rows.output_tokens.tolist() == outputs
        assert rows.line.tolist() == lines
        assert rows.domain == (["math", "code"] if format == "csv" else None)
        assert rows.prompt_tokens.dtype == np.int64
    assert file.tally == Tally(len(lines), dropped)
    assert scaled(file).report.describe()["columns_not_used"] == unused


def test_dates_with_letters_zones_and_without_decimals(tmp_path):
    dates = [
        "2024-05-10 00:00:00.009930+00:00",
        "2024-05-10T00:00:01+00:00",
        "2024-05-10T00:00:01.0000001Z",
        "2024-05-10 02:00:02+02:00",  # midnight and two seconds in UTC
        "2024-05-11 00:00:00",
        "2024-06-09 23:59:59.999999999",
    ]
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{d},1,1\n" for d in dates)
    time_s = only(open_workload(write(tmp_path, "a.csv", text), "azure")).time_s
    last = 31 * 86400 - 0.009930001  # the end of 30 days after 10 May
    expected = [0.0, 0.99007, 0.9900701, 1.99007, 86399.99007, last]
    assert time_s.tolist() == pytest.approx(expected, abs=1e-9)


def test_burstgpt_time_starts_at_the_first_row_that_is_kept(tmp_path):
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n7,,3,GPT-4,9,0,9,API log\n19440110.0,1722ac82,43,GPT-4,906,446,1352,x\n"
        '19440161.0,"a, ""b""",2,ChatGPT,36,29,65,x\n19440170.0,,2,ChatGPT,36,0,36,x\n'
    )
    file = open_workload(write(tmp_path, "b.csv", text))
    rows = only(file)
    assert file.format == "burstgpt"
    assert rows.time_s.tolist() == [0.0, 51.0]
    assert rows.line.tolist() == [3, 4]
    assert file.tally == Tally(2, {FAILED: 2})


def test_sharegpt_by_a_tokenizer_that_would_cut_and_pad(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "go": 1}, "?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=7)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    turns = [("human", "go go  go"), ("gpt", "half a pair: \ud800")], [("human", "x"), ("gpt", " ")]
    text = json.dumps(
        [{"conversations": [{"from": f, "value": v} for f, v in pair]} for pair in turns]
    )
    file = open_workload(write(tmp_path, "s.json", text), tokenizer=tmp_path / "tokenizer.json")
    rows = only(file)
    assert (rows.prompt_tokens.tolist(), rows.output_tokens.tolist()) == ([3], [4])
    assert file.tally == Tally(1, {"a question or an answer without a token": 1})


def test_a_conversation_of_many_blocks_of_text(tmp_path):
    """Quotes and letters that JSON and UTF-8 write with several characters or bytes."""
    turns = [{"from": "human", "value": '"ß\\' * 100_000}, {"from": "gpt", "value": "[]{}," * 7}]
    text = json.dumps([{"conversations": turns}] * 3, ensure_ascii=False, indent=2)
    rows = only(open_workload(write(tmp_path, "s.json", text), characters_per_token=1))
    assert rows.prompt_tokens.tolist() == [300_000] * 3
    assert rows.output_tokens.tolist() == [35] * 3


def test_ours_without_times(tmp_path):
    file = open_workload(write(tmp_path, "p.csv", "id,output_tokens,prompt_tokens\nx,3,5\n"))
    rows = only(file)
    assert not file.has_times
    assert (rows.time_s, rows.domain) == (None, None)
    assert (rows.prompt_tokens.tolist(), rows.output_tokens.tolist()) == ([5], [3])


@pytest.mark.parametrize(
    "text",
    [
        OURS.replace("\n", "\r\n"),
        OURS.rstrip("\n"),
        "\n" + OURS + "\n  \n",
        OURS.replace(",", " , "),
        OURS.replace("10", '"10"').replace("20", "20.0"),
    ],
    ids=["returns", "no_end", "blank", "spaces", "quotes"],
)
def test_harmless_differences(tmp_path, text):
    rows = only(open_workload(write(tmp_path, "o.csv", text)))
    assert rows.time_s.tolist() == [0.0, 0.25]
    assert (rows.prompt_tokens.tolist(), rows.output_tokens.tolist()) == ([10, 11], [20, 21])
    assert rows.domain == ["math", "code"]


def test_the_report_of_a_wide_file_stays_short(tmp_path):
    header = "prompt_tokens,output_tokens," + ",".join(f"{'c' * 50}{i}" for i in range(1000))
    text = f"{header}\n1,1{',x' * 1000}\n"
    names = scaled(open_workload(write(tmp_path, "w.csv", text))).report.describe()
    names = names["columns_not_used"]
    assert names == ["c" * 40] * 20 + ["and 980 more"]


def test_chunks_and_line_numbers_over_many_blocks(tmp_path):
    count = 30_000  # about 600 kB: more than one block of text
    text = "time_s,prompt_tokens,output_tokens,domain\n"
    text += "".join(f"{i},{i % 100 + 1},7,größe\n" for i in range(count))
    file = open_workload(write(tmp_path, "o.csv", text))
    chunks = list(file.rows())
    assert [len(rows) for rows in chunks[:2]] == [4095, 4096]  # the header is a line as well
    assert max(map(len, chunks)) <= 4096
    line = np.concatenate([rows.line for rows in chunks])
    time_s = np.concatenate([rows.time_s for rows in chunks])
    assert (line == np.arange(2, count + 2)).all()
    assert (time_s == np.arange(count)).all()
    again = np.concatenate([rows.line for rows in file])
    assert (again == line).all()


def test_rows_are_read_only_as_far_as_they_are_asked_for(tmp_path):
    text = "time_s,prompt_tokens,output_tokens\n" + "0,1,1\n" * 100_000 + "0,x,1\n"
    file = open_workload(write(tmp_path, "o.csv", text))
    assert sum(map(len, scaled(file, limit=10))) == 10
    assert file.tally is None
    with pytest.raises(InputError, match=r"line 100002: prompt_tokens is 'x'"):
        list(file.rows())


ROW = "2023-11-16 18:15:46.6805900,374,44\n"
TURNS = [{"from": "human", "value": "x" * 4000}, {"from": "gpt", "value": "y" * 4000}]
CONVERSATION = json.dumps({"id": "a", "conversations": TURNS})


@pytest.mark.parametrize(
    ("name", "text", "count", "rule"),
    [
        ("a.csv", AZURE.split("\n")[0] + "\n" + ROW * 60_000, 60_000, {}),
        ("s.json", f"[{', '.join([CONVERSATION] * 2000)}]", 2000, {"characters_per_token": 4}),
    ],
    ids=["azure", "sharegpt"],
)
def test_memory_does_not_grow_with_the_file(tmp_path, name, text, count, rule):
    path = write(tmp_path, name, text)
    tracemalloc.start()
    try:
        file = open_workload(path, **rule)
        assert sum(map(len, file.rows())) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e6  # the texts of all rows take 9 MB and 16 MB
