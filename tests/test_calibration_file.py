"""Calibration files: round trip, refusals, force, and the command that writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.calibration.file import (
    beside,
    calibration_for,
    read_calibration,
    write_calibration,
)
from simulator.calibration.fit import fit_calibration
from simulator.cli.main import main
from simulator.engine.inputs import load_recording
from simulator.orders import build_order
from simulator.policy import Lab
from tests.policy_lab import make_lab
from tests.synthetic import make_pool
from traces import InputError, find_recording, known_recordings, write_recording

SHIPPED = known_recordings()


def _recording(seed: int = 0):
    return make_pool(np.random.default_rng(seed), depths=5, lengths=[20] * 9, sequences=9)


@pytest.fixture(scope="module")
def lab() -> Lab:
    return make_lab(_recording())


@pytest.fixture(scope="module")
def fitted(lab):
    return fit_calibration(lab.recording, lab.table, nodes=20, branch=4)


@pytest.fixture
def file(fitted, tmp_path) -> Path:
    path = tmp_path / "tiny.calibration.json"
    write_calibration(path, fitted, {"calibration": {"anchors": 3}})
    return path


def test_round_trip(file, fitted, lab):
    read = read_calibration(file, lab.recording)
    for name in ("fit", "platt", "edge_map", "path", "order"):
        assert getattr(read, name) == getattr(fitted, name)
    assert (read.source, read.forced_from) == (str(file), None)
    assert read.fit.temperature == 0
    assert (read.order.nodes, read.order.branch) == (20, 4)
    said = read.describe()
    assert json.loads(json.dumps(said)) == said
    assert (set(said), said["calibration"]) == ({"platt_a", "platt_b", "calibration"}, str(file))
    sigma = np.array([[0.9, 0.01], [1e-7, 0.0]])
    np.testing.assert_array_equal(read.path(sigma), fitted.path(sigma))
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    first = file.read_bytes()
    again = fit_calibration(lab.recording, lab.table, nodes=20, branch=4)
    write_calibration(file, again, {"calibration": {"anchors": 3}})
    assert file.read_bytes() == first
    file.unlink()
    with pytest.raises(InputError, match="accepted: a specdec-calibration file"):
        read_calibration(file)


def test_another_recording_is_refused_and_force_says_so(file):
    other = _recording(1)
    with pytest.raises(InputError, match="content_hash is") as caught:
        read_calibration(file, other)
    message = str(caught.value)
    assert str(file) in message
    assert other.content_hash[:12] in message
    assert "\n" not in message
    forced = read_calibration(file, other, force=True)
    assert forced.forced_from == "synthetic pool"
    assert forced.describe()["forced_from"] == "synthetic pool"


@pytest.mark.parametrize("force", [False, True])
def test_a_temperature_that_its_recording_has_not_is_refused(file, lab, force):
    """The content is the recording's, so the header contradicts itself; force does not help."""
    data = json.loads(file.read_text())
    data["recording"]["temperature"] = 0.7
    file.write_text(json.dumps(data))
    message = "tiny.calibration.json: recording.temperature is 0.7; accepted: 0.0, that of syn"
    with pytest.raises(InputError, match=message):
        read_calibration(file, lab.recording, force)
    assert read_calibration(file, _recording(1), force=True).fit.temperature == 0.7


def test_policies_get_a_file_or_a_fit_of_their_own(file, lab):
    assert calibration_for(lab, file).source == str(file)
    with pytest.raises(InputError, match="content_hash"):
        calibration_for(make_lab(_recording(1)), file)
    assert (
        calibration_for(make_lab(_recording(1)), file, force=True).forced_from == "synthetic pool"
    )
    for path, force in ((3, False), (None, 1)):
        with pytest.raises(InputError, match="policy.(calibration is 3|force_calibration is 1)"):
            calibration_for(lab, path, force)
    own = calibration_for(lab)
    assert own.source == "fitted on synthetic pool"
    assert (own.fit.nodes, own.fit.branch) == (63, 8)
    assert own == fit_calibration(lab.recording, lambda spec: build_order(spec, lab.recording))


def test_a_fit_is_made_once_per_content():
    asked, found = [], []
    for seed in (2, 2, 3):
        own = make_lab(_recording(seed))
        counted = replace(own, table=lambda spec, own=own: asked.append(spec) or own.table(spec))
        found.append(calibration_for(counted))
    assert found[0] is found[1]
    assert found[0] is not found[2]
    assert len(asked) == 4  # two trees for each content


