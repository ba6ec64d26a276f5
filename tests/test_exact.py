"""Every shipped policy live and replayed, on the shipped pair: the same rounds, the same texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.engine.engine import Settings
from real_runner.engine.residual import make_verifier
from real_runner.engine.walk import GreedyMatch, Walk
from real_runner.models.small.load import load_pair
from real_runner.recording.record import RecordPlan, corpus_prompts, record_in_memory
from real_runner.serving.arena import Arena, plain_workload
from real_runner.settings import with_fixed_sets
from real_runner.tasks import exact
from real_runner.validating.compare import compare_rounds
from simulator.engine.inputs import load_cost
from simulator.results.facts import Facts
from tests.synthetic import make_pool
from traces.recordings.files import build_recording

CONF = Path(__file__).resolve().parents[1] / "conf"
POLICIES = {path.stem: yaml.safe_load(path.read_text()) for path in CONF.glob("policy/*.yaml")}
DOMAINS = ("arithmetic", "report")
TOKENS = 16
CASES = {  # drafter, temperature, packing: the requests in flight
    ("semi_autoregressive", 0.0, "ragged"): (1, 3),
    ("block", 0.0, "dense"): (3,),
    ("semi_autoregressive", 1.0, "dense"): (3,),
    ("block", 1.0, "ragged"): (1,),
}


@pytest.fixture(scope="module", autouse=True)
def _orders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECSIM_CACHE", str(tmp_path_factory.mktemp("orders")))
        yield


@pytest.fixture(scope="module")
def pair():
    return load_pair()


@pytest.fixture(scope="module")
def arenas(pair):
    """An arena for each case, and what plain decoding writes in it."""
    cost = load_cost({"profile": "b300"})
    prompts = corpus_prompts(pair, DOMAINS, 4, 1)
    made = {}
    for kind, temperature, packing in CASES:
        plan = RecordPlan(DOMAINS, TOKENS, (temperature,), 1, "none", stored="float32")
        drafter, verifier = pair.drafters[kind], make_verifier(temperature)
        recording = record_in_memory(pair, drafter, plan, prompts, temperature)
        arena = Arena(pair, drafter, recording, cost, verifier, Settings(packing=packing))
        sequences = recording.sequences_of("report")
        plain = arena.serve(POLICIES["autoregressive"], plain_workload(sequences, 1), 1).outputs
        made[kind, temperature, packing] = arena, sequences, plain
    return made


def cells() -> list:
    """Every policy in every case; further settings of one, at temperature 0 alone."""
    found = []
    for case in CASES:
        for name, config in sorted(POLICIES.items()):
            same = config["_target_"].rpartition(".")[0].endswith(f".{name}")
            if same or case[1] == 0:
                found.append(pytest.param(name, case, id="-".join(map(str, (name, *case)))))
    return found


@pytest.mark.parametrize(("policy", "case"), cells())
def test_a_policy_makes_the_rounds_of_its_replay_and_the_texts_of_plain_decoding(
    arenas, case, policy
):
    arena, sequences, plain = arenas[case]
    config = POLICIES[policy]
    (config,) = with_fixed_sets([config], arena.recording.temperature)
    recorded = [arena.recording.committed_tokens(s).tolist() for s in sequences]
    assert plain == recorded
    for size in CASES[case]:
        found, other = exact.one_cell(arena, config, sequences, size, plain)
        assert found.first is None, str(found.first)
        assert (found.differing, other) == (0, 0)
        assert found.rounds > 0


def test_drafts_are_accepted_so_that_the_comparison_means_something(arenas):
    arena, sequences, _ = arenas["semi_autoregressive", 0.0, "ragged"]
    facts = arena.replay(POLICIES["fixed_tree"], plain_workload(sequences, 3), 3)
    assert facts.rounds["accepted"].mean() > 1
    assert (facts.rounds["accepted"] >= facts.rounds["committed"]).any()  # clipped at an end


# ---------------------------------------------------------------- planted differences

# Two sequences of 6 outputs, anchors 0-4 and 5-9; margins by hand, one of them a near tie.
MARGIN = [0.5, 0.25, 3e-5, 0.75, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
# request, step, anchor, width, accepted, committed
ROUNDS = [(0, 0, 0, 3, 1, 2), (1, 0, 5, 3, 0, 1), (0, 1, 2, 2, 1, 2), (1, 1, 6, 3, 2, 3),
          (0, 2, 4, 3, 0, 1), (1, 2, 9, 1, 0, 1)]  # fmt: skip


@pytest.fixture(scope="module")
def recording():
    made = make_pool(np.random.default_rng(0), sequences=2, depths=3, lengths=[6, 6])
    margin = np.array(MARGIN, np.float32)
    return build_recording(dict(made.meta), dict(made.arrays) | {"target_margin": margin}, "here")


def facts_of(rounds) -> Facts:
    names = ("request", "step", "anchor", "width", "accepted", "committed")
    columns = {name: np.array(column) for name, column in zip(names, zip(*rounds), strict=True)}
    requests = {"request": np.arange(2), "sequence": np.arange(2)}
    return Facts(requests, {"step": np.arange(3)}, columns, 2)


def planted(recording, index: int | None, row, outputs=None, tables=()):
    """ROUNDS against themselves with one line replaced, taken away (row None) or added."""
    rounds = list(ROUNDS)
    rounds[slice(index, index if index is None else index + 1)] = (
        [*rounds, row] if index is None else [row] if row else []
    )
    return compare_rounds(facts_of(ROUNDS), facts_of(rounds), recording, tables, outputs)


def test_equal_rounds_do_not_differ(recording):
    found = compare_rounds(facts_of(ROUNDS), facts_of(ROUNDS), recording)
    assert (found.rounds, found.differing, found.first) == (6, 0, None)


def test_a_changed_width_is_found_with_its_margin(recording):
    found = planted(recording, 3, (1, 1, 6, 2, 2, 3))
    assert (found.differing, found.first.request, found.first.round) == (1, 1, 1)
    assert found.first.replayed == (6, 3, 2, 3)
    assert found.first.live == (6, 2, 2, 3)
    assert found.first.margin == 2.0  # of anchor 5, whose bonus could have been another
    assert not found.first.near_tie
    assert "round 1: replayed anchor 6, width 3" in str(found.first)


class Nodes:
    """A table in which anchor 2 of request 0 cuts just behind a node of anchor 6's."""

    score = np.full((10, 4), np.array([-0.5, -0.5 - 2e-5, -1.0, -3.0]))
    size = np.full(10, 4)


