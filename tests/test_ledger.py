"""What a ledger takes from any engine, and the tables it makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cost import Source, StepTime
from simulator.engine.arrivals import Workload
from simulator.policy import Load, Outcome
from simulator.results.facts import Ledger, Serving, Texts, texts_of
from tests.synthetic import make_geometric

TEXTS = Texts(np.array([1, 0]), np.array([7, 9]), np.array([2, 3]))


def ledger() -> Ledger:
    """Two requests of sequences 1 and 0, at given times."""
    work = Workload(np.array([1, 0]), np.zeros(2, np.int64), np.zeros(2, bool), None, 2)
    book = Ledger(work)
    book.arrival_s[:], book.admitted_s[:] = [0.0, 0.5], [0.25, 1.0]
    book.first_token_s[:], book.finish_s[:] = [0.75, 1.5], [3.0, 4.0]
    return book


def note(book: Ledger, time_s: float, ties: int = 0, **extra_s: float) -> None:
    """One step of one request (0) that verifies 3 nodes and accepts 1."""
    one = np.ones(1, np.int64)
    load = Load(time_s, 1, 0, 2, context=9 * one, remaining=5 * one)
    time = StepTime(0.125, 0.25, 0.5, Source.MEASURED)
    outcome = Outcome(time_s + 0.875, 0.875, True, 0 * one, 3 * one, one, 2 * one)
    book.step(load, time, 4 * one, outcome, ties, **extra_s)


def test_further_columns_join_the_steps():
    book = ledger()
    note(book, 0.75, ties=1, order_s=0.0625, commit_s=0.5)
    note(book, 2.0, commit_s=0.25, order_s=0.125)
    steps = book.facts(TEXTS).steps
    assert steps["order_s"].tolist() == [0.0625, 0.125]
    assert steps["commit_s"].tolist() == [0.5, 0.25]
    assert steps["order_ties"].tolist() == [1, 0]
    assert steps["step_s"].tolist() == [0.875, 0.875]  # draft + verify + host, nothing more
    assert {len(column) for column in steps.values()} == {2}


def test_without_further_columns_there_are_none():
    book = ledger()
    note(book, 0.75)
    assert set(book.facts(TEXTS).steps) == {
        *("step", "time_s", "step_s", "draft_s", "verify_s", "host_s", "source", "batch"),
        *("queued", "drafted", "order_ties", "draft_nodes", "packed_tokens", "accepted"),
        *("committed", "chunk_s", "executed_tokens", "prefill_tokens", "replica", "kv_blocks"),
        "preempted",
    }


@pytest.mark.parametrize("second", [{}, {"commit_s": 1.0}, {"order_s": 1.0, "commit_s": 1.0}])
def test_every_step_gives_the_same_further_columns(second):
    book = ledger()
    note(book, 0.0, order_s=1.0)
    with pytest.raises(ValueError, match="as in other steps"):
        note(book, 1.0, **second)


@pytest.mark.parametrize("name", ["draft_s", "step_s", "chunk_s", "order_ms"])
def test_a_further_column_has_a_free_name_in_seconds(name):
    with pytest.raises(ValueError, match=f"step column '{name}'"):
        note(ledger(), 0.0, **{name: 1.0})


def test_requests_have_their_own_times_and_texts():
    book = ledger()
    note(book, 0.75)
    requests = book.facts(TEXTS).requests
    assert requests["domain"].tolist() == [0, 1]  # of sequences 1 and 0
    assert requests["prompt_tokens"].tolist() == [9, 7]
    assert requests["output_tokens"].tolist() == [2, 3]  # per request, as given
    assert requests["admitted_s"].tolist() == [0.25, 1.0]
    assert requests["first_token_s"].tolist() == [0.75, 1.5]


def test_texts_of_a_replay_leave_out_what_a_warmup_request_starts_with():
    """Texts of 12 outputs: a warm-up request at root 4 has outputs 0 to 4 and writes 7."""
    recording = make_geometric(0.5, np.random.default_rng(0), sequences=3, length=12, depths=3)
    first, warmup = np.array([4, 0, 0]), np.array([True, True, False])
    texts = texts_of(recording, Workload(np.array([2, 0, 1]), first, warmup, None, 2))
    assert texts.output_tokens.tolist() == [7, 11, 12]
    assert texts.prompt_tokens.tolist() == [5, 5, 5]
    assert texts.domain.tolist() == [0, 1, 0]


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
    steps = book.facts(TEXTS).steps
    assert steps["step_s"].tolist() == [2.375, 0.875]
    assert steps["chunk_s"].tolist() == [1.5, 0.0]
    assert steps["executed_tokens"].tolist() == [5, 0]
    assert steps["packed_tokens"].tolist() == [4, 4]
    served = ("replica", "prefill_tokens", "kv_blocks", "preempted")
    assert [steps[name].tolist() for name in served] == [[1, 0], [64, 0], [7, 0], [2, 0]]


def test_what_servers_call_says_what_the_arrays_say():
    book = Ledger(ledger().workload)
    for request, times in enumerate([(0.0, 0.25, 0.75, 3.0), (0.5, 1.0, 1.5, 4.0)]):
        for call, time_s in zip(
            (book.arrive, book.admit, book.first_token, book.finish), times, strict=True
        ):
            call(request, time_s)
    book.admit(0, 2.0)  # again, after a preemption: the first time counts
    book.preempt(0)
    book.preempt(0)
    book.hand_over(1)
    book.place(1, 3)
    note(book, 0.75)
    ours, theirs = book.facts(TEXTS).requests, ledger()
    note(theirs, 0.75)
    theirs = theirs.facts(TEXTS).requests
    for name in ("arrival_s", "admitted_s", "first_token_s", "finish_s"):
        assert ours[name].tolist() == theirs[name].tolist()
    counted = ("preemptions", "hand_overs", "replica", "rejected")
    assert [ours[n].tolist() for n in counted] == [[2, 0], [0, 1], [0, 3], [False, False]]
    assert [theirs[n].tolist() for n in counted] == [[0, 0], [0, 0], [0, 0], [False, False]]


def test_a_rejected_request_emits_nothing_and_does_not_end():
    book = Ledger(ledger().workload)
    book.arrive(0, 0.0)
    book.arrive(1, 0.5)
    book.reject(1, 0.5)
    book.finish(0, 2.5)
    facts = book.facts(TEXTS)
    assert facts.requests["rejected"].tolist() == [False, True]
    assert facts.requests["output_tokens"].tolist() == [2, 0]
    assert np.isnan(facts.requests["finish_s"]).tolist() == [False, True]
    assert facts.duration_s == 2.5
    book.reject(0, 0.0)
    book.finish_s[:] = np.nan
    assert book.facts(TEXTS).duration_s == 0.0


def test_bulk_calls_go_between_single_ones():
    """A step, two in bulk (of one round and of none), and a step again."""
    book = ledger()
    note(book, 0.0)
    steps = {
        "time_s": np.array([1.0, 2.0]),
        "draft_s": np.zeros(2),
        "verify_s": np.array([0.5, 0.25]),
        "host_s": np.zeros(2),
        "source": np.array([1, 4]),
        "batch": np.array([1, 0]),
        "queued": np.array([0, 2]),
        "drafted": np.array([True, False]),
        "order_ties": np.array([0, 0]),
        "chunk_s": np.array([0.0, 0.5]),
    }
    rounds = {"request": [1], "anchor": [6], "width": [2], "accepted": [2], "committed": [3]}
    book.block(steps, {name: np.array(values) for name, values in rounds.items()})
    note(book, 3.0)
    facts = book.facts(TEXTS)
    assert facts.steps["time_s"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert facts.steps["step_s"].tolist() == [0.875, 0.5, 0.75, 0.875]
    assert facts.steps["committed"].tolist() == [2, 3, 0, 2]
    assert facts.steps["packed_tokens"].tolist() == [4, 3, 0, 4]
    assert facts.steps["kv_blocks"].tolist() == [0, 0, 0, 0]
    assert facts.rounds["step"].tolist() == [0, 1, 3]
    assert facts.rounds["request"].tolist() == [0, 1, 0]
    assert facts.requests["accepted"].tolist() == [2, 2]
    book.times("finish_s", np.array([1, 0]), np.array([9.0, 8.0]))
    assert book.finish_s.tolist() == [8.0, 9.0]
    with pytest.raises(ValueError, match="times of 'end_s'; accepted: arrival_s"):
        book.times("end_s", np.array([1]), np.array([9.0]))


def test_requests_of_a_file_have_their_own_prompts():
    recording = make_geometric(0.5, np.random.default_rng(0), sequences=3, length=12, depths=3)
    none = np.zeros(2, np.int64)
    work = Workload(
        np.array([2, 0]), none, none > 0, None, 2,
        prompt_tokens=np.array([700, 3]), output_tokens=np.array([40, 5]),
    )  # fmt: skip
    book = Ledger(work)
    requests = book.facts(texts_of(recording, work)).requests
    assert requests["prompt_tokens"].tolist() == [700, 3]
    assert requests["output_tokens"].tolist() == [40, 5]
    assert requests["domain"].tolist() == [0, 0]
