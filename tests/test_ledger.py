"""What a ledger takes from any engine, and the tables it makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost import Source, StepTime
from simulator.engine.arrivals import Workload
from simulator.policy import Load, Outcome
from simulator.results.ledger import Ledger, Serving
from tests.serving import columns
from tests.synthetic import make_geometric

WORK = Workload(
    np.array([1, 0]), np.zeros(2, np.int64), np.zeros(2, bool), None, 2,
    prompt_tokens=np.array([9, 7]), output_tokens=np.array([2, 3]), domain=np.array([0, 1]),
)  # fmt: skip
TIMES = {
    "arrival_s": [0.0, 0.5],
    "admitted_s": [0.25, 1.0],
    "first_token_s": [0.75, 1.5],
    "finish_s": [3.0, 4.0],
}


def ledger() -> Ledger:
    """Two requests of sequences 1 and 0, at given times."""
    book = Ledger(WORK)
    for name, time_s in TIMES.items():
        book.times(name, np.arange(2), np.array(time_s))
    return book


def note(book: Ledger, time_s: float, ties: int = 0, **extra_s: float) -> None:
    """One step of one request (0) that verifies 3 nodes and accepts 1."""
    one = np.ones(1, np.int64)
    load = Load(time_s, 1, 0, 2, context=9 * one, remaining=5 * one)
    time = StepTime(0.125, 0.25, 0.5, Source.MEASURED)
    outcome = Outcome(time_s + 0.875, 0.875, True, 0 * one, 3 * one, one, 2 * one)
    book.step(load, time, 4 * one, outcome, ties, **extra_s)


def test_further_columns_join_the_steps():
    book, plain = ledger(), ledger()
    note(plain, 0.75)
    note(book, 0.75, ties=1, order_s=0.0625, commit_s=0.5)
    note(book, 2.0, commit_s=0.25, order_s=0.125)
    steps = book.facts().steps
    assert steps["order_s"].tolist() == [0.0625, 0.125]
    assert steps["commit_s"].tolist() == [0.5, 0.25]
    assert steps["order_ties"].tolist() == [1, 0]
    assert steps["step_s"].tolist() == [0.875, 0.875]  # draft + verify + host, nothing more
    assert {len(column) for column in steps.values()} == {2}
    assert steps.keys() - plain.facts().steps.keys() == {"order_s", "commit_s"}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"order_s": 1.0}, {}, "as in other steps"),
        ({"order_s": 1.0}, {"commit_s": 1.0}, "as in other steps"),
        ({"order_s": 1.0}, {"order_s": 1.0, "commit_s": 1.0}, "as in other steps"),
        *(
            (None, {name: 1.0}, f"step column '{name}'")
            for name in ("draft_s", "step_s", "order_ms")
        ),
    ],
)
def test_further_columns_are_the_same_in_every_step_free_and_in_seconds(first, second, message):
    book = ledger()
    if first is not None:
        note(book, 0.0, **first)
    with pytest.raises(ValueError, match=message):
        note(book, 1.0, **second)


def test_texts_of_a_replay_leave_out_what_a_warmup_request_starts_with():
    """Texts of 12 outputs: a warm-up request at root 4 has outputs 0 to 4 and writes 7."""
    recording = make_geometric(0.5, np.random.default_rng(0), sequences=3, length=12, depths=3)
    first, warmup = np.array([4, 0, 0]), np.array([True, True, False])
    work = Workload(np.array([2, 0, 1]), first, warmup, None, 2)
    requests = Ledger(work).facts(work.replaying(recording)).requests
    assert requests["output_tokens"].tolist() == [7, 11, 12]
    assert requests["prompt_tokens"].tolist() == [5, 5, 5]
    assert requests["domain"].tolist() == [0, 0, 1]  # of sequences 2, 0 and 1


def test_a_step_knows_its_chunks_padding_and_replica():
    """Draft, verify, host and 1.5 s of chunks; 5 tokens executed for 4 that were asked for."""
    book = ledger()
    one = np.ones(1, np.int64)
    load = Load(0.75, 1, 0, 2, context=9 * one, remaining=5 * one)
    time = StepTime(0.125, 0.25, 0.5, Source.MEASURED, chunk_s=1.5, executed=5)
    outcome = Outcome(3.125, 2.375, True, 0 * one, 3 * one, one, 2 * one)
    serving = Serving(replica=1, prefill_tokens=64, kv_blocks=7, preempted=2)
    book.step(load, time, 4 * one, outcome, 0, serving)
    note(book, 3.125)
    steps = book.facts().steps
    assert steps["step_s"].tolist() == [2.375, 0.875]
    assert steps["chunk_s"].tolist() == [1.5, 0.0]
    assert steps["executed_tokens"].tolist() == [5, 0]
    assert steps["packed_tokens"].tolist() == [4, 4]
    served = ("replica", "prefill_tokens", "kv_blocks", "preempted")
    assert [steps[name].tolist() for name in served] == [[1, 0], [64, 0], [7, 0], [2, 0]]


def test_single_calls_say_what_bulk_calls_say():
    book = Ledger(WORK)
    for name, times_s in TIMES.items():
        for request, time_s in enumerate(times_s):
            book.note(name, request, time_s)
    book.note("admitted_s", 0, 2.0)  # again, after a preemption: the first time counts
    note(book, 0.75)
    for request, name, value in (
        (0, "preemptions", 1),
        (0, "preemptions", 1),
        (1, "hand_overs", 1),
        (1, "replica", 3),
    ):
        book.note(name, request, value)
    ours, theirs = book.facts().requests, ledger()
    assert [ours[name].tolist() for name in ("domain", "prompt_tokens", "output_tokens")] == [
        *([0, 1], [9, 7], [2, 3])
    ]
    note(theirs, 0.75)
    theirs = theirs.facts().requests
    for name, times_s in TIMES.items():
        assert ours[name].tolist() == theirs[name].tolist() == times_s
    counted = ("preemptions", "hand_overs", "replica", "rejected")
    assert [ours[n].tolist() for n in counted] == [[2, 0], [0, 1], [0, 3], [False, False]]
    assert [theirs[n].tolist() for n in counted] == [[0, 0], [0, 0], [0, 0], [False, False]]


@pytest.mark.parametrize("rejected", [[1], [0, 1]])
def test_a_rejected_request_emits_nothing_and_does_not_end(rejected):
    book = Ledger(replace(WORK, output_tokens=np.array([1, 3])))
    for request in (0, 1):
        book.note("arrival_s", request, 0.5)
        if request in rejected:
            book.note("rejected", request, 0.5)
        else:
            for name, time_s in (("admitted_s", 0.5), ("first_token_s", 2.5), ("finish_s", 2.5)):
                book.note(name, request, time_s)
    facts, gone = book.facts(), np.isin([0, 1], rejected)
    assert facts.requests["rejected"].tolist() == gone.tolist()
    assert facts.requests["output_tokens"].tolist() == np.where(gone, 0, 1).tolist()
    assert np.isnan(facts.requests["finish_s"]).tolist() == gone.tolist()
    assert facts.duration_s == (0.0 if gone.all() else 2.5)


def test_bulk_calls_go_between_single_ones():
    """A step, two in bulk (of one round and of none), and a step again."""
    book = ledger()
    note(book, 0.0)
    steps = columns(
        time_s=[1.0, 2.0],
        draft_s=[0.0, 0.0],
        verify_s=[0.5, 0.25],
        host_s=[0.0, 0.0],
        source=[1, 4],
        batch=[1, 0],
        queued=[0, 2],
        drafted=[True, False],
        order_ties=[0, 0],
        chunk_s=[0.0, 0.5],
    )
    rounds = columns(request=[1], anchor=[6], width=[2], accepted=[2], committed=[3])
    book.block(steps, rounds)
    note(book, 3.0)
    facts = book.facts()
    expected = {
        "time_s": [0.0, 1.0, 2.0, 3.0],
        "step_s": [0.875, 0.5, 0.75, 0.875],
        "committed": [2, 3, 0, 2],
        "packed_tokens": [4, 3, 0, 4],
        "kv_blocks": [0, 0, 0, 0],
    }
    assert {name: facts.steps[name].tolist() for name in expected} == expected
    assert facts.rounds["step"].tolist() == [0, 1, 3]
    assert facts.rounds["request"].tolist() == [0, 1, 0]
    assert facts.requests["accepted"].tolist() == [2, 2]
    with pytest.raises(ValueError, match="times of 'end_s'; accepted: arrival_s"):
        book.times("end_s", np.array([1]), np.array([9.0]))
