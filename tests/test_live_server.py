"""The live server's clock and queue, with an engine whose phases take known times."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.engine.walk import Walk
from real_runner.serving import server as server_module
from real_runner.serving.arena import Served
from real_runner.serving.prompts import Requests
from real_runner.serving.server import LiveServer
from real_runner.tasks.validate import _fit_columns, deferred_tokens
from simulator.engine.arrivals import Workload
from simulator.orders import ChainOrder
from simulator.orders.table import OrderTable
from simulator.policy import Policy
from tests.serving import ConstantCost
from tests.synthetic import make_pool

# Seconds, powers of two: sums are exact.
PREFILL, DRAFT, ORDER, ALLOCATE, VERIFY, COMMIT, OBSERVE, HOOK = (2.0**-n for n in range(3, 11))
EOS = 1


class Clock:
    """A clock that only moves when told to; stands in for the module `time`."""

    def __init__(self) -> None:
        self.now_s, self.slept_s = 100.0, 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.work(seconds)
        self.slept_s += seconds

    def work(self, seconds: float) -> None:
        self.now_s += seconds


class TimedEngine:
    """Writes 5, 6, 7 and so on, accepts a chain of 2 each round; its phases take known times."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.target = SimpleNamespace(device=torch.device("cpu"), eos_tokens=(EOS,))
        self.length, self.root = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.batches: list[int] = []

    @property
    def batch(self) -> int:
        return len(self.length)

    def admit(self, prompt, seed, root=None) -> int:
        self.clock.work(PREFILL)
        root = 5 if root is None else root
        self.length = np.append(self.length, len(prompt))
        self.root = np.append(self.root, root)
        return root

    def release(self, going) -> None:
        self.length, self.root = self.length[going], self.root[going]

    def draft(self) -> str:
        self.clock.work(DRAFT)
        return "block"

    def order(self, spec, block, seeds, output_index) -> OrderTable:
        self.clock.work(ORDER)
        assert block == "block"
        batch = self.batch
        assert len(seeds) == len(output_index) == batch
        row, step = np.ones((batch, 1)), np.array([[1, 2]])
        return OrderTable(
            spec,
            np.arange(batch),
            score=row * [[-0.5, -1.0]],
            depth=np.repeat(step, batch, 0),
            parent=np.repeat(step - 2, batch, 0),
            token=self.root[:, None] + step,
            size=np.full(batch, 2),
            hit_rank=np.repeat(step, batch, 0),
            ties=np.zeros(batch, np.int64),
        )

    def verify(self, table, width, seeds, output_index) -> Walk:
        self.clock.work(VERIFY)
        self.batches.append(self.batch)
        accepted = np.zeros(self.batch, np.int64) if table is None else width.copy()
        room = int(accepted.max()) + 1
        token = self.root[:, None] + 1 + np.arange(room)
        self.walk = Walk(accepted, np.full((self.batch, room - 1), -1), token)
        return self.walk

    def commit(self) -> None:
        self.clock.work(COMMIT)
        self.length = self.length + self.walk.accepted + 1
        self.root = self.root + self.walk.accepted + 1


class Pairwise(Policy):
    """Chains of two, that take time to choose and to look back on."""

    order = ChainOrder(2)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def allocate(self, step):
        self.clock.work(ALLOCATE)
        return step.draft.size.astype(np.int64)

    def observe(self, outcome) -> None:
        self.clock.work(OBSERVE)


class SlowPlain(Pairwise):
    """Plain decoding that takes time to look back."""

    def plan(self, load) -> None:
        return None


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_module, "time", clock)
    monkeypatch.setattr("real_runner.engine.clock.time", clock)
    return clock


def served(clock, policy, caps, capacity, gap_s=None, hooks=True):
    """Facts and server of one request per cap."""
    count = len(caps)
    none = np.zeros(count, np.int64)
    clients = None if gap_s is not None else min(capacity, count)
    gaps = None if gap_s is None else np.array(gap_s)
    workload = Workload(np.arange(count), none, none.astype(bool), gaps, clients)
    requests = Requests(
        [np.full(3 + i, 9) for i in range(count)], none, np.array(caps), none, ("any",)
    )
    hook = (lambda *_: clock.work(HOOK)) if hooks else None
    server = LiveServer(
        TimedEngine(clock), policy, ConstantCost(), workload, requests, capacity, hook, hook
    )
    return server.run(), server


def spans(facts) -> list[tuple[float, float]]:
    """(begin, end) of every prefill and every step, in time order."""
    steps, requests = facts.steps, facts.requests
    parts = list(zip(steps["time_s"], steps["time_s"] + steps["step_s"]))
    return sorted([*parts, *zip(requests["admitted_s"], requests["first_token_s"])])


