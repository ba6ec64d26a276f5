"""Damaged files end in one line, and what files name stays in its folder; no file runs code.

`python tests/fuzz/run.py --cases 10000` plays more cases than the few here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from simulator.cli.main import main as simulate
from simulator.cli.overrides import overrides_of
from simulator.policies.loading import make_policy
from simulator.studies.contest.entrants import read_rivals
from tests.fuzz.formats import BOMBS
from tests.fuzz.profiles import make_profile
from tests.synthetic import make_pool
from traces.common.errors import InputError
from traces.common.json import DEEPEST, loads, read_json
from traces.common.yaml import load_yaml
from traces.recordings.files import read_recording, write_recording

ROOT = Path(__file__).parents[1]
CASES = 300


def test_damaged_files():
    words = [sys.executable, "tests/fuzz/run.py", "--cases", str(CASES), "--seed", "0"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases, 0 faults" in done.stdout
    assert " accepted" in done.stdout
    assert " refused" in done.stdout


def test_the_same_seed_damages_the_same_bytes():
    """Whatever order a library hands out a file's arrays in, in this process or another."""
    script = (
        "import hashlib, numpy as np; from safetensors.numpy import save; "
        "from tests.fuzz.formats import file_damaged; "
        "data = save({f'x{i}': np.arange(8.0) for i in range(9)}); "
        "rngs = map(np.random.default_rng, range(40)); "
        "cases = [file_damaged('x.safetensors', data, rng) for rng in rngs]; "
        "print(hashlib.sha256(b''.join(cases)).hexdigest())"
    )
    words = [sys.executable, "-c", script]
    found = {subprocess.check_output(words, cwd=ROOT) for _ in range(2)}
    assert len(found) == 1


# ---------------------------------------------------------------- readers of JSON and YAML


def test_json_is_refused_in_one_line(tmp_path):
    path = tmp_path / "x.json"
    for text, says in (
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' twice"),
        ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "nested more than 64"),
        ("[" * 100_000, "nested more than 64"),
        ('["\\ud800"]', "half a surrogate pair"),
        ("[1", "delimiter"),
        ("", "Expecting value"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=rf"x\.json: not JSON.*{says}") as caught:
            read_json(path, "something")
        assert "\n" not in str(caught.value)


def test_json_that_is_whole_is_read():
    assert loads("[" * DEEPEST + "1" + "]" * DEEPEST)
    assert loads(f'{{"a": {"9" * 400}, "b": -{"9" * 400}, "c": {"9" * 299}}}') == {
        "a": float("inf"),
        "b": -float("inf"),
        "c": int("9" * 299),
    }
    assert loads('{"a": NaN}')["a"] != 0
    with pytest.raises(ValueError, match="NaN is no number"):
        loads('{"a": NaN}', constants=False)


TRICKS = [text for text in BOMBS if "!!set" not in text]  # a set is as plain as a list


@pytest.mark.parametrize("text", [*TRICKS, "[" * 500, "{a: 1, a: 2}", f"a: {'9' * 5000}", "a: ]"])
def test_yaml_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r".") as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)


def test_errors_are_one_line():
    assert str(InputError("a\n\tb\x1b[31m\u2028\ud800é, 'x'")) == "a b\\x1b[31m \\ud800é, 'x'"


def test_yaml_that_is_whole_is_read():
    text = "a: 1e-6\nb: [1, 2.5, null, true]\nc: {d: 'x: y'}\ne: 2026-01-31\nf: \"[\"\n"
    found = load_yaml(text)
    assert found["a"] == 1e-6
    assert found["b"] == [1, 2.5, None, True]
    assert found["c"] == {"d": "x: y"}
    assert (found["e"].isoformat(), found["f"]) == ("2026-01-31", "[")


# ---------------------------------------------------------------- paths that files name


def _shards(folder: Path, *names: str) -> Path:
    manifest = {"format": "specdec-recording-manifest", "version": 1, "shards": list(names)}
    path = folder / "m.json"
    path.write_text(json.dumps(manifest))
    return path


