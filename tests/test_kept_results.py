"""Results that are kept apart, found again, and not taken for what they are not."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.orders import ChainOrder, build_order, cache, order_table
from simulator.results.latency import meets
from simulator.results.window import FULL_BATCH, Window
from tests.synthetic import make_pool
from traces.common.errors import InputError
from traces.recordings.files import write_recording


@pytest.mark.parametrize("content", ["array", "short"])
def test_a_cached_table_of_another_shape_is_built_again(tmp_path, monkeypatch, content):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    cache.forget()
    recording = make_pool(np.random.default_rng(1))
    expected = order_table(ChainOrder(), recording)
    (path,) = tmp_path.iterdir()
    with np.load(path) as file:
        arrays = dict(file)
    with path.open("wb") as file:
        if content == "array":
            np.save(file, np.zeros(3))
        else:
            np.savez(file, **arrays | {"size": arrays["size"][:-1]})
    cache.forget()
    again = order_table(ChainOrder(), recording)
    assert np.array_equal(again.hit_rank, expected.hit_rank)
    assert np.array_equal(again.hit_rank, build_order(ChainOrder(), recording).hit_rank)


def test_an_objective_is_met_at_its_limit():
    # 0.25 s and 250 ms are exact in binary
    assert meets({"ttft": 250.0}, {"ttft": np.array([0.25, 0.2501])}).tolist() == [True, False]


def test_a_slot_refilled_at_the_last_instant_is_outside_the_window():
    times_s = np.array([1.0, 1.5, 2.0])
    requests = {"admitted_s": times_s, "first_token_s": times_s, "warmup": times_s == 1.5}
    facts = SimpleNamespace(requests=requests)
    assert Window(FULL_BATCH, 1.0, 2.0).admitted(facts).tolist() == [True, False, False]


def test_split_names_in_another_order_are_refused():
    recording = make_pool(np.random.default_rng(2))
    meta = json.loads(json.dumps(dict(recording.meta)))
    meta["splits"] = ["report", "tuning", "calibration"]
    with pytest.raises(InputError, match="splits"):
        write_recording("never-written.safetensors", meta, recording.arrays)
