"""Workload files with faults: one line names the file, the row, the value and what is accepted."""

from __future__ import annotations

import gzip
import sys

import pytest

from tests.workload_texts import AZURE, BURSTGPT, MOONCAKE, OURS, SHAREGPT, write
from traces import InputError
from traces.workloads import open_workload

HEADER = "time_s,prompt_tokens,output_tokens\n"


def refusal(path, format="auto", **options) -> str:
    """What opening and reading the file is refused with."""
    with pytest.raises(InputError) as caught:
        list(open_workload(path, format, **options).rows())
    message = str(caught.value)
    assert "\n" not in message
    assert "accepted: " in message
    return message


def refusal_of(folder, name, text, *parts, **options) -> None:
    """The refusal names the file and all of `parts`."""
    message = refusal(write(folder, name, text), **options)
    for part in (name, *parts):
        assert part in message, message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["is empty"]),
        ("\n \n", ["is empty"]),
        (HEADER, ["no row is kept", "none is there"]),
        ("TIMESTAMP,ContextTokens\n1,2\n", ["line 1", "has 'TIMESTAMP', 'ContextTokens'"]),
        ("a,b\n1,2\n", ["azure: TIMESTAMP, ContextTokens", "burstgpt: ", "csv: prompt_tokens"]),
        ("time_s,prompt_tokens,output_tokens,time_s\n", ["column 'time_s' twice"]),
        ("time_ms,prompt_tokens,output_tokens\n1,2,3\n", ["'time_ms' is not read", "time_s"]),
        (HEADER + "0,1,1\n0,1\n", ["line 3: 2 cells ('0', '1')", "accepted: 3"]),
        (HEADER + "0,1,1,1\n", ["line 2: 4 cells"]),
        (HEADER + "0,-1,1\n", ["line 2: prompt_tokens is '-1'", "0 to 10000000"]),
        (HEADER + "0,1,1\n\n0,1,2.5\n", ["line 4: output_tokens is '2.5'"]),
        (HEADER + "0,10000001,1\n", ["prompt_tokens is '10000001'"]),
        (HEADER + "0," + "9" * 5000 + ",1\n", ["prompt_tokens is '9999", "..."]),
        (HEADER + "0,nan,1\n", ["prompt_tokens is 'nan'"]),
        (HEADER + "0,,1\n", ["prompt_tokens is ''"]),
        (HEADER + "0,1_0,1\n", ["prompt_tokens is '1_0'"]),
        (HEADER + "nan,1,1\n", ["line 2: time_s is 'nan'"]),
        (HEADER + "1e12,1,1\n", ["time_s is '1e12'"]),
        (HEADER + "1_0,1,1\n", ["time_s is '1_0'"]),
        (HEADER + "2,1,1\n\n1.5,1,1\n", ["line 4: time_s is '1.5', before '2' of line 2"]),
        (HEADER + "0,1,1\n2592001,1,1\n", ["line 3", "'2592001', 30 days after '0' of line 2"]),
        (HEADER + '0,"1,1\n0,1,1\n', ["line 2: a quote is not closed"]),
        (HEADER + '0,"1"x"",1\n', ["line 2", "expected after"]),
        (HEADER.replace("\n", "\r") + "0,1,1\r", ["line 1: a carriage return"]),
        (HEADER + "0,1,1\n0,\0,1\n", ["line 3: a NUL byte at byte 43"]),
        (OURS.replace("code", " "), ["line 3: domain is ' '"]),
    ],
)
def test_csv(tmp_path, text, parts):
    refusal_of(tmp_path, "w.csv", text, *parts)


@pytest.mark.parametrize(
    "date",
    ["2023-11-31 00:00:00", "2023-11-16 24:00:00", "2023-11-16", "1e9", "16/11/2023 18:15:46", "",
     "2023-11-16 18:15:46.1234567890", "9999-01-01 00:00:00", "2023-11-16 18:15:46+1:00"],
)  # fmt: skip
def test_dates(tmp_path, date):
    text = AZURE.replace("2023-11-16 18:15:50.9951690", date)
    refusal_of(tmp_path, "w.csv", text, f"line 3: TIMESTAMP is '{date}'", "a date and time such as")


def test_rows_in_the_wrong_order_and_none_kept(tmp_path):
    text = AZURE.replace("18:15:50.9951690", "18:15:46.6805899")
    earlier, later = "'2023-11-16 18:15:46.6805899'", "'2023-11-16 18:15:46.6805900'"
    refusal_of(tmp_path, "w.csv", text, f"line 3: TIMESTAMP is {earlier}, before {later} of line 2")
    failures = "\n".join(BURSTGPT.split("\n")[i] for i in (0, 3))
    refusal_of(tmp_path, "w.csv", failures, "no row is kept (1 with 0 response tokens")