POLICIES = {"pairwise": Pairwise, "plain": SlowPlain}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("capacity", [1, 3])
def test_a_closed_loop_leaves_no_second_between_prefills_and_steps(clock, policy, hooks, capacity):
    begun, caps = clock.now_s, [7, 1, 4, 9, 1, 6]
    facts, server = served(clock, POLICIES[policy](clock), caps, capacity, hooks=hooks)
    found = spans(facts)
    assert found[0][0] == 0.0
    assert all(end == begin for (_, end), (begin, _) in pairwise(found))
    assert found[-1][1] == facts.duration_s
    # Behind the last token only its round is noted; hooks are off the clock.
    steps, ended = len(facts.steps["step"]), len(facts.requests["request"])
    off = (steps + ended) * HOOK if hooks else 0.0
    assert facts.duration_s + OBSERVE == clock.now_s - begun - off
    assert clock.slept_s == 0
    assert server.now() == facts.duration_s + OBSERVE


@pytest.mark.parametrize("policy", POLICIES)
def test_the_parts_of_a_step_are_what_they_took(clock, policy):
    # Pairs: output 0 | 1 2 3 | 4 5 6 of both; the first step comes right after the prefills.
    drafts, caps = policy == "pairwise", [7, 7] if policy == "pairwise" else [3, 3]
    facts, _ = served(clock, POLICIES[policy](clock), caps, 2)
    parts = {"verify": VERIFY, "commit": COMMIT}
    parts |= dict.fromkeys(("draft", "order", "allocate"), 0.0)
    if drafts:
        parts |= {"draft": DRAFT, "order": ORDER, "allocate": ALLOCATE}
    for name, seconds in parts.items():
        assert facts.steps[f"{name}_s"].tolist() == [seconds] * 2
    host = parts["order"] + parts["allocate"] + COMMIT
    assert facts.steps["host_s"].tolist() == [host, host + OBSERVE]  # looks back on the one before
    assert facts.steps["prefill_s"].tolist() == [2 * PREFILL, 0.0]
    assert facts.requests["first_token_s"].tolist() == [PREFILL, 2 * PREFILL]
    assert facts.requests["output_tokens"].tolist() == caps


def test_an_open_loop_is_idle_only_while_nothing_is_there(clock):
    begun = clock.now_s
    facts, _ = served(clock, Pairwise(clock), [4, 4, 4], 2, gap_s=[0.5, 0.0, 8.0], hooks=False)
    found = spans(facts)
    idle = sum(begin - end for (_, end), (begin, _) in zip([(0.0, 0.0), *found], found))
    assert facts.requests["arrival_s"].tolist() == [0.5, 0.5, 8.5]
    assert facts.requests["admitted_s"].tolist()[0] == 0.5
    assert facts.requests["admitted_s"].tolist()[2] == 8.5
    # The look back on the round before was over when the server fell asleep, and is no step's.
    assert idle == clock.slept_s + OBSERVE
    assert facts.duration_s + OBSERVE == clock.now_s - begun
    assert facts.steps["batch"].tolist() == [2, 1]


def test_requests_that_come_during_a_prefill_join_before_the_next_step(clock):
    """As in the simulator: each waiting request is started while there is room."""
    gap = PREFILL / 2
    facts, server = served(clock, Pairwise(clock), [4, 4, 4], 3, gap_s=[0.0, gap, gap], hooks=False)
    assert server.engine.batches == [3]
    assert facts.requests["admitted_s"].tolist() == [0.0, PREFILL, 2 * PREFILL]


def test_tokens_that_a_resting_drafter_missed():
    """Two plain steps, a draft, a plain step, a draft that request 1 does not see."""
    facts = SimpleNamespace(
        steps={"drafted": np.array([False, False, True, False, True])},
        rounds={
            "step": np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
            "request": np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 2]),
            "committed": np.array([1, 1, 1, 1, 4, 3, 1, 1, 2, 5]),
        },
    )
    assert deferred_tokens(facts).tolist() == [0, 2, 4, 0, 1]


def test_host_terms_are_fitted_on_the_contexts_that_were_there():
    """A live text that leaves its recording may pass its anchors, even the last one's."""
    recording = make_pool(np.random.default_rng(0), sequences=2, depths=3, lengths=[4, 4])
    prompts = recording["prompt_len"].tolist()
    asked = []

    class Bare:
        def step(self, packed, context, **_):
            asked.append((packed.tolist(), context.tolist()))
            return SimpleNamespace(total_s=0.25)

    # Anchors 0-2 and 3-5; request 0 writes text 1, five tokens of it, and request 1 text 0.
    facts = SimpleNamespace(
        requests={"sequence": np.array([1, 0])},
        steps={
            "batch": np.array([2, 1]), "drafted": np.array([True, False]),
            "draft_nodes": np.array([3, 0]), "step_s": np.array([0.5, 0.5]),
        },
        rounds={
            "request": np.array([0, 1, 0]), "anchor": np.array([3, 1, 3 + 4]),
            "width": np.array([2, 1, 0]),
        },
    )  # fmt: skip
    facts.concurrency = 2
    served = Served(facts, [], np.zeros(2), np.zeros(2, bool), False)
    columns = _fit_columns(served, Bare(), recording)
    assert asked == [([3, 2], [prompts[1], prompts[0] + 1]), ([1], [prompts[1] + 4])]
    assert columns[1].tolist() == [0.25]  # the second step is not full
