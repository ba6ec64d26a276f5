"""Prompts files: what they may hold, what they ask for, and recordings of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.recording.record import corpus_prompts
from real_runner.serving.prompts import (
    DOMAIN,
    PromptLine,
    read_prompts,
    record_prompts,
    request_seeds,
    requests_of_prompts,
)
from traces.common.errors import InputError
from traces.recordings.catalog import find_recording

BAD_LINES = {
    "": "p.jsonl: no prompt; accepted: a JSON object with prompt, question or turns a line",
    '{"prompt": "a"}\n{': "line 2: not JSON (",
    "[1]": "line 1: [1] is no object; accepted: one with prompt, question or turns",
    '{"text": "a"}': "line 1: no prompt, question or turns; accepted",
    '\n\n{"prompt": " "}': "line 3: prompt is ' '; accepted: a text that is not blank",
    '{"question": 4}': "line 1: question is 4; accepted",
    '{"prompt": "\\ud800"}': "line 1: not JSON (half a surrogate pair",
    '{"turns": []}': "line 1: turns is []; accepted: a list of texts, of which the first is used",
    '{"turns": "a"}': "line 1: turns is 'a'; accepted: a list of texts",
    '{"prompt": "a", "category": 3}': "line 1: category is 3; accepted: a text, or none",
    '{"prompt": "a", "max_new_tokens": 0}': "line 1: max_new_tokens is 0; accepted: a whole",
    '{"prompt": "a", "max_new_tokens": true}': "line 1: max_new_tokens is True; accepted",
    '{"prompt": "a", "seed": -1}': "line 1: seed is -1; accepted: a whole number from 0 to 9223",
    "[" * 100_000: "line 1: not JSON (",
}


@pytest.mark.parametrize("content", BAD_LINES)
def test_bad_prompts_files_name_the_line(content, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(InputError) as refusal:
        read_prompts(path)
    assert BAD_LINES[content] in str(refusal.value)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "caf\xe9"}\n')
    with pytest.raises(InputError, match=r"line 2: byte b'\\xe9' is not UTF-8; accepted"):
        read_prompts(path)
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a\xe2\x80\xa8b"}\r\n')  # a mark, a line separator
    assert [line.text for line in read_prompts(path)] == ["a\u2028b"]


LINES = [
    {"prompt": "Shipment facts\ncarrier: Northline\nReport:", "domain": "freight"},
    {"question": "Problem: Ann has 3 pens. How many pens?\nAnswer:", "max_new_tokens": 5},
    {"turns": ["def add(a, b):", "never read"], "category": "code", "seed": 77},
    {"prompt": "Problem: Bo has 4 cups. How many cups?\nAnswer:", "answer": "ignored"},
]


def test_what_a_prompts_file_asks_for(pair, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("\n\n".join(map(json.dumps, LINES)) + "\n")
    lines = read_prompts(path)
    assert [line.where[-1] for line in lines] == ["1", "3", "5", "7"]  # blank lines between
    assert lines[2].text == "def add(a, b):"
    asked = requests_of_prompts(lines, pair.tokenizer, 9, 4)
    assert asked.domains == ("freight", DOMAIN, "code")
    assert asked.domain.tolist() == [0, 1, 2, 1]
    assert asked.max_new_tokens.tolist() == [9, 5, 9, 9]
    assert asked.seed.tolist() == [40_000, 41_000, 77, 41_001]
    assert asked.prompt[3].tolist() == pair.tokenizer.encode(LINES[3]["prompt"])


def test_keys_are_the_corpus_ones_and_never_meet(pair):
    names = ("arithmetic", "report")
    corpus = corpus_prompts(pair, names, 5, 3)
    assert request_seeds(np.repeat([0, 1], 5), 3).tolist() == [one.seed for one in corpus]
    many = np.repeat(np.arange(12), 1_001)
    keys = [*request_seeds(many, 3), *request_seeds(many, 4)]
    assert len(set(keys)) == len(keys)


def test_recording_a_prompts_file(loaded, here):
    encode, decode = loaded.tokenizer.encode, loaded.tokenizer.decode
    prompts = [{"prompt": f"Problem: {n} cups.", "category": "ab"[n % 2]} for n in range(8)]
    (here / "mine.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    words = ("prompts=mine.jsonl", "record.temperatures=[0.0]", "record.license=CC0", "output=out")
    assert main(["task=record", *words, "record.small.max_new_tokens=6", "record.seed=2"]) == 0
    recording = find_recording("out/mine_semi_t0.safetensors")
    assert recording.domains == ("a", "b")
    assert recording["domain"].tolist() == [0] * 4 + [1] * 4
    assert recording["split"].tolist() == [0, 1, 2, 2] * 2
    keys = [20_000, 20_001, 20_002, 20_003, 21_000, 21_001, 21_002, 21_003]
    assert recording["seq_request_seed"].tolist() == keys
    assert recording.meta["text_license"] == "CC0"
    live_run = (f"trace={here / 'out/mine_semi_t0.safetensors'}", "max_new_tokens=6", "output=run")
    assert main(["task=serve", *live_run, "prompts=mine.jsonl", "policy=fixed_chain"]) == 0
    written = map(json.loads, (here / "run/outputs.jsonl").read_text().splitlines())
    texts = {line["prompt"]: line["text"] for line in written}
    for sequence, number in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        tokens = recording.prompt_tokens(sequence).tolist()
        assert tokens == encode(f"Problem: {number} cups.")
        assert texts[number] == decode(recording.committed_tokens(sequence).tolist())
    summary = json.loads((here / "run/summary.json").read_text())
    assert summary["trace"]["recorded_target_is_this"] is True


def test_a_recording_has_one_limit(pair):
    lines = (PromptLine("f, line 1", "a"), PromptLine("f, line 2", "b", max_new_tokens=7))
    plan = SimpleNamespace(max_new_tokens=8, seed=1)
    with pytest.raises(InputError, match="f, line 2: max_new_tokens is 7; accepted: 8 or none"):
        record_prompts(pair, plan, lines)