def test_faults_far_into_a_file(tmp_path):
    """The row before is in the chunk before; the byte is in a later block."""
    count = 4095 * 9  # lines 2 to 4096 are the first chunk, then 4096 a chunk
    head = HEADER + "".join(f"{i:05d},11,12\n" for i in range(count))
    back = head.splitlines(keepends=True)
    back[4096] = "00000,1,1\n"
    says = "line 4097: time_s is '00000', before '04094' of line 4096"
    refusal_of(tmp_path, "w.csv", "".join(back), says)
    byte = len(HEADER) + 12 * count + 2
    row = f"line {count + 2}: undecodable byte 0xff at byte {byte}"
    refusal_of(tmp_path, "w.csv", head.encode() + b"9,\xff,1\n", row, "UTF-8")
    refusal_of(tmp_path, "w.csv", head.encode() + b"9,\xe4", row.replace("0xff", "0xe4"))


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("[1]", ["line 2 is a list of 1", "an object with timestamp"]),
        ('{"timestamp": 1', ["line 2, column 16: malformed JSON"]),
        ('{"timestamp": 1, "timestamp": 2}', ["line 2: ", "has the key 'timestamp' twice"]),
        ('{"timestamp": 1, "input_length": 2}', ["line 2: no key output_length, has 'timestamp'"]),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 3}', ["line 2", "NaN"]),
        ('{"timestamp": "1", "input_length": 2, "output_length": 3}', ["timestamp is '1'"]),
        ('{"timestamp": 1, "input_length": true, "output_length": 3}', ["input_length is True"]),
        ('{"timestamp": 1, "input_length": 2.5, "output_length": 3}', ["input_length is 2.5"]),
        ('{"timestamp": 1, "input_length": 2, "output_length": -3}', ["output_length is -3"]),
        ('{"timestamp": 1, "input_length": 2, "output_length": {}}', ["output_length is an obj"]),
        ('{"timestamp": 1, "input_length": 1e999, "output_length": 3}', ["input_length is inf"]),
        ('{"timestamp": -1, "input_length": 2, "output_length": 3}', ["-1, before 0 of line 1"]),
        ('{"timestamp": 2592000001, "input_length": 2, "output_length": 3}', ["line 2", "30 days"]),
        ("[" * 100_000, ["line 2", "malformed JSON"]),
    ],
)
def test_mooncake(tmp_path, line, parts):
    text = MOONCAKE.split("\n")[0] + "\n" + line + "\n"
    refusal_of(tmp_path, "w.jsonl", text, *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (" \n", ["is empty"]),
        ("[]", ["no row is kept"]),
        ('{"id": 1}', ["line 1: starts with '{'", "a JSON list"]),
        (SHAREGPT.replace('"gpt"', '"system"'), ["no row is kept (3 with no human turn"]),
        ("[3]", ["conversation 1 is 3"]),
        ('[{"id": "a"}]', ["conversation 1: no key conversations, has 'id'"]),
        ('[{"conversations": 3}]', ["conversations is 3"]),
        ('[{"conversations": [3]}]', ["a turn is 3"]),
        ('[{"conversations": [{"from": "human"}]}]', ["'value' of a turn is None"]),
        (SHAREGPT.replace('"b"', "b"), ["line 3: conversation 2: malformed JSON"]),
        (SHAREGPT.rstrip("]\n"), ["line 5: conversation 3: the file ends after it"]),
        (SHAREGPT[:-30], ["conversation 3: malformed JSON"]),
        (SHAREGPT + "]", ["']' after the list's end"]),
        (SHAREGPT.replace("},\n{", "}\n{"), ["conversation 1: '{' after it"]),
        ("[" * 100_000, ["conversation 1: malformed JSON (nested too deep)"]),
    ],
)
def test_sharegpt(tmp_path, text, parts):
    refusal_of(tmp_path, "w.json", text, *parts, characters_per_token=4)


def test_a_count_of_tokens_needs_a_rule(tmp_path):
    path = write(tmp_path, "w.json", SHAREGPT)
    assert "neither of two rules" in refusal(path)
    assert "both of two rules" in refusal(path, characters_per_token=4, tokenizer="t.json")
    for number in (0, -1, float("nan"), "4", True):
        assert "characters_per_token is" in refusal(path, characters_per_token=number)
    assert "files count tokens" in refusal(write(tmp_path, "w.csv", OURS), characters_per_token=4)
    text = '[{"conversations": [{"from": "human", "value": "%s"}, {"from": "gpt", "value": "b"}]}]'
    long = write(tmp_path, "long.json", text % ("a" * 10_001))
    assert "conversation 1: tokens of the question is 10001000" in refusal(
        long, characters_per_token=0.001
    )


def test_tokenizer_files(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    path = write(tmp_path, "w.json", SHAREGPT)
    assert "none.json: no such file" in refusal(path, tokenizer=tmp_path / "none.json")
    assert "no tokenizer" in refusal(path, tokenizer=write(tmp_path, "t.json", "{}"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "package is not installed" in refusal(path, tokenizer=tmp_path / "t.json")


def test_what_is_no_plain_file(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.csv")
    assert "is a directory" in refusal(tmp_path)
    assert "accepted: a workload file" in refusal("a\0b.csv")
    packed = gzip.compress(AZURE.encode())
    refusal_of(tmp_path, "w.csv", packed, "is gzip compressed")
    refusal_of(tmp_path, "w.csv.gz", packed, "is gzip compressed")
    refusal_of(tmp_path, "w.csv", AZURE.encode("utf-16"), "is UTF-16 text")
    refusal_of(tmp_path, "w.txt", AZURE, "no known suffix", ".jsonl", "azure")
    refusal_of(tmp_path, "w.csv", AZURE, "no column prompt_tokens", format="csv")
    refusal_of(tmp_path, "w.csv", HEADER + "1" * 5_000_000, "line 2: longer than 4194304")
    assert "format is 'parquet'" in refusal(tmp_path / "none.csv", "parquet")
