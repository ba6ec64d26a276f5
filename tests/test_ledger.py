"""What a ledger takes from any engine, its tables, and the parts of a streamed one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost import Source, StepTime
from simulator.engine.arrivals import Workload
from simulator.policy import Load, Outcome
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger, Serving
from simulator.results.open_requests import WORK, Ended, KeptWorkload, OpenRequests
from simulator.results.quantiles import ERROR, LEAST, PERCENTILES, Samples, Sketch, statistics
from simulator.results.sums import AnchorCounts
from simulator.results.window import FULL_BATCH, STEADY, WHOLE_RUN, Completions, find_window
from tests.synthetic import make_geometric

REQUESTS = Workload(
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
    book = Ledger(REQUESTS)
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


# ---------------------------------------------------------------- the window


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(0, 12),
    st.integers(1, 9),
)
@settings(max_examples=200, deadline=None)
def test_what_is_settled_stays_so(ends, clients, ramp, together):
    """Whole numbers of seconds, so that many ends are equal; `together` are noted at a time."""
    finish_s = np.sort(np.array(ends, float))
    final = find_window(Facts({"finish_s": finish_s}, {}, {}, clients, ramp))
    noted = Completions(clients, ramp)
    for first in range(0, len(finish_s), together):
        noted.note(finish_s[first : first + together])
        window = noted.settled()
        if clients is None and not ramp:
            assert window.kind == WHOLE_RUN
        elif window is not None:
            assert window.kind == final.kind == (STEADY if clients is None else FULL_BATCH)
            assert window.start_s == final.start_s
        if window is not None:
            assert window.end_s <= final.end_s
    assert noted.window() == final
    assert noted.last_s == finish_s[-1]


def test_most_of_a_long_run_is_settled():
    """Two clients, ends at 1..10 s: after c ends what is over by the (c - 1)th is settled."""
    noted = Completions(2)
    for end in range(1, 11):
        noted.note(np.array([float(end)]))
        window = noted.settled()
        assert (window is None) == (end <= 4)
        if window is not None:
            assert (window.start_s, window.end_s) == (2.0, end - 1.0)


# ---------------------------------------------------------------- percentiles


@pytest.mark.parametrize("count", [1, 2, 3, 10, 999, 20_000])
@pytest.mark.parametrize("spread", [0.0, 0.3, 4.0])
def test_a_sketch_is_within_its_error(count, spread):
    values = np.exp(np.random.default_rng(count).normal(2.0, spread, count))
    sketch = Sketch()
    for part in np.array_split(values, 3):
        sketch.add(part)
    percent = (0, 1, 50, *PERCENTILES, 100)
    expected = np.percentile(values, percent)
    assert np.abs(sketch.percentiles(percent) / expected - 1).max() <= ERROR * (1 + 1e-9)


def test_a_sketch_at_its_ends():
    sketch = Sketch()
    sketch.add(np.array([0.0, LEAST / 2, 1e300]))
    low, middle, high = sketch.percentiles([0, 50, 100])
    assert (low, middle) == (0.0, 0.0)
    assert 1e14 < high < 1e16  # the largest there is


def test_samples_are_exact_up_to_their_limit():
    values = np.random.default_rng(1).gamma(2.0, 3.0, 1000)
    held = Samples(1000)
    for part in np.array_split(values, 7):
        held.add(part)
    assert held.exact
    assert held.statistics("itl") == statistics("itl", values)
    held.add(values[:1])
    assert not held.exact
    assert held.count == 1001


def test_sketched_samples_have_exact_moments():
    """A mean of 10^6 and a spread of 1: sums of squares would lose it."""
    values = 1e6 + np.random.default_rng(2).normal(0.0, 1.0, 5000)
    few = Samples(10)
    for part in np.array_split(values, 9):
        few.add(part)
    ours, exact = few.statistics("x"), statistics("x", values)
    for key, rel in (("mean", 1e-14), ("std", 1e-7), ("p99", ERROR)):
        assert ours[f"{key}_x_ms"] == pytest.approx(exact[f"{key}_x_ms"], rel=rel)
    assert set(Samples(0).statistics("x").values()) == {None}


# ---------------------------------------------------------------- requests


def test_open_requests_are_found_and_forgotten():
    table = OpenRequests()
    table.add(np.array([3, 4, 90]))
    assert table.places(np.array([90, 3, 3])).tolist() == [2, 0, 0]
    table["rounds"][:] = [5, 6, 7]
    table.drop(table.places(np.array([4])))
    assert table["request"].tolist() == [3, 90]
    assert table["rounds"].tolist() == [5, 7]
    assert np.isnan(table["finish_s"]).all()
    table.add(np.arange(100, 300))  # more than there was room for
    assert table["rounds"][:3].tolist() == [5, 7, 0]
    assert table.places(np.array([299])).tolist() == [201]
    for gone in (4, 2, 500, 91):
        with pytest.raises(KeyError, match=f"request {gone} has not arrived, or is over"):
            table.places(np.array([3, gone]))
    with pytest.raises(ValueError, match="rising numbers"):
        table.add(np.array([299]))
    table.add(np.array([1 << 40]))  # too far away for a direct lookup
    assert table.places(np.array([1 << 40, 3])).tolist() == [202, 0]
    with pytest.raises(KeyError, match="request 301 "):
        table.places(np.array([3, 301, 1 << 40]))


def test_ended_requests_come_in_the_order_of_time():
    ended = Ended()
    ended.add(np.array([7, 8]), np.array([1.0, 3.0]))
    ended.add(np.array([1, 2, 5]), np.array([2.0, 3.0, 4.0]))
    assert ended.until(1.0).tolist() == []  # one that ends at an instant is not before it
    assert ended.until(4.0).tolist() == [7, 1, 8, 2]
    assert len(ended) == 1
    assert ended.until(np.inf).tolist() == [5]
    assert ended.until(np.inf).tolist() == []


def test_a_source_keeps_what_was_read_until_it_is_taken():
    class Reader:
        def block(self, first: int, count: int):
            return {name: np.arange(first, first + count) + at for at, name in enumerate(WORK)}

    source = KeptWorkload(Reader())
    source.block(0, 4)
    source.block(2, 4)  # two of them again
    assert source.take(0, 3)["sequence"].tolist() == [0, 1, 2]
    assert source.take(3, 9)["domain"].tolist() == [4, 5, 6]
    assert source.take(6, 1)["sequence"].tolist() == []
    with pytest.raises(ValueError, match="requests 6 to 7 were not read"):
        source.block(8, 1)


def test_anchors_are_counted():
    counts = AnchorCounts()
    counts.add(np.array([1, 4, 1]))
    counts.add(np.array([0, 1]))
    margin = np.array([0.5, 0.0, 0.0, 0.0, 0.0009])
    assert counts.near(margin, 1e-3) == 3 + 1
    assert counts.near(margin, 0.9) == 5
    assert counts.near(None, 1e-3) is None
