"""Damaged files: imported or refused in one line, nothing else, and no half result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.app import _parser
from traces.common.errors import InputError
from traces.importers.command import FORMATS
from traces.importers.points import read_points
from traces.profiles.profile import read_profile
from traces.recordings.files import read_recording

CASES = 100
FACTS = ["--hardware", "h", "--model", "m", "--num-gpus", "1", "--dtype", "d", "--source", "s"]
WORDS = {
    "cast-probe": [*FACTS, "--context", "64", "--draft-ms", "1:2"],
    "treespark-cost": [*FACTS, "--context", "64", "--draft-ms", "2"],
}
GOOD = {
    "cast-probe": {"verify_ms": {"1024": {"1": 20.5, "16": 30}, "512": {"1": 19}}, "gpu": "x"},
    "treespark-cost": {"1": {"1": 5.0, "7": 6.5}, "16": {"7": 9}},
    "treespark-traces": {"rows": [{"tree_sizes": [4, 8], "accepted_lens": [3, 1]}]},
    "accepted-list": [2, 5, 5, 0, 3],
    "vllm-result": {
        "model_id": "m",
        "request_rate": "inf",
        "max_concurrency": 4,
        "output_throughput": 400.0,
        "mean_ttft_ms": 50,
        "p99.9_itl_ms": 8.5,
        "completed": 10,
    },
}
ENDING = {"cast-rounds": ".safetensors", "cast-probe": ".csv", "treespark-cost": ".csv"}
READERS = {".safetensors": read_recording, ".csv": read_profile, ".json": read_points}
ODD = (None, True, -1, 0, 1.5, 10**30, 1e999, "", "x", "\ud800", [], {}, [[]], {"": 0}, {"1": {}})


def attempt(folder: Path, name: str, data: bytes) -> bool:
    """Whether `data` was imported; InputError in one line leaves nothing behind."""
    source = folder / "in"
    source.write_bytes(data)
    out = folder / f"out{ENDING.get(name, '.json')}"
    words = ["import", name, str(source), "--out", str(out), *WORDS.get(name, ())]
    args = _parser().parse_args(words)
    refused = None
    try:
        FORMATS[name].run(args)
    except InputError as error:
        refused = str(error)
    if refused is not None:
        assert "\n" not in refused
        assert "accepted" in refused
        assert {path.name for path in folder.iterdir()} == {"in"}
        return False
    READERS[out.suffix](out)
    for path in folder.iterdir():
        path.unlink()
    return True


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut, doubled or put in."""
    damage = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(damage) + 1))
        kind = rng.integers(4)
        if kind == 0:
            damage[at : at + 1] = rng.bytes(1)
        elif kind == 1:
            del damage[at : at + int(rng.integers(1, 9))]
        elif kind == 2:
            damage[at:at] = rng.choice([b"1e9", b"-", b'"', b"[", b"}", b",", b"\xff", b"9" * 30])
        else:
            del damage[at:]
        damage = damage or bytearray(b"0")
    return bytes(damage)


def replaced(value, rng: np.random.Generator):
    """The JSON value with one odd value somewhere."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
        return ODD[rng.integers(len(ODD))]
    if isinstance(value, list):
        at = int(rng.integers(len(value)))
        return [*value[:at], replaced(value[at], rng), *value[at + 1 :]]
    key = list(value)[rng.integers(len(value))]
    other = {k: v for k, v in value.items() if k != key}
    if rng.random() < 0.2:
        return other | {str(rng.choice(["", "0", "-1", "1.5", "x", "9" * 20])): value[key]}
    return other | {key: replaced(value[key], rng)}


@pytest.mark.parametrize("name", GOOD)
def test_damaged_json(tmp_path, name):
    rng = np.random.default_rng(0)
    good = json.dumps(GOOD[name]).encode()
    assert attempt(tmp_path, name, good)
    found = [attempt(tmp_path, name, damaged(good, rng)) for _ in range(CASES)]
    odd = (json.dumps(replaced(GOOD[name], rng)).encode() for _ in range(CASES))
    found += [attempt(tmp_path, name, data) for data in odd]
    assert not all(found)


def test_damaged_torch_files(tmp_path):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    idx = torch.arange(16).reshape(2, 8)
    content = [{"top_idx": idx, "top_val": -idx.float(), "realized": [0, 8], "accepted": 2}] * 3
    path, old = tmp_path / "new.pt", tmp_path / "old.pt"
    torch.save(content, path)
    torch.save(content, old, _use_new_zipfile_serialization=False)
    new_style, old_style = path.read_bytes(), old.read_bytes()
    path.unlink()
    old.unlink()
    for good in (new_style, old_style):
        assert attempt(tmp_path, "cast-rounds", good)
        found = [attempt(tmp_path, "cast-rounds", damaged(good, rng)) for _ in range(CASES)]
        assert not all(found)


def test_odd_values_in_rounds(tmp_path):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    plain = {"top_idx": [[1, 2], [3, 4]], "top_val": [[2.0, 1.0]] * 2, "realized": [1, 4]}
    content = [plain | {"accepted": 1}] * 2
    path = tmp_path / "x.pt"
    found = []
    for _ in range(CASES):
        torch.save(replaced(content, rng), path)
        data = path.read_bytes()
        path.unlink()
        found.append(attempt(tmp_path, "cast-rounds", data))
    assert not all(found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["1", "8", "rows", "verify_ms", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", GOOD)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=json_values)
def test_any_json(tmp_path, name, value):
    attempt(tmp_path, name, json.dumps(value).encode("utf-8", "replace"))
