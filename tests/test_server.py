"""The server against hand-computed runs, conservation laws and the recorded texts."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from simulator.engine.arrivals import Workload
from simulator.orders import BestFirstOrder, ChainOrder, StaticOrder, build_order
from simulator.policy import Draft, Load, Policy
from simulator.results.latency import request_times
from simulator.results.sums import Sums
from simulator.results.window import find_window
from tests.serving import STEP_S, ConstantCost, Plain, Watched, serve
from tests.synthetic import make_geometric, make_pool
from traces.common.errors import InputError
from traces.recordings.files import build_recording
from traces.recordings.recording import Recording


@pytest.fixture(scope="module")
def recording():
    lengths = [1, 2, 9, 14, 20, 5, 11, 1, 17]
    return make_pool(np.random.default_rng(1), sequences=9, depths=4, lengths=lengths, noise=0.5)


@pytest.fixture(scope="module")
def even():
    """Nine texts of 40 outputs, each top-1 draft right with chance 0.6."""
    return make_geometric(0.6, np.random.default_rng(2), sequences=9, length=40, depths=5)


def replayed_tokens(recording, facts, request: int) -> list[int]:
    """The tokens that the rounds of one request committed, from their anchors and counts."""
    rounds = facts.rounds
    own = rounds["request"] == request
    tokens = []
    for anchor, count in zip(rounds["anchor"][own], rounds["committed"][own], strict=True):
        first = recording["anchor_pos"][anchor] + 1
        tokens += recording["tokens"][first : first + count].tolist()
    return tokens


@pytest.mark.parametrize("load", [{"max_concurrency": 3}, {"request_rate": 40.0}])
@pytest.mark.parametrize("width", [0, 2, 99])
def test_every_request_commits_the_recorded_text(recording, load, width):
    policy = Watched(width, BestFirstOrder(nodes=20, branch=3))
    facts = serve(recording, policy, num_prompts=30, **load)
    work = facts.requests
    for request in range(30):
        text = recording.committed_tokens(int(work["sequence"][request])).tolist()
        committed = replayed_tokens(recording, facts, request)
        if work["warmup"][request] and len(text) > 1:
            assert 1 <= len(committed) < len(text)  # it started at one of outputs 0..L-2
            assert committed == text[-len(committed) :]
            assert work["output_tokens"][request] == len(committed)
        else:  # prefill emits output 0
            assert committed == text[1:]
            if not work["warmup"][request]:
                assert work["output_tokens"][request] == len(text)


def test_accepted_is_what_the_orders_say_and_committed_is_clipped(recording):
    order = BestFirstOrder(nodes=20, branch=3)
    facts = serve(recording, Watched(7, order), num_prompts=30, max_concurrency=4)
    table, rounds = build_order(order, recording), facts.rounds
    accepted = table.accepted(rounds["anchor"], rounds["width"])
    assert (rounds["accepted"] == accepted).all()
    left = recording.remaining_outputs[rounds["anchor"]]
    assert (rounds["committed"] == np.minimum(accepted + 1, left)).all()
    assert (accepted + 1 > left).any()  # some rounds reach past the end of their text


def test_plain_decoding_gives_one_token_per_step_and_slot(even):
    """K clients, constant steps: B / step tokens per second, the prefills' free tokens apart."""
    facts = serve(even, Plain(), max_concurrency=4, num_prompts=60)
    numbers = Sums.of(facts).throughput()
    window = numbers["window"]
    seconds = window["end_s"] - window["start_s"]
    assert window["kind"] == "full batch"
    assert (window["tokens"] - window["first_tokens"]) / seconds == 4 / STEP_S
    # Each text takes L - 1 = 39 steps and emits 40 tokens: requests leave at 4 / (39 steps).
    assert numbers["request_throughput"] == pytest.approx(4 / (39 * STEP_S), rel=0.05)
    regular = ~facts.requests["warmup"]
    times = request_times(facts.requests)
    assert (times["e2el"][regular] == 39 * STEP_S).all()
    assert (times["tpot"][regular] == STEP_S).all()


