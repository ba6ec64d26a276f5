"""TreeSpark's and DSpark's comparisons on shipped recordings: the inequalities the page states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.engine.inputs import load_recording
from simulator.orders import BestFirstOrder, order_table
from simulator.studies.options import read_option
from simulator.studies.published import dspark, treespark
from simulator.studies.published.treespark import BLOCK, BUDGETS, published_theta
from simulator.studies.published.treespark import treespark_theta_lines as theta_lines
from tests.reference_orders import walked
from traces.common.errors import InputError

SEMI = {"recording": "small_semi_t0", "split": "report", "domains": None}
CONFIG = {
    "trace": SEMI,
    "latency": read_option("latency", "b300", "test"),
    "server": read_option("server", "default", "test"),
    "policy": read_option("policy", "cast", "test"),
    "max_concurrency": 1,
    "request_rate": math.inf,
    "seed": 0,
    "num_prompts": None,
    "task": "published",
}


@pytest.fixture(scope="module")
def budgets() -> dict:
    return treespark.cells(SEMI)


def test_parent_conditioned_beats_marginal_at_every_budget(budgets):
    for budget in BUDGETS:
        assert budgets["parent"][budget].length > budgets["marginal"][budget].length
        assert budgets["parent"][budget].length >= budgets["biased"][budget].length
        if budget <= BLOCK:
            assert budgets["parent"][budget].length >= budgets["chain"][budget].length

    # Marginal trees stay below the chain at eight times its nodes; one node is the chain's first.
    assert BUDGETS[-1] == 8 * BLOCK
    assert budgets["marginal"][8 * BLOCK].length < budgets["chain"][BLOCK].length
    one = [budgets[rule][1].length for rule in ("chain", "parent", "biased")]
    assert one == [one[0]] * 3


def test_a_budget_by_walking_the_texts(budgets):
    """Rounds of seven parent-conditioned nodes, one request after the other."""
    recording = load_recording(SEMI)
    tree = order_table(BestFirstOrder(scores="parent", nodes=56, depth_cap=7), recording)
    hits = [
        accepted
        for sequence in recording.sequences_of("report")
        for _, accepted in walked(recording, sequence, lambda at: np.sum(tree.hit_rank[at] <= 7))
    ]
    assert budgets["parent"][7].length == pytest.approx(1 + np.mean(hits))
    assert budgets["parent"][7].accepted_share == pytest.approx(np.mean(hits) / 7)


def test_a_drafter_without_a_markov_head_is_refused():
    with pytest.raises(InputError, match="treespark_budget: one of a drafter with a Markov head"):
        treespark.cells({**SEMI, "recording": "small_block_t0"})


@pytest.mark.parametrize(
    ("batch", "sampled", "theta"),
    [(1, False, 0.02), (4, False, 0.02), (5, False, 0.05), (8, False, 0.05), (9, False, 0.15),
     (64, False, 0.15), (1, True, 0.05), (8, True, 0.05), (9, True, None)],
)  # fmt: skip
def test_published_ladder(batch, sampled, theta):
    assert published_theta(batch, sampled) == theta
    name = treespark.rung_of(batch, sampled)
    assert name in treespark.arms()
    assert name == ("chain" if theta is None else f"{theta:g}")


def test_the_fastest_arm_is_a_rung():
    rungs, others = {"0.02": 3.0, "0.05": 4.0, "chain": 4.0}, ("ladder", "tuned chain", "plain")
    assert treespark.fastest(rungs | dict.fromkeys(others, 9.0)) == "0.05"


def test_thetas_spend_fewer_nodes_as_they_rise(monkeypatch):
    monkeypatch.setattr(treespark, "SWEPT_THETAS", (0.005, 0.02, 0.1, 0.5))
    monkeypatch.setattr(treespark, "NODES", (15,))
    text = list(theta_lines(CONFIG))
    arms = [line.split() for line in text if line.startswith(" theta ")]
    assert [line[1] for line in arms] == ["0.005", "0.02", "0.1", "0.5"]
    starred = [line for line in arms if line[2] == "*"]
    assert [line[1] for line in starred] == ["0.02"]
    numbers = np.array([[float(v) for v in line[-8:-6]] for line in arms])  # nodes, tokens a round
    assert (np.diff(numbers, axis=0) < 0).all()
    with pytest.raises(InputError, match="max_concurrency is None; accepted: a whole number"):
        list(theta_lines({**CONFIG, "max_concurrency": None}))


def test_the_ladder_follows_its_rungs(monkeypatch):
    monkeypatch.setattr(treespark, "LOADS", (1, 16))
    text = list(treespark.treespark_load_lines(CONFIG))
    arms = {line.split()[0]: line.split()[1:] for line in text if line.startswith((" 1 ", " 16 "))}
    names = list(treespark.arms())
    for load, rung in (("1", "0.02"), ("16", "0.15")):
        at = dict(zip(names, arms[load], strict=False))
        assert at["ladder"] == at[rung]
        assert at["chain"] == "1.000"
        assert float(at["plain"]) < 1 < float(at["ladder"])  # trees pay at both loads


def test_the_cliff(monkeypatch):
    monkeypatch.setattr(dspark, "LOADS", (1, 128, 160))
    speed = dspark.speeds(dspark.served(CONFIG))
    for load in (1, 128):  # 128 requests of 8 tokens fill the last captured graph
        assert speed[load]["fixed"] > speed[load]["none"]
    assert speed[160]["fixed"] < speed[160]["none"] / 2
    for arms in speed.values():
        assert arms["adaptive"] >= max(arms["fixed"], arms["none"])
        assert arms["adaptive"] >= arms["dspark"] * 0.98  # first stop against the whole staircase
    assert speed[128]["dspark"] < speed[128]["none"]


def test_a_markov_head_lengthens_every_domains_rounds():
    config = {**CONFIG, "trace": read_option("trace", "small_semi_t1", "test")}
    config["trace"] = {k: v for k, v in config["trace"].items() if k != "at_temperature"}
    traces = dspark.recordings(config)
    assert traces["block"]["recording"] == "small_block_t1"
    semi, block = (dspark.lengths(traces[name]) for name in ("semi", "block"))
    assert set(semi) == set(block) == {"arithmetic", "report", "docs", "code", "all"}
    assert all(semi[name] > block[name] > 1 for name in semi)
    errors = dspark.calibration_errors(config, traces["semi"])
    before, after = errors["ece_before"], errors["ece_after"]
    assert len(before) == 7
    assert all(a <= b for a, b in zip(after, before, strict=True))