def test_the_cut_between_nodes_of_a_step_counts_and_gaps_elsewhere_do_not(recording):
    # Step 1 verifies 2 nodes at anchor 2 and 3 at anchor 6: kept -.50002 and -1, left -1 and -3.
    wide = planted(recording, 3, (1, 1, 6, 2, 2, 3), tables=[Nodes])
    assert wide.first.margin == 0.0
    assert wide.first.near_tie
    # Step 0 verifies 3 at either anchor: kept -1, left -3; the 2e-5 between the first two is
    # no excuse.
    first = planted(recording, 1, (1, 0, 5, 3, 1, 2), tables=[Nodes])
    assert first.first.margin == 2.0
    assert not first.first.near_tie


def test_the_first_difference_in_the_order_of_the_replay_is_reported(recording):
    rounds = list(ROUNDS)
    rounds[2], rounds[1] = (0, 1, 2, 2, 0, 1), (1, 0, 5, 3, 1, 2)
    found = compare_rounds(facts_of(ROUNDS), facts_of(rounds), recording)
    assert (found.differing, found.first.request, found.first.round) == (2, 1, 0)
    assert found.first.margin == 2.0  # anchor 5 alone: nothing was accepted


def test_a_near_tie_is_told_by_its_margin(recording):
    # Request 0 at anchor 2: tokens behind anchors 2 and 3, margins 3e-5 and .75.
    found = planted(recording, 2, (0, 1, 2, 2, 0, 1))
    assert found.first.margin == pytest.approx(3e-5)
    assert found.first.near_tie