def test_littles_law(even):
    """Requests in the system = rate x time in it: 6 clients at full batch."""
    facts = serve(even, Watched(3), max_concurrency=6, num_prompts=300, seed=5)
    window = find_window(facts)
    inside = window.requests(facts) & ~facts.requests["warmup"]
    e2el = request_times(facts.requests)["e2el"][inside]
    rate = np.count_nonzero(window.requests(facts)) / window.seconds
    assert rate * e2el.mean() == pytest.approx(6, rel=0.02)


def test_time_in_the_batch_adds_up(recording):
    """Sum over steps of batch x time = sum over requests of the time they ran; queue likewise."""
    facts = serve(recording, Watched(2), request_rate=30.0, num_prompts=40, max_concurrency=2)
    steps, work = facts.steps, facts.requests
    ran_s = (work["finish_s"] - work["admitted_s"]).sum()
    assert (steps["batch"] * steps["step_s"]).sum() == pytest.approx(ran_s, rel=1e-12)
    assert steps["batch"].max() == 2
    assert (work["admitted_s"] > work["arrival_s"]).any()  # the cap makes requests wait
    assert (np.diff(work["admitted_s"]) >= 0).all()  # first come, first served
    assert steps["committed"].sum() + 40 == work["output_tokens"].sum()  # one by each prefill


def test_one_token_requests_end_at_admission(recording):
    """Texts 0 and 7 have one output: they take no slot, and their clients go on at once."""
    facts = serve(recording, Plain(), sequences=np.array([0, 7]), max_concurrency=2, num_prompts=6)
    assert (facts.requests["finish_s"] == 0).all()
    assert len(facts.steps["step"]) == 0
    mixed = serve(recording, Plain(), sequences=np.array([0, 2]), max_concurrency=1, num_prompts=6)
    single = mixed.requests["sequence"] == 0
    assert (mixed.requests["rounds"][single] == 0).all()
    assert (mixed.requests["finish_s"] == mixed.requests["admitted_s"])[single].all()
    assert (mixed.requests["rounds"][~single & ~mixed.requests["warmup"]] == 8).all()


def test_an_open_loop_may_leave_out_its_ramps(even):
    """Ends in order; the window goes from the 5th to the 5th from last, whatever comes before."""
    load = {"request_rate": 20.0, "num_prompts": 40, "max_concurrency": 4}
    facts = serve(even, Plain(), **load, ramp=5)
    ends = np.sort(facts.requests["finish_s"])
    window = find_window(facts)
    assert (window.kind, window.start_s, window.end_s) == ("without ramps", ends[4], ends[-5])
    assert np.count_nonzero(window.requests(facts)) == 31
    short = find_window(serve(even, Plain(), **load, ramp=20))
    assert (short.kind, short.start_s, short.end_s) == ("whole run", 0.0, ends[-1])


def test_server_limit_queues_clients(even):
    facts = serve(even, Plain(), max_concurrency=8, max_num_seqs=3, num_prompts=24)
    assert facts.steps["batch"].max() == 3
    assert facts.steps["queued"].max() == 5


