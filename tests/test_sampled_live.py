"""Sampled drafts on a live pair: what a run emits depends on its keys alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.engine.draws import IndependentDraws, KeyedDraws
from real_runner.engine.engine import Engine, Settings
from real_runner.engine.residual import Rejection
from real_runner.models.small.config import BANNED
from real_runner.serving.arena import Arena, plain_workload
from simulator.engine.inputs import load_cost
from simulator.orders import BestFirstOrder
from simulator.orders.families.sampled import SampledOrder
from tests.tiny_pair import KINDS, random_prompts, tiny_pair, tiny_recording

CONF = Path(__file__).resolve().parents[1] / "conf"
TREE = {"_target_": "tests.sampled_cases.SampledTree", "nodes": 12, "branch": 3}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(spread=5.0, dtype=torch.float64)


def engine_of(pair, kind, draws, count: int = 3) -> Engine:
    engine = Engine(pair.target, pair.drafters[kind], count, 60, Rejection(draws), Settings(pool=8))
    for i, prompt in enumerate(random_prompts(np.random.default_rng(2), count)):
        engine.admit(np.array(prompt), i)
    return engine


@pytest.mark.parametrize("kind", KINDS)
def test_texts_do_not_depend_on_who_else_is_served(pair, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    cost = load_cost({"profile": "b300"})
    recording = tiny_recording(pair, kind, 8, 12, temperature=1.0)
    arena = Arena(pair, pair.drafters[kind], recording, cost, Rejection(KeyedDraws(1.0)))
    sequences = recording.sequences_of("report")
    served = [arena.serve(TREE, plain_workload(sequences, n), n) for n in (1, 3)]
    assert served[0].outputs == served[1].outputs
    accepted = served[0].facts.rounds["accepted"]
    assert accepted.sum() >= 4
    assert set().union(*served[0].outputs).isdisjoint(BANNED)


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_follow_the_keys_or_the_stream(pair, kind):
    spec = SampledOrder(nodes=10, branch=2, temperature=1.0)
    seeds, index = np.arange(3), np.zeros(3, np.int64)

    def drafted(draws, offset: int = 0):
        engine = engine_of(pair, kind, draws)
        return engine.order(spec, engine.draft(), seeds, index + offset).token

    keyed = KeyedDraws(1.0)
    assert (drafted(keyed) == drafted(keyed)).all()
    assert (drafted(keyed) != drafted(keyed, 1)).any()
    streams = [IndependentDraws(1.0, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    one, same, other = map(drafted, streams)
    assert (one == same).all()
    assert (one != other).any()


def test_an_engine_tells_its_verifier_which_trees_are_samples(pair):
    engine = engine_of(pair, "semi_autoregressive", KeyedDraws(1.0))
    where = np.arange(3), np.zeros(3, np.int64)
    width = np.full(3, 4)
    for spec, temperature in ((SampledOrder(temperature=0.7), 0.7), (BestFirstOrder(), None)):
        table = engine.order(spec, engine.draft(), *where)
        trees = engine.trees(table, width)
        assert trees.sampled == trees.arranged(np.array([2, 0, 1])).sampled == temperature
    assert engine.trees(None, width * 0).sampled is None
