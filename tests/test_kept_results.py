"""Results that are kept apart, found again, and not taken for what they are not."""

import json

import numpy as np
import pytest

from simulator.orders import ChainOrder, build_order, cache, order_table
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


def test_split_names_in_another_order_are_refused():
    recording = make_pool(np.random.default_rng(2))
    meta = json.loads(json.dumps(dict(recording.meta)))
    meta["splits"] = ["report", "tuning", "calibration"]
    with pytest.raises(InputError, match="splits"):
        write_recording("never-written.safetensors", meta, recording.arrays)
