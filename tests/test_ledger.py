"""What a ledger takes from any engine, and the tables it makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cost import Source, StepTime
from simulator.ledger import Ledger, Texts, texts_of
from simulator.policy import Load, Outcome
from simulator.workload import Workload
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
        "committed",
    }


@pytest.mark.parametrize("second", [{}, {"commit_s": 1.0}, {"order_s": 1.0, "commit_s": 1.0}])
def test_every_step_gives_the_same_further_columns(second):
    book = ledger()
    note(book, 0.0, order_s=1.0)
    with pytest.raises(ValueError, match="as in other steps"):
        note(book, 1.0, **second)


@pytest.mark.parametrize("name", ["draft_s", "step_s", "order_ms"])
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
