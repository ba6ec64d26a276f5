"""Bad input to the live tasks: one line, exit status 2, no traceback, nothing measured first."""

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.models.small.load import SHIPPED
from real_runner.recording.record import split_lines
from real_runner.recording.texts import Text

REFUSED = [
    (["task=exact", "policy=null"], "Config group override"),
    (["~task"], "no key can be taken away"),
    (["+foo=1"], "unknown key foo"),
    (["exact.policies=[cast,cast]"], "a list of different policies"),
    (["+exact.foo=1"], "unknown key exact.foo"),
    (["task=exact", 'exact.policies=["null"]'], "exact.policies holds 'null'"),
    (["task=exact", "exact.policies=[a/b]"], "exact.policies holds 'a/b'"),
    (["task=validate", "max_new_tokens=1"], "max_new_tokens is 1"),
    (["task=distribution"], "temperature is 0"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED, ids=[" ".join(w) for w, _ in REFUSED])
def test_settings_are_refused_before_a_model_is_loaded(words, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert line in captured.err
    assert not captured.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", ["record", "validate"])
def test_an_output_that_is_a_file_is_found_before_the_work(task, capsys, tmp_path):
    file = tmp_path / "taken"
    file.write_text("mine")
    assert main([f"task={task}", f"output={file}"]) == 2
    assert f"output is '{file}'" in capsys.readouterr().err
    assert file.read_text() == "mine"


CONFIG = json.loads((SHIPPED / "config.json").read_text())
BAD = {
    "empty": "",
    "a list": "[]",
    "no drafters": "{}",
    "no target": json.dumps({"target": None, "drafters": {}}),
    "no heads": json.dumps(CONFIG | {"target": CONFIG["target"] | {"heads": 0}}),
    "words for numbers": json.dumps(CONFIG | {"target": CONFIG["target"] | {"vocab_size": "a"}}),
    "a tap beyond the last layer": json.dumps(
        CONFIG | {"drafters": {"block": CONFIG["drafters"]["block"] | {"taps": [1, 2, 99]}}}
    ),
}


@pytest.fixture
def pair(tmp_path):
    folder = tmp_path / "pair"
    shutil.copytree(SHIPPED, folder)
    return folder


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_damaged_config_of_a_pair_is_named(pair, text, capsys):
    (pair / "config.json").write_text(text)
    assert main(["task=demo", f"pair={pair}"]) == 2
    error = capsys.readouterr().err
    assert str(pair / "config.json") in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("target.safetensors", b""),
        ("drafter_block.safetensors", b"\x08"),
        ("tokenizer.json", b"{}"),
    ],
)
def test_a_damaged_file_of_a_pair_is_named(pair, name, content, capsys):
    (pair / name).write_bytes(content)
    assert main(["task=demo", f"pair={pair}"]) == 2
    error = capsys.readouterr().err
    assert str(pair / name) in error
    assert error.count("\n") == 1


RECORD = [
    *("task=record", "record.small.domains=[report]", "record.small.sequences_per_domain=4"),
    *("record.small.max_new_tokens=6", "record.temperatures=[0.0]"),
]


def test_a_recording_of_other_settings_is_not_taken_for_this_one(tmp_path, capsys):
    words = [*RECORD, f"output={tmp_path}"]
    assert main(words) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(words) == 0
    assert capsys.readouterr().out.count("kept") == 2
    for other in ("record.small.max_new_tokens=5", "record.seed=5", "record.pool=8"):
        assert main([*words, other]) == 2
        assert "another output folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


EXAMPLE = Path(__file__).parent / "example_policy"


def test_a_users_own_policy_is_held_against_the_replay(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    words = ["--config-dir", str(EXAMPLE / "conf"), "task=exact", "exact.policies=[half_chain]"]
    words += ["exact.prompts_per_domain=4", "exact.domains=[report]", "max_new_tokens=8"]
    assert main(words) == 0
    assert "half_chain" in capsys.readouterr().out
    assert main([f"--config-dir={EXAMPLE / 'none'}", "task=exact"]) == 2
    assert "accepted: a folder of configurations" in capsys.readouterr().err


def test_recording_says_how_the_texts_are_split():
    texts = [Text(0, split, 0, [1], [2, 3], []) for split in (0, 1, 2, 2)]
    texts += [Text(1, split, 0, [1], [2, 3], []) for split in (0, 1)]
    first, second = split_lines(("report", "code"), texts)
    assert first == "  report: 1 calibration, 1 tuning, 2 report"
    assert second.startswith("  code: 1 calibration, 1 tuning, 0 report; too few prompts")
