"""The cache of order tables, and what importing orders costs."""

from __future__ import annotations

import io

import numpy as np
import pytest

from simulator.orders import BestFirstOrder, ChainOrder, build_order, cache, order_table
from tests.synthetic import order_recordings


@pytest.fixture(scope="module")
def recordings():
    return order_recordings()


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """An empty cache, and the list of specs that were really built."""
    built = []

    def build(spec, recording):
        built.append(spec)
        return build_order(spec, recording)

    cache.forget()
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "build_order", build)
    yield built
    cache.forget()


def test_cache_hits_in_memory_and_on_disk(recordings, counted):
    recording = recordings["pool"]
    first = order_table(ChainOrder(), recording)
    assert order_table(ChainOrder(), recording).score is first.score
    assert order_table(ChainOrder(4), recording).score is first.score  # the same order, D = 4
    cache.forget()
    stored = order_table(ChainOrder(), recording)
    assert len(counted) == 1
    for name in cache.ARRAYS:
        assert (getattr(stored, name) == getattr(first, name)).all()
        assert getattr(stored, name).dtype == getattr(first, name).dtype
    assert stored.spec == ChainOrder()
    order_table(ChainOrder(3), recording)
    order_table(ChainOrder(), recordings["tied pool"])
    assert len(counted) == 3
    assert len(list(cache.cache_folder("orders").iterdir())) == 3


def _one_short(raw: bytes) -> bytes:
    """A whole file, with a size too few in it."""
    file = io.BytesIO()
    arrays = dict(np.load(io.BytesIO(raw)))
    np.savez(file, **arrays | {"size": arrays["size"][:-1]})
    return file.getvalue()


def _array(raw: bytes) -> bytes:
    np.save(file := io.BytesIO(), np.zeros(3))
    return file.getvalue()


DAMAGE = {
    "short": _one_short,
    "array": _array,
    "empty": lambda raw: b"",
    "text": lambda raw: b"not a table",
    "cut": lambda raw: raw[: len(raw) // 2],
    "flipped": lambda raw: raw[:600] + bytes([raw[600] ^ 255]) + raw[601:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_rebuilt(recordings, counted, damage):
    recording = recordings["pool"]
    table = order_table(ChainOrder(), recording)
    (path,) = cache.cache_folder("orders").iterdir()
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    cache.forget()
    again = order_table(ChainOrder(), recording)
    assert len(counted) == 2
    assert (again.score == table.score).all()
    assert len(path.read_bytes()) == len(whole)
    cache.forget()
    order_table(ChainOrder(), recording)
    assert len(counted) == 2


def test_the_file_of_another_table_is_not_taken(recordings, counted):
    recording = recordings["pool"]
    short = order_table(BestFirstOrder(nodes=5), recording)
    (path,) = cache.cache_folder("orders").iterdir()
    order_table(BestFirstOrder(nodes=5, ties="tick"), recording)
    (other,) = set(cache.cache_folder("orders").iterdir()) - {path}
    path.write_bytes(other.read_bytes())
    cache.forget()
    assert (order_table(BestFirstOrder(nodes=5), recording).score == short.score).all()
    assert len(counted) == 3


def test_a_folder_that_cannot_be_written_is_no_error(recordings, counted, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "file"))
    order_table(ChainOrder(), recordings["pool"])
    cache.forget()
    order_table(ChainOrder(), recordings["pool"])
    assert len(counted) == 2
