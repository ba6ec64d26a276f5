"""Claims: verdicts on made-up numbers, the arms by hand, and all of it on a tiny recording."""

from __future__ import annotations

from math import log, nan
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.cli.main import main
from simulator.orders import BestFirstOrder, build_order
from simulator.orders.replay import replay
from simulator.policies.cast import Cast
from simulator.policies.shared.stop_rules import first_stop_widths
from simulator.studies.claims import comparisons
from simulator.studies.claims.arms import Staircase, Uniform
from simulator.studies.claims.claims import (
    Claim,
    Comparison,
    Row,
    Side,
    Where,
    judged,
    overall,
)
from tests.known_servers import read_json, rows
from tests.policy_lab import hand_step, make_lab, make_recording, prepared
from tests.reference_orders import walked
from tests.synthetic import make_geometric, make_hidden
from traces.common.errors import InputError
from traces.common.intervals import Interval, resampled_prompts

MEAN, EVERY = Claim("x", "", ""), Claim("x", "", "", every=True)


def cell(ratio: float, spread: float, at: str = "1", profile: str = "b300") -> Comparison:
    """A ratio whose log has this standard deviation over resamples."""
    draws = log(ratio) + spread * np.random.default_rng(0).normal(size=2000)
    where = Where("x", "made_up", profile)
    return Comparison(where, at, "tokens", Side(ratio, 3.0), Side(1.0, 3.0), draws, prompts=1000)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval(1.1, 1.05, 1.2), "confirmed"),
        (Interval(0.9, 0.8, 0.95), "refuted"),
        (Interval(1.1, 0.99, 1.2), "not decided"),
        (Interval(0.9, 0.8, 1.01), "not decided"),
        (Interval(1.1, 1.0, 1.2), "not decided"),  # touches the threshold
        (Interval(1.0, 1.0, 1.0), "not decided"),  # both did the same
        (Interval(2.0, None, None), "not decided"),  # one prompt
        (Interval(nan, nan, nan), "not decided"),
    ],
)
def test_verdict_of_an_interval(interval, expected):
    assert judged(interval) == expected


def test_a_cell_is_judged_by_the_spread_of_its_resamples():
    assert cell(1.1, 0.01).verdict == "confirmed"  # 1.1 exp(-1.96 0.01) = 1.08
    assert cell(1.1, 0.10).verdict == "not decided"  # 0.90
    assert cell(0.9, 0.01).verdict == "refuted"
    ratio = cell(1.1, 0.01).ratio
    assert ratio.low == pytest.approx(1.1 * np.exp(-1.96 * 0.01), rel=2e-3)
    assert cell(1.0, 0.0).same
    assert not cell(1.0, 0.1).same


def test_rows_by_mean_and_by_every_cell():
    up, down, open_ = cell(1.2, 0.01), cell(0.95, 0.01), cell(1.0, 0.05)
    row = Row(MEAN, up.where, (up, down))
    assert row.ratio.value == pytest.approx((1.2 * 0.95) ** 0.5)
    assert row.verdict == "confirmed"
    assert Row(EVERY, up.where, (up, down)).verdict == "refuted"
    assert Row(EVERY, up.where, (up, open_)).verdict == "not decided"
    assert Row(EVERY, up.where, (up, up)).verdict == "confirmed"


def test_verdict_of_a_claim():
    up, down, open_ = (
        Row(MEAN, c.where, (c,)) for c in (cell(1.2, 0.01), cell(0.9, 0.01), cell(1.0, 0.05))
    )
    assert overall([up, up]) == "confirmed"
    assert overall([down]) == "refuted"
    assert overall([up, open_]) == "not decided"
    assert overall([up, open_, down]) == "mixed"


def test_the_uniform_arm_by_hand():
    """The two best nodes of the batch are the first request's; uniformly each gets one."""
    step = hand_step([[0.9, 0.8, 0.1], [0.5, 0.2, 0.05]])
    lab = make_lab(make_recording("pool"))
    shared = prepared(Cast(nodes_per_request=1), lab)
    same = prepared(Uniform(Cast(nodes_per_request=1), nodes=1), lab)
    assert shared.allocate(step).tolist() == [2, 0]
    assert same.allocate(step).tolist() == [1, 1]
    assert same.order == shared.order
    step.draft.size[1] = 2
    same = prepared(Uniform(Cast(), nodes=3), lab)
    assert same.allocate(step).tolist() == [3, 2]
    with pytest.raises(InputError, match=r"policy\.nodes"):
        Uniform(Cast(), nodes=0)


SURVIVAL = (0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1)
STEP_MS = np.array([10.0] * 4 + [12.0] * 7 + [14.0])  # of 0 to 11 nodes


def test_the_staircase_looks_past_its_jumps():
    """10 ms up to 3 nodes, 12 up to 10, 14 beyond: .300 at 3, .275 at 4, .376 at 10 per ms."""
    arm = Staircase(nodes=11)
    arm._cost = SimpleNamespace(
        draft_s=lambda batch, context: 0.0,
        verify_curve_s=lambda batch, packed, context: STEP_MS[packed - 1] * 1e-3,
    )
    step = hand_step([SURVIVAL])
    assert arm.allocate(step).tolist() == [10]
    assert first_stop_widths(np.array([SURVIVAL]), STEP_MS).tolist() == [3]
    step.draft.size[0] = 6
    assert arm.allocate(step).tolist() == [6]


def bench_of(recording, resamples: int = 200) -> SimpleNamespace:
    sequences = recording.sequences_of("report")
    return SimpleNamespace(
        name="made_up",
        recording=recording,
        sequences=sequences,
        table=lambda spec: build_order(spec, recording),
        weights=resampled_prompts(len(sequences), resamples, 0),
    )