DAMAGED = [
    (("version",), 2, "version is 2; accepted: 1"),
    (("draws",), "sampled", "draws is 'sampled'; accepted: fixed"),
    (("recording", "temperature"), True, "recording.temperature is True; accepted: a number"),
    (("order", "nodes"), 0, "order.nodes is 0; accepted: a whole number"),
    (("order", "scores"), "marginal", "order.scores is 'marginal'; accepted: auto"),
    (("order", "extra"), 1, "unknown key order.extra"),
    (("platt", "a"), -0.5, "platt.a is -0.5; accepted: a number above 0"),
    (("platt", "b"), 10**400, "platt.b is inf; accepted: a number"),
    (("platt",), None, "platt is None; accepted: a mapping"),
    (("edge_map", "a"), 0, "edge_map.a is 0; accepted: a number above 0"),
    (("edge_map", "rank"), 0.1, "edge_map.rank is 0.1; accepted: a number"),
    (("edge_map", "depth"), [], "edge_map.depth is []; accepted: a list of numbers"),
    (("path_map", "sigma"), [0.0, "x"], "path_map.sigma is [0.0, 'x']; accepted: a list of"),
    (("path_map", "survival"), [0.5, 0.4], "path map"),
    ((), "", "not JSON"),
    ((), "\xff", "not JSON"),
    ((), "[1, 2]", "it is [1, 2]; accepted: a mapping"),
    ((), "{}", "format is missing"),
    ((), '{"format": "specdec-calibration", "version": NaN}', "NaN is no number"),
]


@pytest.mark.parametrize(("keys", "value", "says"), DAMAGED)
def test_damaged_files_are_refused_in_one_line(file, keys, value, says):
    if keys:
        data = node = json.loads(file.read_text())
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value
        value = json.dumps(data)
    file.write_text(value, "latin-1")
    with pytest.raises(InputError) as caught:
        read_calibration(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert says in message
    assert "\n" not in message
    assert len(message) < 400


# The command


def _calibrate(*words: str) -> int:
    return main(["task=calibrate", "calibrate.nodes=15", "calibrate.branch=3", *words])


def test_the_task_prints_errors_and_saves_beside_the_recording(here, recorded, capsys):
    path = Path(recorded).with_name("tiny.calibration.json")
    assert _calibrate(f"trace={recorded}") == 0
    out = capsys.readouterr().out
    recording = load_recording({"recording": recorded})
    read = read_calibration(path, recording)
    path.unlink()
    assert beside(recording) == path
    again = fit_calibration(recording, lambda spec: build_order(spec, recording), 15, 3)
    assert read == replace(again, source=str(path))
    assert out.endswith(f"wrote {path}\n")
    assert [line for line in out.splitlines() if line.split()[:1] == ["isotonic"]]
    first = [line.split()[0] for line in out.splitlines() if line.split()]
    depths = [word for word in first if word.isdigit()]
    assert depths == [str(depth) for depth in range(1, 8)]
    assert list(here.iterdir()) == []  # no run folder stays


def test_output_is_written_where_it_is_asked_for(here, recorded, capsys):
    for _ in range(2):  # its own file is replaced
        assert _calibrate(f"trace={recorded}", "calibrate.output=new/mine.json") == 0
    assert read_calibration(here / "new/mine.json").fit.recording == "tiny.safetensors"
    assert not Path(recorded).with_name("tiny.calibration.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["calibrate.nodes=0"], "calibrate.nodes is 0"),
        (["calibrate.branch=two"], "calibrate.branch is 'two'"),
        (["calibrate.nope=1"], "unknown key calibrate.nope"),
        (["calibrate.output=3"], "calibrate.output is 3"),
        (["calibrate.output=mine.txt"], "calibrate.output is 'mine.txt'"),
        (["calibrate.output=file/mine.json"], "cannot be written"),
        (["calibrate.output=folder.json"], "cannot be written"),
        (["calibrate.output=manifest.json"], "exists and is not replaced: manifest.json: format"),
        (
            ["calibrate.output=other.json"],
            "other.json is the specdec-calibration of synthetic pool",
        ),
    ],
)
def test_the_task_refuses_and_touches_nothing(here, recorded, fitted, capsys, words, says):
    (here / "file").write_text("a file")
    (here / "folder.json").mkdir()
    (here / "manifest.json").write_text('{"format": "specdec-recording-manifest"}')
    write_calibration(here / "other.json", fitted, {})
    before = {path: path.is_dir() or path.read_bytes() for path in here.rglob("*")}
    assert main(["task=calibrate", f"trace={recorded}", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert says in err
    assert {path: path.is_dir() or path.read_bytes() for path in here.rglob("*")} == before
    assert not Path(recorded).with_name("tiny.calibration.json").exists()


def test_a_recording_that_allows_no_fit_is_refused_in_one_line(here, capsys):
    recording = make_pool(np.random.default_rng(4), lengths=[1] * 6)
    write_recording(here / "empty.safetensors", recording.meta, recording.arrays)
    assert _calibrate("trace=empty.safetensors") == 2
    assert "split calibration has no drafted positions" in capsys.readouterr().err
    assert [path.name for path in here.iterdir()] == ["empty.safetensors"]


# Those shipped


def test_calibrations_are_not_recordings():
    assert not any("calibration" in name for name in SHIPPED)
    for path in SHIPPED.values():
        with pytest.raises(
            InputError, match="format is 'specdec-calibration'; accepted: specdec-rec"
        ):
            find_recording(path.with_name(path.stem + ".calibration.json"))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_calibrations_are_of_the_shipped_recordings(name):
    recording = load_recording({"recording": name})
    path = beside(recording)
    read = read_calibration(path, recording)
    assert read.fit.recording == SHIPPED[name].name
    assert read.fit.temperature == recording.temperature
    assert len(read.edge_map.depth) == recording.depths
    assert (read.fit.nodes, read.fit.branch) == (63, 8)
    assert path.stat().st_size < 60_000
