"""Every shipped policy live and replayed, on the shipped pair: the same rounds, the same texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.engine.engine import Settings
from real_runner.engine.residual import make_verifier
from real_runner.engine.walk import GreedyMatch, Walk
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


def planted(recording, changes: dict, outputs=None, tables=()):
    """ROUNDS against themselves with lines replaced, taken away (None) or added behind the last."""
    rounds = dict(enumerate(ROUNDS)) | changes
    kept = [rounds[at] for at in sorted(rounds) if rounds[at] is not None]
    return compare_rounds(facts_of(ROUNDS), facts_of(kept), recording, tables, outputs)


class Nodes:
    """A table in which anchor 2 of request 0 cuts just behind a node of anchor 6's."""

    score = np.full((10, 4), np.array([-0.5, -0.5 - 2e-5, -1.0, -3.0]))
    size = np.full(10, 4)


PLANTED = {  # what is changed, tables: request and round, replayed and live, margin
    "a width, of which anchor 5's bonus could have been another": (
        {3: (1, 1, 6, 2, 2, 3)}, (), (1, 1), (6, 3, 2, 3), (6, 2, 2, 3), 2.0,
    ),
    # Step 1 verifies 2 nodes at anchor 2 and 3 at anchor 6: kept -.50002 and -1, left -1 and -3.
    "the cut between nodes of a step": (
        {3: (1, 1, 6, 2, 2, 3)}, [Nodes], (1, 1), (6, 3, 2, 3), (6, 2, 2, 3), 0.0,
    ),
    # Step 0 verifies 3 at either anchor, kept -1, left -3: the 2e-5 before them is no excuse.
    "gaps elsewhere than at the cut": (
        {1: (1, 0, 5, 3, 1, 2)}, [Nodes], (1, 0), (5, 3, 0, 1), (5, 3, 1, 2), 2.0,
    ),
    "the first in the order of the replay, where nothing was accepted": (
        {2: (0, 1, 2, 2, 0, 1), 1: (1, 0, 5, 3, 1, 2)}, (), (1, 0), (5, 3, 0, 1), (5, 3, 1, 2), 2.0,
    ),
    "a near tie, behind anchors 2 and 3": (
        {2: (0, 1, 2, 2, 0, 1)}, (), (0, 1), (2, 2, 1, 2), (2, 2, 0, 1), 3e-5,
    ),
    "a missing round: anchor 9 itself (6.0), or what the round before emitted (3, 4 and 5)": (
        {5: None}, (), (1, 2), (9, 1, 0, 1), (), 3.0,
    ),
    "a round too many, beyond the last anchor: the end that did not come": (
        {6: (1, 2, 10, 1, 0, 1)}, (), (1, 3), (), (10, 1, 0, 1), 6.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_difference_is_found_with_its_margin(recording, case):
    changes, tables, place, replayed, live, margin = PLANTED[case]
    found = planted(recording, changes, tables=tables)
    assert found.differing == len({ROUNDS[min(at, 5)][0] for at in changes})
    first = found.first
    assert (first.request, first.round) == place
    assert (first.replayed, first.live) == (replayed, live)
    assert first.margin == pytest.approx(margin)
    assert first.near_tie == (margin < 1e-3)
    assert ("no round" in str(first)) == (not replayed or not live)


def test_equal_rounds_do_not_differ(recording):
    found = planted(recording, {})
    assert (found.rounds, found.differing, found.first) == (6, 0, None)


def test_texts_can_differ_before_rounds_do(recording):
    text = recording.committed_tokens(0).tolist()
    other = [*text[:3], text[3] + 1, *text[4:]]  # the token behind anchor 2, a near tie
    found = planted(recording, {4: (0, 2, 4, 3, 1, 1)}, [other, []])
    assert found.first.round == 2
    assert found.first.margin == pytest.approx(3e-5)
    found = planted(recording, {4: (0, 2, 4, 3, 1, 1)}, [text, []])
    assert found.first.margin == pytest.approx(min(MARGIN[2:5]))  # of the round before


# ---------------------------------------------------------------- the task


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


PLAIN = exact.plain_texts
VERIFIER = {"real_runner.serving.arena.make_verifier": lambda temperature: OnlyOne()}
TIED = {"real_runner.tasks.exact.NEAR_TIE": np.inf}
TEXTS = {"real_runner.tasks.exact.plain_texts": lambda *of: [[*text, 7] for text in PLAIN(*of)]}


@pytest.mark.parametrize(
    ("patches", "status", "real", "ties", "texts"),
    [({}, 0, 0, 0, 0), (VERIFIER, 1, 1, 0, 0), (VERIFIER | TIED, 0, 0, 1, 0), (TEXTS, 1, 0, 0, 2)],
)
def test_status_1_for_differences_that_are_no_near_ties(
    loaded, here, capsys, monkeypatch, patches, status, real, ties, texts
):
    for name, value in patches.items():
        monkeypatch.setattr(name, value)
    words = ["task=exact", "exact.domains=[arithmetic]", "exact.prompts_per_domain=4"]
    words += ["exact.policies=[fixed_chain]", "exact.concurrency=[2]", "max_new_tokens=10"]
    assert main(words) == status
    assert capsys.readouterr().out.endswith(
        f"runs that differ: {real}, runs that differ from a near tie on: {ties}; texts other than "
        f"plain decoding's: {texts}\n"
    )
