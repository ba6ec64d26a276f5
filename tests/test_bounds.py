"""O1 to O3 by enumeration of schedules, by hand, and against replays of every width."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost import StepCost, find_profile
from simulator.cost.host import HostOverhead
from simulator.orders import BestFirstOrder, ChainOrder, StaticOrder, build_order, replay
from simulator.policies.checks import verifies_trees
from simulator.studies.bounds.lone import (
    BoundedTexts,
    best_rounds,
    best_schedule,
    breakpoints,
    free_options,
    least_left,
    lone_prices,
    order_options,
    pool_prefix,
    price_of,
    ratio_rounds,
    table_prefix,
)
from tests.bounds_cases import (
    all_texts,
    drawn,
    enumerated,
    every_width,
    hand_table,
    options_of,
    random_profile,
)
from traces import InputError

TREE = BestFirstOrder(nodes=5, branch=3)
WHOLE = StaticOrder(widths=(2, 1), tail_chain=False, prefixes=(1,))
LAUNCHED = HostOverhead(
    round_s=1e-4,
    node_s=2e-4,
    tree_step_s=6e-4,
    plain_s=3e-4,
    request_s=1e-5,
    tree_request_s=1e-4,
    kv_move_token_s=5e-5,
    bubble_s=4e-4,
    launch_s=6e-3,
)
HOSTS = (
    HostOverhead(),
    HostOverhead(4e-4, 1e-5, 2e-4, 1e-4, 3e-5, 2e-6, 4e-5),
    HostOverhead(3e-3, 1e-4, 2e-4, 1e-4, overlap=True),
)


def test_published_numbers():
    """T = 8, A = (3,0,5,0,0,1,0,0), R(a) = 11 + a: 28 at best, 48 if every round takes all."""
    options = options_of([3, 0, 5, 0, 0, 1, 0, 0], lambda a: 11.0 + a, plain_s=11.0)
    best = best_schedule(options)
    assert best.seconds.tolist() == [28.0]
    assert best.width.tolist() == [1, 5]  # not the 3 that the first round could have
    greedy = ratio_rounds(options)  # (1 + a) / (11 + a) rises: the longest is the best round
    assert greedy.seconds.tolist() == [48.0]
    assert greedy.width.tolist() == [3, 0, 1, 0]


def test_sequences_do_not_run_into_each_other():
    options = options_of([1, 3, 3, 3], lambda a: 4.0 + a, plain_s=9.0, cuts=(1, 1))
    # One anchor of its own (no drafts needed: 4), an empty sequence, then three: 4 + 2.
    best = best_schedule(options)
    assert best.seconds.tolist() == [4.0, 0.0, 6.0]
    assert options.left.tolist() == [1, 3, 2, 1]
    assert least_left(options).tolist() == [4.0, 6.0, 5.0, 4.0]


@pytest.mark.parametrize("seed", range(20))
def test_schedule_is_the_best_of_all(seed):
    draws = np.random.default_rng(seed)
    count, depths = 7, 3
    round_s = draws.random((count, depths + 1)) + 0.3
    round_s[draws.random(round_s.shape) < 0.3] = np.inf
    plain_s = draws.random(count) + 0.3
    options = options_of([depths] * count, float, 1.0)
    options = replace(options, plain_s=plain_s, round_s=round_s)
    rounds = [[(r, a) for a, r in enumerate(row) if np.isfinite(r)] for row in round_s]
    assert best_schedule(options).seconds[0] == pytest.approx(enumerated(plain_s, rounds))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("order", [ChainOrder(), TREE, WHOLE], ids=["chain", "tree", "whole"])
def test_o2_is_the_best_of_every_schedule_of_widths(order, host):
    """Costs that fall and rise with the width: every width counts, not the smallest alone."""
    recording = drawn("hidden")
    texts, table = all_texts(recording), build_order(order, recording)
    for seed in range(3):
        profile = random_profile(np.random.default_rng(seed)).profile
        cost = StepCost(profile, host=host)
        best = best_schedule(order_options(table, texts, cost))
        for i in range(3):
            span = range(texts.start[i], texts.start[i + 1])
            assert best.seconds[i] == pytest.approx(by_enumeration(table, texts, cost, span))


def by_enumeration(table, texts, cost, span) -> float:
    one, tree = np.ones(1, np.int64), verifies_trees(table)
    allowed = table.widths_allowed()
    plain, rounds = [], []
    for row in span:
        context = int(texts.context[row])
        time = cost.step(one, one * context, drafted=False, tree=False)
        plain.append(time.total_s)
        found = every_width(table, texts.anchors[row], cost, context, tree)
        if allowed is not None:
            found = [found[width] for width in sorted({0, *allowed, len(found) - 1})]
        rounds.append(found)
    return enumerated(np.array(plain), rounds)


@pytest.mark.parametrize("kind", ["pool", "hidden"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_fixed_width_beats_the_bounds(kind, temperature):
    recording = drawn(kind, lengths=(30, 25, 20, 3), temperature=temperature)
    texts = all_texts(recording)
    prefix = pool_prefix(recording, texts.anchors, 3)
    for seed, order in enumerate((ChainOrder(), TREE, BestFirstOrder(nodes=20, branch=3))):
        cost, table = random_profile(np.random.default_rng(seed)), build_order(order, recording)
        o2 = best_schedule(order_options(table, texts, cost)).seconds
        o3 = best_schedule(free_options(prefix, 3, 20, texts, cost)).seconds
        assert (o3 <= o2 * (1 + 1e-12)).all()
        for width in range(table.max_nodes + 1):
            assert (o2 <= replayed_s(table, texts, cost, width) * (1 + 1e-12)).all()
        for price in (50.0, 200.0, 800.0):
            options = order_options(table, texts, cost)
            assert (o2 <= best_rounds(options, price).seconds * (1 + 1e-12)).all()
            assert (o2 <= ratio_rounds(options).seconds * (1 + 1e-12)).all()


def replayed_s(table, texts: BoundedTexts, cost, width: int) -> np.ndarray:
    """Seconds of each sequence when every round verifies `width` nodes, by the other replay."""
    recording = texts.recording
    done = replay(table, recording, texts.sequences, width)
    context = recording["prompt_len"][recording.anchor_sequence] + recording.anchor_output
    tree = verifies_trees(table) and width > 0
    seconds = np.zeros(len(texts.sequences))
    for anchor in done.anchors:
        packed, at = np.array([width + 1]), np.array([int(context[anchor])])
        step = cost.step(packed, at, drafted=True, tree=tree, ordered=int(table.size[anchor]))
        seconds[recording.anchor_sequence[anchor]] += step.total_s
    return seconds


def test_breakpoints_by_hand():
    table = hand_table([[2, 5, 6], [0, 0, 0], [1, 0, 0]], nodes=6)
    expected = [[0, 2, 5, 6], [0, -1, -1, -1], [0, 1, -1, -1]]
    assert breakpoints(table, np.arange(3)).tolist() == expected
    assert table_prefix(table, np.array([2, 0])).tolist() == [1, 3]


def test_breakpoints_of_an_order_that_is_not_nested():
    recording = drawn("pool")
    table = build_order(WHOLE, recording)
    for anchor, widths in enumerate(breakpoints(table, np.arange(recording.num_anchors))):
        accepted = [int(table.accepted(np.array([anchor]), w)[0]) for w in (0, 1, 3)]
        expected = [(0, 1, 3)[accepted.index(d)] if d in accepted else -1 for d in range(4)]
        assert widths.tolist() == expected


def test_best_round_by_hand():
    # At the first anchor 1 / 2, 2 / 5, 3 / 5 and (plain) 1 / 1.9 tokens per second.
    options = options_of([2, 0, 0], lambda a: (2.0, 5.0, 5.0)[a], plain_s=1.9)
    assert ratio_rounds(options).choice.tolist() == [2, -1, -1]
    # 1 + a - price R: at 0.2 it is .6, 1, 2 and .62; at 0.9 all lose, a plain step (-.71) least.
    assert best_rounds(options, 0.2).choice.tolist() == [2, -1, -1]
    assert best_rounds(options, 0.9).choice.tolist() == [-1, -1, -1]
    assert price_of(options) == pytest.approx(3 / 5)


def test_rounds_count_what_is_left():
    """At the last anchor a round of three commits one token, as a plain step does."""
    options = options_of([2], lambda a: 2.0 - a / 4, plain_s=1.4)
    assert ratio_rounds(options).choice.tolist() == [-1]


def test_price_is_what_its_rounds_earn():
    recording = drawn("hidden", lengths=(40, 40))
    texts, cost = all_texts(recording), StepCost(find_profile("b300"))
    options = order_options(build_order(TREE, recording), texts, cost)
    price = price_of(options)
    earned = 78 / best_rounds(options, price).seconds.sum()
    assert earned == pytest.approx(price, rel=1e-9)
    assert earned <= 78 / best_schedule(options).seconds.sum()


CLIFFS = [{"above": 2, "factor": 1.2, "add_ms": 0.3}, {"above": 7, "factor": 1.1, "per": "step"}]
ENGINES = {
    **{f"host {at}": {"host": host} for at, host in enumerate(HOSTS)},
    "cliffs": {"host": LAUNCHED, "cliffs": CLIFFS},
    "eager": {"host": LAUNCHED, "mode": "eager"},
    "eager, overlapped": {"host": LAUNCHED.with_(overlap=True), "mode": "eager"},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tree", [False, True])
def test_prices_are_the_servers(engine, tree):
    cost = StepCost(random_profile(np.random.default_rng(3)).profile, **ENGINES[engine])
    context, ordered = np.array([2, 9, 9, 40]), np.array([5, 7, 5, 7])
    prices = lone_prices(cost, context, 6, tree=tree, ordered=ordered)
    as_verified, one = lone_prices(cost, context, 6, tree=tree), np.ones(1, np.int64)
    for i, kv in enumerate(context.tolist()):
        for width in range(7):
            for found, many in ((prices, int(ordered[i])), (as_verified, width)):
                terms = {"drafted": True, "tree": tree and width > 0, "ordered": many}
                step_s = cost.step(one + width, one * kv, **terms).total_s
                assert found.round_s[found.row[i], width] == pytest.approx(step_s, rel=1e-12)
        plain_s = cost.step(one, one * kv, drafted=False, tree=False).total_s
        assert prices.plain_s[i] == plain_s


def test_free_nodes_are_the_path_alone_unless_more_cost_less():
    recording = drawn("pool", lengths=(8,))
    texts, prefix = all_texts(recording), np.array([3, 0, 1, 2, 3, 0, 1])
    cost = random_profile(np.random.default_rng(8))
    seconds, depths = lone_prices(cost, texts.context, 9, tree=False), 3
    options = free_options(prefix, depths, 9, texts, cost)
    for row in range(7):
        price = seconds.round_s[seconds.row[row]]
        for d in range(depths + 1):
            reachable = d <= prefix[row]
            assert options.round_s[row, d] == (price[d:].min() if reachable else np.inf)
            width = options.width[row, d]
            assert price[width] == price[d:].min() if reachable else width == -1


@pytest.mark.parametrize("branch", [1, 3])
@pytest.mark.parametrize("markov", [True, False])
def test_pool_prefix_of_a_hidden_recording(branch, markov):
    recording = drawn("hidden", lengths=(20, 20))
    if not markov:
        kept = {k: v for k, v in recording.arrays.items() if not k.startswith("markov")}
        recording = replace(recording, arrays=kept)
    anchors = np.arange(recording.num_anchors)[::2]
    found = pool_prefix(recording, anchors, branch)
    assert found.tolist() == [longest(recording, anchor, branch, markov) for anchor in anchors]
    assert len(set(found.tolist())) > 1
    for scores in ("parent", "marginal", "marginal_biased"):  # any order of these children
        order = BestFirstOrder(scores=scores, nodes=12, branch=branch, platt=(0.4, 0.3))
        assert (table_prefix(build_order(order, recording), anchors) <= found).all()


def longest(recording, anchor: int, branch: int, markov: bool) -> int:
    """The longest prefix of the realised path over the kinds of scores, from sorted laws."""
    realised = recording.realised(np.array([anchor]))[0]
    root = int(recording.anchor_tokens(np.array([anchor]))[0])
    head = recording["head"].astype(float)
    bare = recording["hidden"][anchor].astype(float) @ head.T  # (D, V)
    greedy, best = root, {"parent": 0, "greedy": 0, "none": 0}
    live = set(best)
    for depth, token in enumerate(realised):
        laws = {"none": bare[depth]}
        for name, parent in (("parent", (root, *realised)[depth]), ("greedy", greedy)):
            law = bare[depth]
            if markov:
                law = law + recording["markov_w2"].astype(float) @ recording["markov_w1"][parent]
            laws[name] = law
        greedy = int(np.argmax(laws["greedy"]))
        live = {name for name in live if token in np.argsort(-laws[name])[:branch]}
        for name in live:
            best[name] += 1
    return max(best.values())


def test_pool_prefix_of_a_pool_recording():
    recording = drawn("pool", lengths=(20, 20))
    anchors = np.arange(recording.num_anchors)
    chain = build_order(ChainOrder(), recording)
    assert (pool_prefix(recording, anchors, 1) == table_prefix(chain, anchors)).all()
    tree = build_order(BestFirstOrder(nodes=39, branch=3), recording)  # 3 + 9 + 27: all there is
    assert (pool_prefix(recording, anchors, 3) == table_prefix(tree, anchors)).all()


def test_texts_without_drafts_are_refused():
    recording = drawn("pool", lengths=(1, 4))
    with pytest.raises(InputError, match="no drafted positions"):
        BoundedTexts.of(recording, np.array([0]))
    texts = BoundedTexts.of(recording, np.array([1, 0]))
    assert texts.start.tolist() == [0, 3, 3]
    assert texts.tokens.tolist() == [4, 1]
    prompt = int(recording["prompt_len"][1])
    assert texts.context.tolist() == [prompt, prompt + 1, prompt + 2]
