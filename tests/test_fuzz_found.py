"""Faults that damaged files brought to light, one by one."""

from __future__ import annotations

import json
import os

import pyarrow
import pytest
from pyarrow import parquet

from simulator.studies.store import Store
from tests.fuzz import stores
from tests.fuzz.formats import joined
from tests.studies_cases import OPEN
from traces.common.columns import COUNTS, read_columns
from traces.common.errors import InputError
from traces.importers.files import read_sources


def test_links_in_a_circle_are_no_files(tmp_path):
    for name in ("in.json", "x.partial.jsonl"):
        os.symlink(name, tmp_path / name)
    with pytest.raises(InputError, match=r"in\.json: no such file"):
        read_sources([tmp_path / "in.json"])
    pytest.importorskip("torch")
    from real_runner.probing.store import Store as Samples

    with pytest.raises(InputError, match=r"x\.partial\.jsonl: no samples can be kept there"):
        Samples(tmp_path / "x.partial.jsonl", {})
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="accepted: samples of an interrupted probe"):
        Samples(tmp_path / "folder", {})


@pytest.mark.parametrize(
    ("numbers", "says"),
    [([0, 2, 1], None), ([0, 1, 1], "holds 1 as number 2"), ([1, 2, 3], "holds 1 as number 0"),
     ([0.0, 1.5, 2.0], "holds 1.5 as number 1"), (["0", "1", "2"], "holds 0 as number 0")],
)  # fmt: skip
def test_requests_are_numbered_once(tmp_path, numbers, says):
    path = tmp_path / "requests.parquet"
    table = {"request": numbers, "batch": [5, 6, 7]}
    parquet.write_table(pyarrow.table(table), path)
    if says is None:
        found = read_columns(path, {"batch": COUNTS}, "the requests", 3)
        assert {name: column.tolist() for name, column in found.items()} == {"batch": [5, 7, 6]}
    else:
        with pytest.raises(InputError, match=says):
            read_columns(path, {"batch": COUNTS}, "the requests", 3)


@pytest.mark.parametrize(
    "change",
    [{"output_throughput": -1.0}, {"shares": {"clamped": 1.5}}, {"requests": -1}, {"more": 1},
     {"prompts": [1, 1]}, {"prompts": [1, True]}, {"tokens": [1.0]}, {"tokens": [1.0, None]},
     {"levels_ms": None}, {"shares": [1.0]}, {"full": 1}, {"good": [2.0, 1.0]}, {"nodes": "3"},
     {"stay_s": float("inf")}],
)  # fmt: skip
def test_a_damaged_result_is_not_played_with(tmp_path, change):
    for result, good in ((stores.RESULT, True), (stores.RESULT | change, False)):
        text = json.dumps({"key": "a", "result": result}) + "\n"
        (tmp_path / stores.FILE).write_text(text)
        if good:
            assert Store(tmp_path, stores.TASK)["a"] == OPEN
        else:
            with pytest.raises(InputError, match="line 1 is no result of task=tournament"):
                Store(tmp_path, stores.TASK)


def test_samples_of_a_pass_stand_there_once(tmp_path):
    pytest.importorskip("torch")
    from real_runner.probing.grid import Samples, StepCell
    from real_runner.probing.store import Store as Kept

    path, cell = tmp_path / "x.partial.jsonl", StepCell(1, 64, 4)
    with Kept(path, {}) as store:
        store.add(cell, 0, Samples((0.25, 0.5), (0.125,)))
    first, line = path.read_text().splitlines()
    with Kept(path, {}) as store:
        assert store.kept() == {cell: Samples((0.25, 0.5), (0.125,))}
    other_pass = json.dumps(json.loads(line) | {"pass": 1})
    path.write_text("\n".join([first, line, other_pass, ""]))
    with Kept(path, {}) as store:
        assert store.kept() == {cell: Samples((0.25, 0.5, 0.25, 0.5), (0.125, 0.125))}
    odd = (
        {"pass": 0.5},
        {"pass": "1"},
        {"verify_s": "12"},
        {"verify_s": [True]},
        {"cell": [1, 64]},
    )
    for bad in (line, *(json.dumps(json.loads(line) | {"pass": 1} | one) for one in odd)):
        path.write_text("\n".join([first, line, bad, ""]))
        with pytest.raises(InputError, match="accepted: samples of an interrupted probe"):
            Kept(path, {})


@pytest.mark.parametrize(
    "entry",
    [{"shape": [2.0, 4]}, {"shape": "24"}, {"shape": [-2, -4]}, {"shape": [True, 8]},
     {"data_offsets": [0, 2**40]}, {"data_offsets": [32, 0]}, {"data_offsets": [0]}],
)  # fmt: skip
def test_tensors_of_a_checkpoint_lie_in_their_file(tmp_path, entry):
    pytest.importorskip("torch")
    from real_runner.models.hub.files import open_checkpoint

    (tmp_path / "config.json").write_text("{}")
    good = {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}
    (tmp_path / "model.safetensors").write_bytes(joined({"w": good}, bytes(32)))
    assert open_checkpoint(str(tmp_path), "target").tensors["w"][1] == (2, 4)
    (tmp_path / "model.safetensors").write_bytes(joined({"w": good | entry}, bytes(32)))
    with pytest.raises(InputError, match=r"model\.safetensors is not a readable safetensors"):
        open_checkpoint(str(tmp_path), "target")
