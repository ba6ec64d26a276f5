"""Threads of the tests, and fixtures shared by the tests of the command line."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

# Before NumPy and PyTorch are loaded: workers share the cores, and threads of theirs that wait
# for each other burn what the other workers need. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.set_threshold(50_000, 20, 100)  # what thousands of tests import and collect is looked at less

import numpy as np
import pytest

from tests.synthetic import make_pool
from traces import write_recording


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # modules and tests stay; nobody need look at them again


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> str:
    """A small pool recording on disk."""
    recording = make_pool(
        np.random.default_rng(0), sequences=9, depths=7, lengths=[20] * 9, noise=0.3
    )
    path = tmp_path_factory.mktemp("recording") / "tiny.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    return str(path)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Order tables of another day are not trusted, nor any left behind; workers share theirs."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECSIM_CACHE", str(base / "cache"))
        yield


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def pair():
    """The shipped small pair, live on the CPU."""
    pytest.importorskip("torch")

    from real_runner.models.small.load import load_pair

    return load_pair()


@pytest.fixture
def loaded(pair, monkeypatch):
    """The pair as every live task finds it loaded."""
    monkeypatch.setattr("real_runner.models.small.load.load_pair", lambda *_: replace(pair))
    return pair