def test_a_threshold_is_replayed_as_its_loop_runs():
    recording = make_hidden(np.random.default_rng(1), sequences=6, lengths=[15] * 6)
    table = build_order(BestFirstOrder(nodes=15), recording)
    sequences = recording.sequences_of("report")
    found = comparisons.replayed(
        bench_of(recording), table, sequences, comparisons.threshold_width(table, 0.1)
    )
    width = [sum(np.exp(score) >= 0.1 for score in row) for row in table.score]
    for row, sequence in enumerate(sequences):
        rounds = [*walked(recording, sequence, lambda at: sum(table.hit_rank[at] <= width[at]))]
        committed = sum(accepted + 1 for _, accepted in rounds)
        assert (found.committed.amount[row], found.committed.per[row]) == (committed, len(rounds))
        assert found.nodes.amount[row] == sum(width[at] for at, _ in rounds)


def test_a_threshold_gains_nothing_where_all_drafts_look_alike():
    """Every anchor has the same scores, so that a theta is a fixed width."""
    recording = make_geometric(0.7, np.random.default_rng(2), sequences=9, length=40)
    cells = list(comparisons.threshold_against_fixed(bench_of(recording), BestFirstOrder(branch=4)))
    assert [float(cell.at) for cell in cells] == list(comparisons.GRID)
    for cell in cells:
        assert cell.ours.nodes == cell.other.nodes
        assert cell.ours.value == pytest.approx(cell.other.value)
        assert np.abs(cell.log_draws).max() < 1e-12


def test_fixed_budgets_between_two_widths_are_a_straight_line():
    recording = make_hidden(np.random.default_rng(3), sequences=9, lengths=[20] * 9)
    bench, order = bench_of(recording), BestFirstOrder(nodes=31, floor=log(0.4))
    cells = list(comparisons.threshold_against_fixed(bench, order))
    table = build_order(BestFirstOrder(nodes=31), recording)
    for one in cells:
        below = int(one.ours.nodes)
        share = one.ours.nodes - below
        widths = below, min(below + 1, 31)
        r = [replay(table, recording, bench.sequences, w).acceptance_length for w in widths]
        assert one.other.value == pytest.approx((1 - share) * r[0] + share * r[1])


def test_parent_against_marginal_is_the_ratio_of_two_rtables():
    recording = make_hidden(np.random.default_rng(4), sequences=9, lengths=[20] * 9)
    bench = bench_of(recording)
    cells = list(comparisons.parent_against_marginal(bench))
    assert len(cells) == 2 * len(comparisons.BUDGETS)
    for one in cells[:5]:
        for side, rule in ((one.ours, "parent"), (one.other, "marginal")):
            table = bench.table(BestFirstOrder(scores=rule, nodes=127))
            width = min(int(one.at), table.max_nodes)
            run = replay(table, recording, bench.sequences, width)
            assert side.value == pytest.approx(run.acceptance_length)
    assert not list(comparisons.parent_against_marginal(bench_of(make_recording("pool"))))


def test_each_claim_at_its_own_loads():
    plan = SimpleNamespace(asked=SimpleNamespace(profiles=None, concurrency=(1, 16, 64)))
    for temperature in (0.0, 1.0):
        bench = SimpleNamespace(
            name="made_up", plan=plan, recording=SimpleNamespace(temperature=temperature)
        )
        found = {}
        for where, concurrency, _ in comparisons.matches(bench):
            found.setdefault(where.claim, set()).add(concurrency)
        assert found["3a"] == found["3b"] == found["6a"] == {1}
        assert found["3c"] == found["4b"] == found["5"] == {16, 64}
        assert found["6b"] == {64}
        assert found["2b"] == found["4a"] == {1, 16, 64}
        assert ("7a" in found) == ("7b" in found) == (temperature > 0)


def words(recorded: str, **changes) -> list[str]:
    node = {"traces": "null", "profiles": "[b300]", "concurrency": "[1,2]", "resamples": 100}
    given = [f"claims.{key}={value}" for key, value in (node | changes).items()]
    return ["task=claims", f"trace={recorded}", "hydra.run.dir=out", *given]


def test_all_claims_of_a_recording(here, recorded, capsys, monkeypatch):
    monkeypatch.setattr(comparisons, "THETAS", (0.05,))  # fewer simulations
    assert main(words(recorded)) == 0
    printed = capsys.readouterr().out
    lines, report = rows("out/claims.csv"), read_json("out/claims.json")
    names = ["2a", "2b", "3a", "3b", "3c", "4a", "4b", "4c", "5", "6a"]  # a pool at T = 0, no 64
    assert [claim["claim"] for claim in report["claims"]] == names
    for claim in report["claims"]:
        assert claim["statement"] in printed
        cells = [cell for row in claim["rows"] for cell in row["cells"]]
        own = [line for line in lines if line["claim"] == claim["claim"]]
        assert [float(line["ratio"]) for line in own] == [cell["ratio"] for cell in cells]
        for one in cells:
            assert one["ratio"] == pytest.approx(one["ours"] / one["other"])
            assert one["ratio_low"] <= one["ratio_high"]
    assert f"{len(lines)} comparisons in" in printed
    line = next(line for line in lines if (line["claim"], line["at"]) == ("6a", "1"))
    run = ["policy=fixed_tree", f"trace={recorded}", "latency=b300", "hydra.run.dir=run"]
    assert main([*run, "max_concurrency=1", "num_prompts=64"]) == 0
    summary = read_json("run/summary.json")
    assert float(line["ours"]) == pytest.approx(summary["output_throughput"])
    assert float(line["ours_nodes"]) == pytest.approx(summary["draft_nodes_per_request"])