@pytest.fixture
def tree(tmp_path) -> Path:
    """A folder `in` with a recording and a folder, beside one that is not given."""
    made = make_pool(np.random.default_rng(0), sequences=2, depths=2, pool=3, max_new_tokens=5)
    for path in (tmp_path / "in" / "own.safetensors", tmp_path / "out" / "other.safetensors"):
        path.parent.mkdir()
        write_recording(path, made.meta, made.arrays)
    (tmp_path / "in" / "sub").mkdir()
    return tmp_path


def test_shards_stay_below_their_manifest(tree):
    folder, other = tree / "in", tree / "out" / "other.safetensors"
    os.symlink(other, folder / "link.safetensors")
    os.symlink(tree / "out", folder / "linked")
    os.symlink("loop.safetensors", folder / "loop.safetensors")
    os.symlink(folder / "own.safetensors", folder / "sub" / "inner.safetensors")
    for name in (
        "../out/other.safetensors",
        "sub/../../out/other.safetensors",
        str(other),
        str(folder / "own.safetensors"),
        "link.safetensors",
        "linked/other.safetensors",
        "loop.safetensors",
        "\0.safetensors",
        "\ud800.safetensors",
        "x" * 300 + ".safetensors",
        "own.safetensors\0",
        "own.csv",
        "",
        None,
        {"a": 1},
    ):
        with pytest.raises(InputError, match=r"m\.json: "):
            read_recording(_shards(folder, name))
    assert read_recording(_shards(folder, "own.safetensors")).num_sequences == 2
    assert read_recording(_shards(folder, "sub/inner.safetensors")).num_sequences == 2
    for twice in ("./own.safetensors", "sub/inner.safetensors"):
        with pytest.raises(InputError, match="names a file twice"):
            read_recording(_shards(folder, "own.safetensors", twice))


def test_tables_of_a_latency_file_stay_below_it_or_the_working_folder(tree, monkeypatch):
    (tree / "work").mkdir()
    monkeypatch.chdir(tree / "work")
    outside, beside = tree / "out" / "toy.csv", tree / "in" / "toy.csv"
    for path in (outside, beside):
        make_profile(path.parent)
    os.symlink(outside, tree / "in" / "link.csv")
    file = tree / "in" / "engine.yaml"
    link, above = tree / "in" / "link.csv", f"{tree}/in/../out/toy.csv"
    for settings in (
        *({"profile": str(path)} for path in (outside, link, above, "../nope.csv", "\0.csv")),
        *({"roofline": {"calibrate": str(path)}} for path in (outside, "/etc/hostname")),
    ):
        file.write_text(json.dumps(settings))
        with pytest.raises(InputError, match=r"engine\.yaml: "):
            overrides_of(str(file))
    file.write_text(json.dumps({"profile": str(beside)}))
    assert f"++latency.profile={beside}" in overrides_of(str(file))
    with chdir(tree / "out"):
        file.write_text("profile: toy.csv\n")
        assert "++latency.profile=toy.csv" in overrides_of(str(file))
    file.write_text("profile: b300\n")
    assert "++latency.profile=b300" in overrides_of(str(file))


