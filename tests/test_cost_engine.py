"""What an engine adds to a step: bubbles, launches, cliffs, graphs of its own, padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost import (
    HostOverhead,
    LatencyProfile,
    Source,
    StepCost,
    find_profile,
)
from simulator.cost.price import host_s
from simulator.policies.priced_survival.accounts import plain_step_s
from tests.fast_cases import cost_of
from traces.common.errors import InputError

H100 = "h100_sxm_qwen3_8b_table5"
# B300: 4 packed tokens take 5.162 ms, the draft of one request 0.883 ms.
VERIFY_4, DRAFT_1 = 5.162, 0.883
TREES = HostOverhead(
    round_s=5e-4,
    node_s=1e-4,
    tree_step_s=1e-3,
    tree_request_s=2e-4,
    kv_move_token_s=5e-5,
    bubble_s=3e-4,
)
WORK, BUBBLE = 0.5 + 3 * 0.1 + 1 + 0.2 + 3 * 0.05, 0.3  # ms of 3 nodes in a tree


def step(cost: StepCost, packed, context=8192, drafted=True, tree=True, **more):
    return cost.step(
        np.array(packed), np.full(len(packed), context), drafted=drafted, tree=tree, **more
    )


# ---------------------------------------------------------------- host


def test_trees_pay_for_requests_and_moved_tokens():
    answer = step(cost_of(host=TREES), [4])
    assert answer.host_s == pytest.approx((WORK + BUBBLE) * 1e-3)
    chain = step(cost_of(host=TREES), [4], tree=False)
    assert chain.host_s == pytest.approx((0.5 + 3 * 0.1) * 1e-3)
    host = HostOverhead(tree_request_s=1e-3, kv_move_token_s=1e-4)
    assert step(cost_of(host=host), [1, 4, 8]).host_s == pytest.approx(3e-3 + 10e-4)
    assert step(cost_of(host=host), [1, 1], drafted=False, tree=False).host_s == 0


def test_a_bubble_is_seen_whatever_overlaps():
    hidden = step(cost_of(host=TREES.with_(overlap=True)), [4])
    assert hidden.host_s == pytest.approx(BUBBLE * 1e-3)
    long = step(cost_of(host=TREES.with_(overlap=True, tree_step_s=7e-3)), [4])
    assert long.host_s == pytest.approx((WORK + 6 - VERIFY_4 - DRAFT_1 + BUBBLE) * 1e-3)
    assert step(cost_of(host=TREES.with_(overlap=True)), [4], tree=False).host_s == 0


def test_eager_launches_hide_trees_but_not_the_round():
    """8 ms of launches over 6.045 ms of device: 1.955 ms hide 1.65 ms of trees, then the bubble."""
    eager = {"host": TREES.with_(launch_s=8e-3), "mode": "eager"}
    assert step(cost_of(**eager), [4]).total_s == pytest.approx(8.5e-3)
    chain = step(cost_of(**eager), [4], tree=False)
    assert chain.total_s == pytest.approx(8.5e-3)  # a tree costs as much as a chain
    assert step(cost_of(host=TREES), [4]).total_s - step(
        cost_of(host=TREES), [4], tree=False
    ).total_s == pytest.approx(1.65e-3)
    both = {"host": TREES.with_(launch_s=8e-3, overlap=True), "mode": "eager"}
    assert step(cost_of(**both), [4]).total_s == pytest.approx(8e-3)


def test_what_launches_cannot_hide_is_seen():
    """3 ms of nodes more than fill the slack: 4.35 - 1.955 ms of trees, the bubble, the round."""
    host = TREES.with_(node_s=1e-3, launch_s=8e-3)
    answer = step(cost_of(host=host, mode="eager"), [4])
    slack = 8 - VERIFY_4 - DRAFT_1
    assert answer.host_s == pytest.approx((slack + 0.5 + (4.35 - slack) + 0.3) * 1e-3)
    overlapped = step(cost_of(host=host.with_(overlap=True), mode="eager"), [4])
    assert overlapped.host_s == pytest.approx((slack + 0.3) * 1e-3)
    # The slack hides all of the trees and half of the bubble.
    half = TREES.with_(bubble_s=0.61e-3, launch_s=8e-3)
    answer = step(cost_of(host=half, mode="eager"), [4])
    assert answer.total_s == pytest.approx((8 + 0.5 + 0.61 - (slack - 1.65)) * 1e-3)


def test_launches_count_in_eager_mode_alone():
    host = TREES.with_(launch_s=8e-3)
    bare = step(cost_of(host=TREES), [4])
    for mode in (None, "graphs"):
        assert step(cost_of(host=host, mode=mode), [4]) == bare
    short = host.with_(launch_s=6e-3)
    assert step(cost_of(host=short, mode="eager"), [4]) == replace(bare, executed=4)
    plain = step(cost_of(host=host, mode="eager"), [1], drafted=False, tree=False)
    assert plain.total_s == pytest.approx(8e-3)
    assert plain_step_s(cost_of(host=host, mode="eager").prices, 1, 8192.0) == pytest.approx(8e-3)


seconds = st.floats(0, 2e-2)
hosts = st.builds(
    HostOverhead,
    round_s=seconds,
    node_s=st.floats(0, 1e-3),
    tree_step_s=seconds,
    request_s=st.floats(0, 1e-3),
    ordered_node_s=st.floats(0, 1e-4),
    tree_request_s=st.floats(0, 1e-3),
    kv_move_token_s=st.floats(0, 1e-4),
    bubble_s=seconds,
    launch_s=st.floats(0, 5e-2),
    overlap=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(hosts, st.booleans(), seconds)
def test_launches_make_no_step_faster_and_hide_no_more_than_they_add(host, tree, device_s):
    terms = {"requests": 3, "drafted": True, "tree": tree, "ordered": 9, "fed": False}
    with_launches = device_s + host_s(host, 9, device_s, **terms)
    without = device_s + host_s(host.with_(launch_s=0.0), 9, device_s, **terms)
    assert with_launches >= max(without, host.launch_s) - 1e-12
    assert with_launches <= max(without, host.launch_s + without - device_s) + 1e-12


# ---------------------------------------------------------------- cliffs


@pytest.mark.parametrize(
    ("packed", "verify_ms"),
    [
        ([4, 4], 5.345),  # 8 tokens, 4 of the largest
        ([3, 5], 5.345 * 1.13 + 0.2),  # 5 of the largest
        ([1] * 9, 5.592),
        ([1, 1, 1, 1, 5], 5.592 * 1.13 + 0.2),
    ],
)
def test_a_request_over_the_cliff_slows_the_whole_pass(packed, verify_ms):
    cost = cost_of(cliffs=[{"above": 4, "factor": 1.13, "add_ms": 0.2}])
    answer = step(cost, packed, tree=False)
    assert answer.verify_s == pytest.approx(verify_ms * 1e-3)
    over = verify_ms > 5.6 or verify_ms == pytest.approx(5.345 * 1.13 + 0.2)
    assert (Source.MODELLED in answer.source) == over
    total = sum(packed)
    assert cost.verify_s(len(packed), total, 8192, max(packed)) == answer.verify_s
    curve = cost.verify_curve_s(len(packed), np.array([total]), 8192, np.array([max(packed)]))
    assert curve.tolist() == [answer.verify_s]


def test_a_step_over_the_cliff_and_several_cliffs():
    cost = cost_of(
        cliffs=[
            {"above": 8, "factor": 2.0, "per": "step"},
            {"above": 12, "add_ms": 1.0, "per": "step"},
        ]
    )
    found = [step(cost, [n], drafted=False, tree=False).verify_s * 1e3 for n in (8, 9, 12, 13)]
    assert found == pytest.approx([5.345, 2 * 5.592, 2 * 5.592, 2 * 5.592 + 1])


def test_without_the_largest_requests_are_alike():
    cost = cost_of(cliffs=[{"above": 4, "factor": 2.0}])
    assert cost.verify_s(2, 8, 8192) == pytest.approx(5.345e-3)
    assert cost.verify_s(2, 9, 8192) == pytest.approx(2 * 5.592e-3)  # one has five
    assert cost.verify_curve_s(2, np.array([8, 9]), 8192) == pytest.approx([5.345e-3, 11.184e-3])


def test_padding_moves_dense_batches_over_the_cliff():
    cliff = [{"above": 15, "factor": 2.0, "per": "step"}]
    ragged, dense = (cost_of(cliffs=cliff, packing=packing) for packing in ("ragged", "dense"))
    assert step(ragged, [1, 3, 8, 1]).verify_s == pytest.approx(5.592e-3)  # 13 tokens
    assert step(dense, [1, 3, 8, 1]).verify_s == pytest.approx(2 * 6.262e-3)  # 32


def test_the_width_probe_shows_cliffs_and_a_strict_profile_keeps_them():
    cliff = [{"above": 16, "factor": 1.13}]
    packed, ms = cost_of(H100, cliffs=cliff).width_probe()
    bare = cost_of(H100).width_probe()[1]
    assert packed.tolist() == [1, 4, 8, 16, 24, 32, 48, 64, 96, 128]
    assert ms == pytest.approx(bare * np.where(packed > 16, 1.13, 1))
    strict = cost_of(H100, cliffs=cliff, strict=True)
    assert step(strict, [24], 1024).verify_s == pytest.approx(bare[4] * 1.13e-3)


# ---------------------------------------------------------------- graphs


def test_an_eager_table_under_graphs_of_its_own():
    """Measured at 16 and 32: a graph of 24 costs what lies half-way, and 17 runs it."""
    cost = cost_of(H100, graph_sizes=[1, 16, 20, 32])
    table = cost_of(H100)
    assert table.verify_s(1, 48, 1024) == pytest.approx(31.20871e-3)
    for total, executed, source in [
        (16, 16, Source.MEASURED),
        (17, 20, Source.INTERPOLATED),
        (21, 32, Source.MEASURED),
        (33, 33, Source.INTERPOLATED),
        (48, 48, Source.MEASURED),
        (256, 256, Source.MODELLED),
    ]:
        answer = step(cost, [total], 1024, drafted=False, tree=False)
        assert answer.verify_s == pytest.approx(table.verify_s(1, executed, 1024), rel=1e-12)
        assert (answer.executed, answer.source) == (executed, source)
    totals = np.arange(1, 300)
    one = [cost.verify_s(1, int(total), 1024) for total in totals]
    np.testing.assert_allclose(cost.verify_curve_s(1, totals, 1024), one, rtol=1e-12)
    assert cost.width_probe()[0].tolist() == [1, 16, 20, 32, 48, 64, 96, 128]


def test_fewer_graphs_than_were_measured_leave_the_eager_tail():
    """B300 captured up to 512 only: 513 tokens run eagerly, at least the first eager value."""
    cost = cost_of(graph_sizes=[8, 64, 512])
    assert step(cost, [9], drafted=False).verify_s == pytest.approx(7.9e-3)  # the graph of 64
    assert step(cost, [65], drafted=False).verify_s == pytest.approx(16.222e-3)  # 512 runs 576
    eager = step(cost, [513], drafted=False)
    assert eager.verify_s == pytest.approx(104.49e-3)
    assert (eager.executed, eager.source) == (513, Source.INTERPOLATED)
    assert step(cost, [1536], drafted=False).source == Source.MEASURED
    assert cost.graph_sizes == (8, 64, 512)


def test_a_table_knows_nothing_above_its_last_graph():
    profile = find_profile("b300")
    rows = tuple(row for row in profile.verify if row.captured)
    bare = LatencyProfile("graphs", profile.header, rows, profile.draft)
    answer = step(StepCost(bare, graph_sizes=[16, 32]), [33], drafted=False)
    assert answer.verify_s == pytest.approx(6.827e-3)  # what it measured at 40
    assert answer.source == Source.MODELLED
    answer = step(cost_of(H100, graph_sizes=[64, 256]), [65], 1024)
    assert (answer.executed, answer.source) == (256, Source.MODELLED)
    with pytest.raises(InputError, match="strict"):
        step(cost_of(H100, graph_sizes=[64, 256], strict=True), [65], 1024)


def test_batches_are_padded_by_their_total():
    """MI355X, batches 8 and 32 at 64 tokens: 3 x 17 run a graph of 64, read between 1 and 8."""
    cost, table = cost_of("mi355x", graph_sizes=[64, 512]), cost_of("mi355x")
    assert step(cost, [17] * 3, 1024).verify_s == pytest.approx(table.verify_s(3, 64, 1024))


def test_executed_tokens_are_padded_twice():
    """4 requests of up to 5: 13 ragged tokens run a graph of 16, 20 dense ones one of 24."""
    packed = [1, 3, 5, 4]
    assert step(cost_of(), packed).executed == 16
    assert step(cost_of(packing="dense"), packed).executed == 24
    assert step(cost_of(packing="dense", mode="eager"), packed).executed == 20
    assert step(cost_of("mi355x"), packed).executed == 13
    assert step(cost_of(), [1025]).executed == 1025
