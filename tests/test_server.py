"""Runs of the server worked out by hand; what it shows a policy, and what it takes from one.

The laws of every run are those of `test_server_properties`.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import numpy as np
import pytest
import simpy

from simulator.cost import find_profile
from simulator.engine.arrivals import Workload
from simulator.engine.fleet import Fleet
from simulator.engine.settings import ServerSettings
from simulator.orders import BestFirstOrder, ChainOrder, StaticOrder, build_order
from simulator.policy import Draft, Policy
from simulator.results.facts import Facts
from simulator.results.latency import chunk_gaps, request_times
from simulator.results.ledger import Ledger
from simulator.results.sums import Sums
from simulator.results.window import find_window
from tests.serving import STEP_S, ConstantCost, Plain, Watched, serve
from tests.synthetic import make_geometric, make_pool
from traces.common.errors import InputError
from traces.recordings.files import build_recording
from traces.recordings.recording import Recording

U = STEP_S / 4  # of time: a step takes 4, a prompt token 1; sums are exact in binary


def texts(lengths: list[int]) -> Recording:
    return make_pool(
        np.random.default_rng(1), sequences=len(lengths), depths=4, lengths=lengths, noise=0.5
    )


@pytest.fixture(scope="module")
def recording() -> Recording:
    return texts([1, 2, 9, 14, 20, 5, 11, 1, 17])


@pytest.fixture(scope="module")
def even() -> Recording:
    """Nine texts of 40 outputs, each top-1 draft right with chance 0.6."""
    return make_geometric(0.6, np.random.default_rng(2), sequences=9, length=40, depths=5)


# ---------------------------------------------------------------- texts and policies


def test_policy_sees_drafts_and_hears_outcomes(recording):
    policy, cost = Watched(2, BestFirstOrder(nodes=6, branch=3)), ConstantCost(draft_s=0.25)
    facts = serve(recording, policy, cost, num_prompts=12, max_concurrency=2)
    assert {field.name for field in fields(Draft)} == {"score", "depth", "parent", "size"}
    rounds, table = facts.rounds, build_order(policy.order, recording)
    anchor = np.split(rounds["anchor"], np.flatnonzero(np.diff(rounds["step"])) + 1)
    for step, at, asked in zip(policy.steps, anchor, cost.asked, strict=True):
        assert step.order is policy.order
        assert (step.draft.score == table.score[at]).all()
        assert (asked["drafted"], asked["tree"]) == (True, True)
    sums = [(o.committed.sum(), o.accepted.sum(), o.width.sum()) for o in policy.outcomes]
    columns = [facts.steps[name] for name in ("committed", "accepted", "draft_nodes")]
    assert sums == list(zip(*columns, strict=True))


def cut(recording: Recording, length: int) -> Recording:
    """A recording of one text of 5 prompt tokens, with an end of text after `length` outputs."""
    arrays = {
        name: values[: length - 1] if len(values) == recording.num_anchors else values
        for name, values in recording.arrays.items()
    }
    end = 5 + length + recording.depths
    arrays |= {"tokens": recording["tokens"][:end], "seq_offset": np.array([0, end])}
    arrays["output_len"] = np.array([length])
    return build_recording(dict(recording.meta), arrays)


def shown(policy: Watched) -> list[list]:
    """Everything a policy was shown before each step."""
    return [
        [np.asarray(getattr(part, item.name)).tolist() for item in fields(part)]
        for step in policy.steps
        for part in (step.load, step.draft)
    ]


@pytest.mark.parametrize("width", [0, 3, 20])
def test_a_policy_does_not_see_where_a_text_will_end(width):
    """The same text with and without an early end: until then nothing a policy sees differs."""
    meta = {"generation": {"max_new_tokens": 40, "ignore_eos": True}}
    rng = np.random.default_rng(2)
    whole = make_geometric(0.6, rng, sequences=1, length=40, depths=5, meta=meta)
    views = []
    for one in (whole, cut(whole, 15)):
        policy = Watched(width, BestFirstOrder(nodes=20, branch=3))
        serve(one, policy, request_rate=1.0, num_prompts=1)
        views.append(shown(policy))
        assert policy.steps[0].load.remaining.tolist() == [39]  # prefill emitted one of 40
        emitted = np.cumsum([outcome.committed[0] for outcome in policy.outcomes])
        later = [step.load.remaining[0] for step in policy.steps[1:]]
        assert later == (39 - emitted[:-1]).tolist()
    long, short = views
    assert 0 < len(short) < len(long)
    assert long[: len(short)] == short


def test_plain_steps_pay_no_draft_and_chains_are_no_trees(even):
    for policy, asked in ((Plain(), (False, False)), (Watched(2, ChainOrder()), (True, False))):
        cost = ConstantCost(draft_s=1.0)
        serve(even, policy, cost, num_prompts=2, max_concurrency=1)
        assert {(a["drafted"], a["tree"]) for a in cost.asked} == {asked}


def test_a_policy_that_never_drafts_feeds_no_drafter(even):
    policy, cost = Plain(), ConstantCost()
    policy.drafts = False
    serve(even, policy, cost, max_concurrency=2, num_prompts=6)
    assert {(asked["fed"], asked["deferred"]) for asked in cost.asked} == {(False, 0)}


class Answer(Policy):
    """Returns a fixed answer to every step."""

    def __init__(self, answer, order=None) -> None:
        self.answer, self.order = answer, order or ChainOrder()

    def allocate(self, step):
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [[2], np.array([2.0]), np.array([-1]), np.array([6]), np.array([1, 1]), 2, None],
)
def test_widths_must_be_whole_numbers_that_exist(even, answer):
    with pytest.raises(InputError, match="policy Answer: allocate"):
        serve(even, Answer(answer), num_prompts=1, max_concurrency=1)


def test_static_orders_are_verified_whole_or_at_a_declared_prefix(even):
    tree = StaticOrder(branching=(2, 2), prefixes=(2,))  # 6 nodes
    for width in (0, 2, 6):
        facts = serve(even, Answer(np.array([width]), tree), num_prompts=1, max_concurrency=1)
        assert set(facts.rounds["width"]) == {width}
    with pytest.raises(InputError, match=r"gave 3 nodes .* 0, 2 or 6"):
        serve(even, Answer(np.array([3]), tree), num_prompts=1, max_concurrency=1)


# ---------------------------------------------------------------- prompts that take time


def run(recording, sequence, *, gap_u=None, clients=None, first=None, capacity=2) -> Facts:
    """Serve `sequence` by plain decoding; `gap_u` are gaps of arrival in units of time."""
    first = np.zeros(len(sequence), np.int64) if first is None else np.array(first)
    gap_s = None if gap_u is None else np.array(gap_u) * U
    work = Workload(np.array(sequence), first, first > 0, gap_s, clients).replaying(recording)
    ledger, cost = Ledger(work), ConstantCost(prompt_token_s=U)
    tables = cache(lambda spec: build_order(spec, recording))
    parts = (simpy.Environment(), Plain(), recording, cost, work, capacity, tables, ledger)
    Fleet(*parts).run()
    assert cost.prefilled == (recording["prompt_len"][sequence] + first).tolist()
    return ledger.facts()


def units(values) -> list[float]:
    return (np.asarray(values) / U).tolist()


@pytest.fixture(scope="module")
def threes() -> Recording:
    """Texts of 3 outputs after prompts of 5 tokens: a prefill of 5 and two steps of 4."""
    return make_geometric(0.5, np.random.default_rng(0), sequences=3, length=3, depths=2)


def test_running_requests_wait_for_a_prefill(threes):
    """A, B and C arrive at 0, 6 and 7; two slots.

    A is prefilled to 5, steps to 9; B to 14, both step to 18, A ends; C to 23, B and C step to 27,
    B ends; C steps to 31.
    """
    facts = run(threes, [0, 1, 2], gap_u=[0, 6, 1])
    requests = facts.requests
    assert units(requests["arrival_s"]) == [0, 6, 7]
    assert units(requests["admitted_s"]) == [0, 9, 18]
    assert units(requests["first_token_s"]) == [5, 14, 23]
    assert units(requests["finish_s"]) == [18, 27, 31]
    assert units(facts.steps["time_s"]) == [5, 14, 23, 27]
    # A: 5 to 9, to 18. B: 14 to 18, to 27. C: 23 to 27, to 31.
    assert units(chunk_gaps(facts, find_window(facts))) == [4, 9, 4, 9, 4, 4]
    assert units(request_times(requests)["ttft"]) == [5, 8, 16]
    sums = Sums.of(facts)
    assert sums.prefill_s == 15 * U
    assert sums.throughput()["output_throughput"] == pytest.approx(9 / (31 * U))
    assert sums.throughput()["window"]["first_tokens"] == 3


def test_prefill_of_a_warmup_request_covers_its_outputs_so_far(threes):
    """Root 1 of 3 outputs: 5 prompt tokens and output 0, then one step; the next takes 5."""
    facts = run(threes, [0, 1], clients=1, first=[1, 0], capacity=1)
    assert units(facts.requests["first_token_s"]) == [6, 15]
    assert units(facts.requests["finish_s"]) == [10, 23]
    assert facts.requests["output_tokens"].tolist() == [1, 3]


@pytest.fixture(scope="module")
def short() -> Recording:
    """Texts of 1, 3 and 1 outputs."""
    return make_pool(np.random.default_rng(4), sequences=3, depths=2, lengths=[1, 3, 1])


def test_a_client_answers_while_the_next_prompt_is_prefilled(short):
    """Two clients: the one-token text's client sends its next at its end, not after the prefill.

    That next, of one token too, is prefilled before the long text's first step, which waits.
    """
    first, second, third = (int(n) for n in short["prompt_len"])
    facts = run(short, [0, 1, 2], clients=2)
    assert units(facts.requests["arrival_s"]) == [0, 0, first]
    assert units(facts.requests["admitted_s"]) == [0, first, first + second]
    all_read = first + second + third
    assert units(facts.requests["finish_s"]) == [first, all_read + 8, all_read]
    assert units(chunk_gaps(facts, find_window(facts))) == [third + 4, 4]


def test_gaps_of_a_request_add_up_to_its_decoding(even):
    cost = ConstantCost(prompt_token_s=U)
    facts = serve(even, Watched(3), cost, request_rate=20.0, num_prompts=40, max_concurrency=4)
    gaps_s = chunk_gaps(facts, find_window(facts))
    decoding_s = facts.requests["finish_s"] - facts.requests["first_token_s"]
    assert np.bincount(facts.rounds["request"], gaps_s, 40) == pytest.approx(decoding_s, rel=1e-12)
    assert (gaps_s > STEP_S).any()


# ---------------------------------------------------------------- memory


def test_nodes_hold_memory_while_they_are_verified():
    """Alone: context + root + nodes, in blocks of one token; what does not fit is not verified."""
    twelves = texts([12] * 8)
    need = int(twelves["prompt_len"].max()) + 12  # the longest text, its last token never written
    policy = Watched(4)
    limit = ServerSettings(kv_tokens=need, kv_block=1, watermark=0.0)
    facts = serve(twelves, policy, max_concurrency=1, num_prompts=8, server=limit)
    contexts = [int(step.load.context[0]) for step in policy.steps]
    asked = [int(np.minimum(step.draft.size, 4)[0]) for step in policy.steps]
    expected = [min(nodes, need - at - 1) for nodes, at in zip(asked, contexts, strict=True)]
    assert facts.rounds["width"].tolist() == expected
    assert {0, 1} <= set(np.subtract(asked, expected).tolist())
    held = np.array(contexts) + 1 + np.array(expected)
    assert facts.steps["kv_blocks"].tolist() == held.tolist()


def test_memory_may_be_given_in_gigabytes():
    """Qwen3-8B in bfloat16: 36 layers x 8 heads x 128 x 2 x 2 bytes are 147,456 a token."""
    header = find_profile("h100_sxm_qwen3_8b_table5").header
    assert ServerSettings(kv_tokens=1607).kv_blocks == 100
    settings = ServerSettings(gpu_memory_gb=80, gpu_memory_utilization=0.9).with_memory(header)
    weights = header.model_shape.params_b * 1e9 * 2
    assert settings.kv_tokens == int((80e9 * 0.9 - weights) // 147456)
    with pytest.raises(InputError, match="does not know"):
        ServerSettings(gpu_memory_gb=80).with_memory(find_profile("b300").header)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_tokens": 8}, "server.kv_tokens is 8; accepted: at least one block of 16"),
        ({"max_num_batched_tokens": 512}, "accepted: null with server.prefill=whole"),
        ({"gpu_memory_gb": 80, "kv_tokens": 1000}, "null where server.kv_tokens is given"),
        (
            {"prefill": "chunked", "mixed": True, "max_num_batched_tokens": 100},
            "accepted: at least server.max_num_seqs .256.",
        ),
    ],
)
def test_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message):
        ServerSettings(**settings)


# ---------------------------------------------------------------- replicas, and late policies


def test_every_replica_has_a_policy_of_its_own(even):
    policy, two = Watched(2), ServerSettings(replicas=2)
    facts = serve(even, policy, max_concurrency=4, num_prompts=12, server=two)
    assert len(policy.steps) == np.count_nonzero(facts.steps["replica"] == 0)


@pytest.mark.parametrize(
    ("load", "server", "share"),
    [
        ({"max_concurrency": 64}, {"replicas": 4}, 16),
        ({"max_concurrency": 10}, {"replicas": 4}, 3),  # 10 / 4, rounded up
        ({"max_concurrency": 10}, {"replicas": 4, "max_num_seqs": 2}, 2),
        ({"max_concurrency": 10}, {"max_num_seqs": 6}, 6),  # the other four wait
        ({"max_concurrency": 8, "request_rate": 9.0}, {"replicas": 4}, 8),  # a cap on each
        ({"max_concurrency": None, "request_rate": 9.0}, {"max_num_seqs": 5}, 5),
    ],
)
def test_a_replica_is_told_its_share_of_the_clients(even, load, server, share):
    """No more than it runs."""
    policy = Watched(1)
    serve(even, policy, **load, num_prompts=24, server=ServerSettings(**server))
    assert {step.load.max_concurrency for step in policy.steps} == {share}


class Deepest(Watched):
    """Verifies as many nodes as the best request has of survival, and remembers its answers."""

    def allocate(self, step) -> np.ndarray:
        self.steps.append(step)
        self.answers = [*getattr(self, "answers", ()), (step.draft.score >= np.log(0.3)).sum(1)]
        return self.answers[-1]


@pytest.mark.parametrize("lag", [1, 2])
def test_a_late_policy_decides_on_the_drafts_of_before(even, lag):
    """Its widths are those of the step `lag` before, where the same requests ran."""
    policy, late = Deepest(), ServerSettings(lag=lag)
    facts = serve(even, policy, max_concurrency=2, num_prompts=8, server=late)
    steps, rounds = facts.steps, facts.rounds
    count = len(steps["step"])
    assert len(policy.steps) == count
    for i in range(lag, count):
        seen = policy.steps[i].load
        assert seen.time_s == steps["time_s"][i - lag]
        now, width = (rounds[name][rounds["step"] == i] for name in ("request", "width"))
        was = dict(zip(seen.request.tolist(), policy.answers[i].tolist(), strict=True))
        rest = round(float(policy.answers[i].mean()))
        expected = [was.get(request, rest) for request in now.tolist()]
        assert (width <= np.array(expected)).all()  # cut where less is drafted now
    # Outcomes come as late, each once and in order.
    ends_s = (steps["time_s"] + steps["step_s"])[: count - lag]
    assert [outcome.time_s for outcome in policy.outcomes] == pytest.approx(ends_s.tolist())