@pytest.mark.parametrize(
    "text",
    [
        "name: ${oc.env:HOME}\n",
        "cliffs: [{above: '${oc.env:HOME}'}]\n",
        'name: "a\\nb"\n',
        "'a=1,policy': 2\n",
        "'../policy': 2\n",
        "host: {'x y': 1}\n",
        "a@policy: 1\n",
    ],
)
def test_a_latency_file_says_plain_things_alone(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(InputError, match=r"x\.yaml: "):
        overrides_of(str(tmp_path / "x.yaml"))


def test_policies_of_a_file_of_rivals_stay_below_it(tree, monkeypatch):
    monkeypatch.chdir(tree / "in" / "sub")
    policy = (ROOT / "conf/policy/cast.yaml").read_text()
    for folder in ("in", "out"):
        (tree / folder / "mine.yaml").write_text(policy)
    file = tree / "in" / "rivals.yaml"
    file.write_text(json.dumps({"rivals": [{"policy": str(tree / "in" / "mine.yaml")}]}))
    assert [rival.policy for rival in read_rivals(str(file))] == ["cast"]
    for name in (str(tree / "out" / "mine.yaml"), f"{tree}/in/../out/mine.yaml"):
        file.write_text(json.dumps({"rivals": [name]}))
        with pytest.raises(InputError, match="below that file's folder or the working one"):
            read_rivals(str(file))


def test_parts_of_a_checkpoint_lie_beside_its_index(tree):
    pytest.importorskip("torch")
    from real_runner.models.hub.files import open_checkpoint

    folder = tree / "in"
    (folder / "config.json").write_text("{}")
    index = folder / "model.safetensors.index.json"
    for name in ("../out/other.safetensors", str(tree / "out/other.safetensors"), "sub/x", 3, None):
        index.write_text(json.dumps({"weight_map": {"w": name}}))
        with pytest.raises(InputError, match="safetensors files beside it"):
            open_checkpoint(str(folder), "target")
    index.write_text(json.dumps({"weight_map": {"w": "a" * 300 + ".safetensors"}}))
    with pytest.raises(InputError, match="no aaaa"):  # no disk takes such a name
        open_checkpoint(str(folder), "target")
    index.write_text(json.dumps({"weight_map": {"w": "own.safetensors"}}))
    assert "tokens" in open_checkpoint(str(folder), "target").tensors


def test_drafters_of_a_pair_lie_in_its_folder(tmp_path):
    pytest.importorskip("torch")
    from real_runner.models.small.load import SHIPPED, load_pair

    shutil.copytree(SHIPPED, tmp_path / "pair")
    path = tmp_path / "pair" / "config.json"
    shapes = json.loads(path.read_text())
    shapes["drafters"]["/../../x"] = shapes["drafters"].pop("block")
    path.write_text(json.dumps(shapes))
    with pytest.raises(InputError, match="unknown key drafters"):
        load_pair(tmp_path / "pair")


# ---------------------------------------------------------------- no file runs code


MKDIR = {"_target_": "os.mkdir", "path": "trapped"}
CHAIN = {"_target_": "simulator.policies.fixed_chain.FixedChain"}


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "pathlib.Path.touch", "self": "${here}"},
        MKDIR,
        CHAIN | {"length": MKDIR},
        CHAIN | {"length": [{"a": MKDIR}]},
    ],
)
def test_a_policys_file_makes_policies_alone(here, node):
    with pytest.raises(InputError, match="accepted: a subclass of Policy"):
        make_policy(node)
    assert not list(here.iterdir())


def test_a_latency_file_cannot_reach_another_group(here, recorded, capsys):
    Path("x.yaml").write_text("_target_: os.mkdir\nprofile: b300\n")
    assert simulate([f"trace={recorded}", "latency=x.yaml", "hydra.run.dir=out"]) == 2
    assert "accepted: names of settings" in capsys.readouterr().err
    assert {path.name for path in here.iterdir()} == {"x.yaml"}


def test_packed_torch_files_are_refused(tmp_path):
    """Stored once and named a thousand times, or deflated: a small file that fills memory."""
    torch = pytest.importorskip("torch")
    from traces.importers.cast_log import read_rounds
    from traces.importers.files import read_sources

    idx = torch.arange(64).reshape(1, 64)
    item = {"top_idx": idx, "top_val": -idx.float(), "realized": [0], "accepted": 1}
    for name, content, says in (
        ("shared", [item] * 200_000, "entries in this file"),
        ("strides", [item | {"top_idx": idx.expand(2**18, 64)}], "top_idx is a Tensor"),
    ):
        path = tmp_path / name
        torch.save(content, path)
        with pytest.raises(InputError, match=says):
            read_rounds(*read_sources([path]))
    path = tmp_path / "deflated"
    torch.save([item], tmp_path / "plain")
    with zipfile.ZipFile(tmp_path / "plain") as old, zipfile.ZipFile(path, "w", 8) as new:
        for one in old.infolist():
            new.writestr(one.filename, old.read(one))
    with pytest.raises(InputError, match="compressed"):
        read_rounds(*read_sources([path]))
