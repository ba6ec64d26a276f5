"""Bad input to the live tasks: one line, exit status 2, no traceback, nothing measured first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.models.small.load import SHIPPED
from real_runner.recording.record import split_lines
from real_runner.recording.texts import Text
from real_runner.serving.live import check_recording
from simulator.studies.options import CONF
from traces.common.errors import InputError
from traces.recordings.catalog import find_recording

POLICIES = sorted(path.stem for path in (CONF / "policy").glob("*.yaml"))
BEFORE = {  # words: what is said, before a model is loaded
    "~task": "no key can be taken away",
    "+foo=1": "unknown key foo",
    "+exact.foo=1": "unknown key exact.foo",
    "target=some/model": "prompts is None with target 'some/model'; accepted: a JSONL file",
    "drafter=ngram": "drafter is 'ngram'; accepted: block, semi_autoregressive",
    "task=demo demo.prompt=\t": "demo.prompt is '\\t'; accepted: text",
    "task=demo demo.prompt=a prompts=b": "prompts is 'b'; accepted: null with demo.prompt",
    "task=distribution": "temperature is 0",
    "task=exact policy=null": "Config group override",
    "task=exact exact.policies=[cast,cast]": "a list of different policies",
    'task=exact exact.policies=["null"]': "exact.policies holds 'null'",
    "task=exact exact.policies=[a/b]": "exact.policies holds 'a/b'",
    "task=exact --config-dir none": "accepted: a folder of configurations",
    "task=probe probe=3": "probe",
    "task=probe probe.batches=[]": "probe.batches is []; accepted",
    "task=probe probe.batches=[1,1]": "whole numbers from 1 to 100000, every one once",
    "task=probe probe.packed_per_request=[1]": "from 1 to 8192, one of them above 1",
    "task=probe probe.passes=4 probe.repeats=3": "is 4; accepted: 1 to probe.repeats, 3",
    "task=probe probe.name=a/b": "probe.name is 'a/b'; accepted: text, or null, a name without",
    "task=probe probe.colour=red": "unknown key probe.colour",
    "task=probe +probe.colour=red": "unknown key probe.colour; accepted: probe.name, probe.shape",
    "task=serve policy=none": f"policy is 'none'; accepted: {', '.join(POLICIES)}\n",
    "task=serve policy.width=-1": "width",
    "task=serve seed=-1": "seed is -1; accepted",
    "task=serve goodput=ttft": "goodput is 'ttft'; accepted: pairs",
    "task=serve server.lag=1": "server.lag is 1; accepted live: 0",
    "task=serve trace.split=test": "trace.split is 'test'; accepted: calibration, tuning, report",
    "task=serve trace.domains=[law]": "trace.domains is 'law'; accepted: arithmetic, report",
    "task=serve trace.recording=absent": "absent: no such recording",
    "task=serve latency.profile=absent": "absent",
    "task=serve prompts=absent.jsonl": "absent.jsonl: unreadable (No such file or directory)",
    "task=serve output=file": "output is 'file', a file; accepted: a folder, or a new name",
    "task=validate max_new_tokens=1": "max_new_tokens is 1",
}
LOADED = {  # once the pair is there
    "task=demo demo.prompt=a demo.count=2": "demo.count is 2; accepted: 1 to 1",
    "task=record output=file": "output is 'file'",
    "task=serve drafter=block": "drafter.kind is 'semi_autoregressive'; accepted: 'block'",
    "task=serve prompts=long.jsonl": "long.jsonl, line 1: ",
    "task=validate output=file": "output is 'file'",
}


@pytest.mark.parametrize("words", [*BEFORE, *LOADED])
def test_bad_words_are_one_line_and_leave_no_file(words, here, loaded, monkeypatch, capsys):
    if words in BEFORE:
        monkeypatch.setattr("real_runner.models.small.load.load_pair", None)
    (here / "file").write_text("mine")
    (here / "long.jsonl").write_text(json.dumps({"prompt": "many words " * 900}) + "\n")
    assert main(words.split(" ")) == 2
    out, said = capsys.readouterr()
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert (BEFORE | LOADED)[words] in said
    assert not out
    assert sorted(path.name for path in here.iterdir()) == ["file", "long.jsonl"]
    assert (here / "file").read_text() == "mine"


def test_a_recording_of_another_pair_is_refused(pair):
    recording, drafter = find_recording("small_semi_t0"), pair.drafters["semi_autoregressive"]
    wide = SimpleNamespace(name="wide", target=SimpleNamespace(vocab_size=9))
    with pytest.raises(InputError, match="vocab_size is 2048; accepted: 9, a recording of wide"):
        check_recording(recording, wide, drafter)
    deep = SimpleNamespace(name="deep", kind=drafter.kind, depths=8)
    with pytest.raises(InputError, match="depths is 7; accepted: 8"):
        check_recording(recording, pair, deep)


CONFIG = json.loads((SHIPPED / "config.json").read_text())
TARGET, BLOCK = CONFIG["target"], CONFIG["drafters"]["block"]
DAMAGED = {
    "config.json": [
        "",
        "[]",
        "{}",
        json.dumps({"target": None, "drafters": {}}),
        json.dumps(CONFIG | {"target": TARGET | {"heads": 0}}),
        json.dumps(CONFIG | {"target": TARGET | {"vocab_size": "a"}}),
        json.dumps(CONFIG | {"drafters": {"block": BLOCK | {"taps": [1, 2, 99]}}}),
    ],
    "target.safetensors": [""],
    "drafter_block.safetensors": ["\x08"],
    "tokenizer.json": ["{}"],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, one) for name, every in DAMAGED.items() for one in every]
)
def test_a_damaged_file_of_a_pair_is_named(tmp_path, name, content, capsys):
    folder = tmp_path / "pair"
    shutil.copytree(SHIPPED, folder)
    (folder / name).write_text(content)
    assert main(["task=demo", f"pair={folder}"]) == 2
    error = capsys.readouterr().err
    assert str(folder / name) in error
    assert error.count("\n") == 1


RECORD = [
    *("task=record", "record.small.domains=[report]", "record.small.sequences_per_domain=4"),
    *("record.small.max_new_tokens=6", "record.temperatures=[0.0]"),
]


def test_a_recording_of_other_settings_is_not_taken_for_this_one(loaded, tmp_path, capsys):
    words = [*RECORD, f"output={tmp_path}"]
    assert main(words) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(words) == 0
    assert capsys.readouterr().out.count("kept") == 2
    for other in ("record.small.max_new_tokens=5", "record.seed=5", "record.pool=8"):
        assert main([*words, other]) == 2
        assert "another output folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_users_own_policy_is_held_against_the_replay(loaded, capsys, monkeypatch):
    example = Path(__file__).parent / "example_policy"
    monkeypatch.syspath_prepend(str(example))
    words = ["--config-dir", str(example / "conf"), "task=exact", "exact.policies=[half_chain]"]
    words += ["exact.prompts_per_domain=4", "exact.domains=[report]", "max_new_tokens=8"]
    assert main(words) == 0
    assert "half_chain" in capsys.readouterr().out


def test_recording_says_how_the_texts_are_split():
    texts = [Text(0, split, 0, [1], [2, 3], []) for split in (0, 1, 2, 2)]
    texts += [Text(1, split, 0, [1], [2, 3], []) for split in (0, 1)]
    first, second = split_lines(("report", "code"), texts)
    assert first == "  report: 1 calibration, 1 tuning, 2 report"
    assert second.startswith("  code: 1 calibration, 1 tuning, 0 report; too few prompts")