def test_policy_sees_load_and_draft_but_not_the_outcome(recording):
    policy, cost = Watched(2, BestFirstOrder(nodes=6, branch=3)), ConstantCost(draft_s=0.25)
    facts = serve(recording, policy, cost, num_prompts=12, max_concurrency=2)
    assert {field.name for field in fields(Draft)} == {"score", "depth", "parent", "size"}
    rounds, table = facts.rounds, build_order(policy.order, recording)
    anchor = np.split(rounds["anchor"], np.flatnonzero(np.diff(rounds["step"])) + 1)
    sequence = recording.anchor_sequence
    for number, (step, at) in enumerate(zip(policy.steps, anchor, strict=True)):
        output = recording.anchor_output[at]
        # KV before the root: the prompt and the outputs committed so far, but for the root.
        prompt = recording["prompt_len"][sequence[at]]
        assert (step.load.context == prompt + (output + 1) - 1).all()
        # Of at most 20 (make_pool's max_new_tokens: the longest text), output + 1 are out.
        assert (step.load.remaining == 20 - (output + 1)).all()
        assert step.load.time_s == number * 0.2578125  # 0.25 + STEP_S
        assert step.order is policy.order
        assert (step.draft.score == table.score[at]).all()
        asked = cost.asked[number]
        assert (asked["packed"] == np.minimum(table.size[at], 2) + 1).all()
        assert (asked["context"] == step.load.context).all()
        assert asked["ordered"] == table.size[at].sum()  # all that was drafted, not the 2 verified
        assert (asked["drafted"], asked["tree"]) == (True, True)
    sums = [(o.committed.sum(), o.accepted.sum(), o.width.sum()) for o in policy.outcomes]
    steps = facts.steps
    columns = (steps["committed"], steps["accepted"], steps["draft_nodes"])
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
    generation = {"max_new_tokens": 40, "ignore_eos": True}
    whole = make_geometric(
        0.6,
        np.random.default_rng(2),
        sequences=1,
        length=40,
        depths=5,
        meta={"generation": generation},
    )
    views = []
    for recording in (whole, cut(whole, 15)):
        policy = Watched(width, BestFirstOrder(nodes=20, branch=3))
        serve(recording, policy, request_rate=1.0, num_prompts=1)
        views.append(shown(policy))
        assert policy.steps[0].load.remaining.tolist() == [39]  # prefill emitted one of 40
        emitted = np.cumsum([outcome.committed[0] for outcome in policy.outcomes])
        later = [step.load.remaining[0] for step in policy.steps[1:]]
        assert later == (39 - emitted[:-1]).tolist()
    long, short = views
    assert 0 < len(short) < len(long)
    assert long[: len(short)] == short


def test_plain_steps_pay_no_draft_and_chains_are_no_trees(even):
    plain, chain = ConstantCost(draft_s=1.0), ConstantCost(draft_s=1.0)
    serve(even, Plain(), plain, num_prompts=2, max_concurrency=1)
    serve(even, Watched(2, ChainOrder()), chain, num_prompts=2, max_concurrency=1)
    assert {(a["drafted"], a["tree"], a["ordered"]) for a in plain.asked} == {(False, False, 0)}
    assert {(a["drafted"], a["tree"]) for a in chain.asked} == {(True, False)}


class Resting(Watched):
    """Drafts every third step."""

    def plan(self, load: Load):
        self.count = getattr(self, "count", 0) + 1
        return self.order if self.count % 3 == 0 else None


def test_a_draft_pays_for_the_tokens_that_plain_steps_passed_by(recording):
    """Two plain steps come before each draft: two tokens of every request that ran in both."""
    cost = ConstantCost()
    facts = serve(recording, Resting(), cost, max_concurrency=2, num_prompts=6)
    request, drafted = facts.rounds["request"], facts.steps["drafted"]
    seen = 0
    for step, asked in enumerate(cost.asked):
        before = (
            np.isin(facts.rounds["step"], [step - 1, step - 2]) & (~drafted)[facts.rounds["step"]]
        )
        here = request[facts.rounds["step"] == step]
        if drafted[step]:
            assert asked["deferred"] == np.isin(request[before], here).sum()
            seen += asked["deferred"]
    assert seen > 0
    assert {asked["fed"] for asked in cost.asked} == {True}
    plain = ConstantCost()
    policy = Plain()
    policy.drafts = False
    serve(recording, policy, plain, max_concurrency=2, num_prompts=6)
    assert {(asked["fed"], asked["deferred"]) for asked in plain.asked} == {(False, 0)}


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


def test_workload_is_the_same_for_every_policy(even):
    runs = [serve(even, p, max_concurrency=3, num_prompts=20) for p in (Plain(), Watched(4))]
    for column in ("sequence", "warmup", "prompt_tokens", "output_tokens"):
        assert (runs[0].requests[column] == runs[1].requests[column]).all()
    assert isinstance(runs[0].concurrency, int)
    assert {field.name for field in fields(Workload)} >= {"sequence", "warmup"}