def test_a_missing_round_is_found(recording):
    found = planted(recording, 5, None)
    assert (found.first.request, found.first.round) == (1, 2)
    assert found.first.replayed == (9, 1, 0, 1)
    assert found.first.live == ()
    assert "live no round" in str(found.first)
    # Anchor 9 itself (6.0), or what the round before emitted (3, 4 and 5).
    assert found.first.margin == 3.0


def test_a_round_too_many_is_found_beyond_the_last_anchor_too(recording):
    found = planted(recording, None, (1, 2, 10, 1, 0, 1))
    assert (found.first.request, found.first.round) == (1, 3)
    assert found.first.replayed == ()
    assert found.first.live == (10, 1, 0, 1)
    assert found.first.margin == 6.0  # the end that did not come


def test_texts_can_differ_before_rounds_do(recording):
    text = recording.committed_tokens(0).tolist()
    other = [*text[:3], text[3] + 1, *text[4:]]  # the token behind anchor 2, a near tie
    found = planted(recording, 4, (0, 2, 4, 3, 1, 1), [other, []])
    assert found.first.round == 2
    assert found.first.margin == pytest.approx(3e-5)
    assert planted(recording, 4, (0, 2, 4, 3, 1, 1), [text, []]).first.margin == pytest.approx(
        min(MARGIN[2:5])  # of the round before, at anchors 2 and 3
    )


# ---------------------------------------------------------------- the task


@pytest.fixture
def task(pair, monkeypatch, tmp_path, capsys):
    """Run a small task=exact; (status, output)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exact, "load_live", lambda config: replace(pair))

    def run(*words: str) -> tuple[int, str]:
        status = main(
            [
                *("task=exact", "exact.domains=[arithmetic]", "exact.prompts_per_domain=4"),
                *("exact.policies=[fixed_chain]", "exact.concurrency=[2]", "max_new_tokens=10"),
                *words,
            ]
        )
        return status, capsys.readouterr().out

    return run


class OnlyOne(GreedyMatch):
    """Emits the right tokens, but accepts one draft at most."""

    def walk(self, round):
        walk = super().walk(round)
        kept = np.minimum(walk.accepted, 1)
        beyond = np.arange(walk.token.shape[1]) > kept[:, None]
        return Walk(
            kept,
            np.where(beyond[:, :-1] | (kept[:, None] == 0), -1, walk.path),
            np.where(beyond, -1, walk.token),
        )


def test_status_0_when_nothing_differs(task):
    status, out = task()
    assert status == 0
    assert "runs that differ: 0" in out
    assert "texts other than plain decoding's: 0" in out


def test_status_1_when_rounds_differ_but_not_from_a_near_tie(task, monkeypatch):
    monkeypatch.setattr("real_runner.serving.arena.make_verifier", lambda temperature: OnlyOne())
    status, out = task()
    assert status == 1
    assert "runs that differ: 1" in out
    assert "texts other than plain decoding's: 0" in out
    monkeypatch.setattr("real_runner.tasks.exact.NEAR_TIE", np.inf)
    status, out = task()
    assert status == 0
    assert "runs that differ from a near tie on: 1" in out


def test_status_1_when_texts_are_other_than_plain_decodings(task, monkeypatch):
    plain = exact.plain_texts
    monkeypatch.setattr(exact, "plain_texts", lambda *of: [[*t, 7] for t in plain(*of)])
    status, out = task()
    assert status == 1
    assert "runs that differ: 0" in out
    assert "texts other than plain decoding's: 2" in out
