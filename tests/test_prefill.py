"""Prefill that takes time: its table, what the server does meanwhile, and what is reported."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import simpy
import yaml
from pyarrow import parquet

from simulator.cli.main import main
from simulator.cost import PrefillRow, Source, StepCost, StepTime, find_profile, read_profile
from simulator.engine.arrivals import Workload
from simulator.engine.fleet import Fleet
from simulator.orders import build_order
from simulator.results.facts import Facts
from simulator.results.latency import chunk_gaps, request_times
from simulator.results.ledger import Ledger
from simulator.results.sums import Sums
from simulator.results.window import FULL_BATCH, WHOLE_RUN, Window, find_window
from tests.serving import STEP_S, ConstantCost, Plain, Watched, serve
from tests.synthetic import make_geometric, make_pool
from tests.test_profiles import DRAFT, HEADER, VERIFY
from traces.common.errors import InputError
from traces.recordings.files import read_recording

U = STEP_S / 4  # of time: a step takes 4, a prompt token 1; sums are exact in binary
TABLE = "prompt_tokens,prefill_ms\n10,3\n30,5\n50,9\n"


@pytest.fixture
def profile(tmp_path):
    """Write a profile with a prefill table (None: without), give the path of its CSV."""

    def write(prefill: str | None = TABLE, **header):
        (tmp_path / "toy.yaml").write_text(yaml.safe_dump({**HEADER, **header}))
        (tmp_path / "toy.csv").write_text(VERIFY)
        (tmp_path / "toy.draft.csv").write_text(DRAFT)
        if prefill is not None:
            (tmp_path / "toy.prefill.csv").write_text(prefill)
        return tmp_path / "toy.csv"

    return write


# ---------------------------------------------------------------- the table


def test_the_table_is_read(profile):
    rows = read_profile(profile()).prefill
    assert rows == (PrefillRow(10, 3.0), PrefillRow(30, 5.0), PrefillRow(50, 9.0))
    noisy = read_profile(profile("prompt_tokens,prefill_ms,noise_ms\n10,3,0.5\n30,5,\n")).prefill
    assert [row.noise_ms for row in noisy] == [0.5, None]


@pytest.mark.parametrize(
    ("tokens", "ms"),
    [(1, 3), (10, 3), (15, 3.5), (30, 5), (40, 7), (50, 9), (55, 10), (150, 29)],  # 0.2 ms beyond
)
def test_linear_between_sizes_flat_below_and_the_last_secant_beyond(profile, tokens, ms):
    assert StepCost(read_profile(profile())).prefill_s(tokens) == pytest.approx(ms * 1e-3)


def test_prefill_never_falls_and_one_size_goes_on_in_proportion(profile):
    falling = StepCost(read_profile(profile("prompt_tokens,prefill_ms\n10,3\n20,2\n")))
    assert falling.prefill_s(500) == pytest.approx(2e-3)
    single = StepCost(read_profile(profile("prompt_tokens,prefill_ms\n10,3\n")))
    assert single.prefill_s(4) == pytest.approx(3e-3)
    assert single.prefill_s(20) == pytest.approx(6e-3)


def test_without_a_table_prefill_is_free(profile):
    assert StepCost(read_profile(profile(None)), strict=True).prefill_s(10**6) == 0.0
    assert find_profile("b300").prefill == ()


def test_strict_refuses_a_longer_prompt(profile):
    cost = StepCost(read_profile(profile()), strict=True)
    assert cost.prefill_s(50) == pytest.approx(9e-3)
    with pytest.raises(InputError, match=r"toy\.csv \(strict\): prefill of 51 tokens; .* up to 50"):
        cost.prefill_s(51)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("tokens,prefill_ms\n1,1\n", "column prompt_tokens is missing; found tokens, prefill_ms"),
        ("prompt_tokens,ms\n1,1\n", "column prefill_ms is missing"),
        ("prompt_tokens,prefill_ms\n", "accepted: a header line and at least one row"),
        ("prompt_tokens,prefill_ms\n4,1\n0,2\n", "line 3, column prompt_tokens: value '0'"),
        ("prompt_tokens,prefill_ms\n4,1\n5,nan\n", "line 3, column prefill_ms: value 'nan'"),
        ("prompt_tokens,prefill_ms\n4,1\n5,-2\n", "line 3, column prefill_ms: value '-2'"),
        ("prompt_tokens,prefill_ms\n4,1\n4,2\n", "line 3, .*each size once"),
        ("prompt_tokens,prefill_ms\n4,1\n3,2\n", "line 3, .*rows sorted by prompt_tokens"),
        ("prompt_tokens,prefill_ms\n4\n", "line 2 has 1 values; accepted: 2"),
        ("prompt_tokens,prefill_ms,noise_ms\n4,1,-1\n", "line 2, column noise_ms: value '-1'"),
    ],
)
def test_bad_tables_are_refused_in_one_line(profile, table, message):
    with pytest.raises(InputError, match="toy.prefill.csv: .*" + message) as caught:
        read_profile(profile(table))
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- the server


def run(recording, sequence, *, gap_u=None, clients=None, first=None, capacity=2) -> Facts:
    """Serve `sequence` by plain decoding; `gap_u` are gaps of arrival in units of time."""
    count = len(sequence)
    first = np.zeros(count, np.int64) if first is None else np.array(first)
    gap_s = None if gap_u is None else np.array(gap_u) * U
    work = Workload(np.array(sequence), first, first > 0, gap_s, clients)
    env, cost = simpy.Environment(), ConstantCost(prompt_token_s=U)
    tables = cache(lambda spec: build_order(spec, recording))
    work = work.replaying(recording)
    ledger = Ledger(work)
    Fleet(env, Plain(), recording, cost, work, capacity, tables, ledger).run()
    assert cost.prefilled == (recording["prompt_len"][sequence] + first).tolist()
    return ledger.facts()


def units(values) -> list[float]:
    return (np.asarray(values) / U).tolist()


@pytest.fixture(scope="module")
def threes():
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
    window = find_window(facts)
    # A: 5 to 9, to 18. B: 14 to 18, to 27. C: 23 to 27, to 31.
    assert units(chunk_gaps(facts, window)) == [4, 9, 4, 9, 4, 4]
    assert units(request_times(requests)["ttft"]) == [5, 8, 16]
    assert Sums.of(facts, window).prefill_s == 15 * U
    numbers = Sums.of(facts, window).throughput()
    assert numbers["output_throughput"] == pytest.approx(9 / (31 * U))
    assert numbers["window"]["first_tokens"] == 3


def test_prompts_are_prefilled_one_after_another(threes):
    """A and B are there at 0: A's token is out at 5, B's at 10, then both step."""
    facts = run(threes, [0, 1], gap_u=[0, 0])
    assert units(facts.requests["admitted_s"]) == [0, 5]
    assert units(facts.requests["first_token_s"]) == [5, 10]
    assert units(facts.steps["time_s"]) == [10, 14]
    assert units(chunk_gaps(facts, find_window(facts))) == [9, 4, 4, 4]


def test_a_request_that_comes_during_a_prefill_is_next(threes):
    """B comes at 3, while A is prefilled: it goes before A's first step."""
    facts = run(threes, [0, 1], gap_u=[0, 3])
    assert units(facts.requests["first_token_s"]) == [5, 10]
    assert units(facts.steps["time_s"]) == [10, 14]


def test_prefill_of_a_warmup_request_covers_its_outputs_so_far(threes):
    """Root 1 of 3 outputs: 5 prompt tokens and output 0, then one step; the next takes 5."""
    facts = run(threes, [0, 1], clients=1, first=[1, 0], capacity=1)
    assert units(facts.requests["first_token_s"]) == [6, 15]
    assert units(facts.requests["finish_s"]) == [10, 23]
    assert facts.requests["output_tokens"].tolist() == [1, 3]


@pytest.fixture(scope="module")
def short():
    """Texts of 1, 3 and 1 outputs."""
    return make_pool(np.random.default_rng(4), sequences=3, depths=2, lengths=[1, 3, 1])


def test_one_token_requests_end_with_their_prefill(short):
    """One client: each request is sent when the one before it ends."""
    first, second, third = (int(n) for n in short["prompt_len"])
    facts = run(short, [0, 1, 2], clients=1, capacity=1)
    ends = [first, first + second + 8, first + second + 8 + third]
    assert units(facts.requests["finish_s"]) == ends
    assert units(facts.requests["arrival_s"]) == [0, *ends[:2]]
    assert units(facts.requests["first_token_s"]) == [first, first + second, ends[2]]


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


def test_a_run_of_one_token_requests_alone_takes_its_prefills(short):
    facts = run(short, [0, 2, 0, 2], clients=2)
    prompts = short["prompt_len"][[0, 2, 0, 2]]
    assert units(facts.requests["finish_s"]) == np.cumsum(prompts).tolist()
    assert find_window(facts).kind == WHOLE_RUN
    assert Sums.of(facts).throughput()["window"]["tokens"] == 4


def test_little_and_the_window_hold_with_prefill():
    """Six clients in a full batch: requests in the system = rate x time in it."""
    recording = make_geometric(0.6, np.random.default_rng(2), sequences=9, length=40, depths=5)
    cost = ConstantCost(prompt_token_s=U)
    facts = serve(recording, Watched(3), cost, max_concurrency=6, num_prompts=300, seed=5)
    window = find_window(facts)
    inside = window.requests(facts) & ~facts.requests["warmup"]
    e2el = request_times(facts.requests)["e2el"][inside]
    rate = np.count_nonzero(window.requests(facts)) / window.seconds
    assert rate * e2el.mean() == pytest.approx(6, rel=0.02)
    # Steps and prefills fill the window without a gap.
    busy_s = facts.steps["step_s"][window.steps(facts)].sum() + Sums.of(facts, window).prefill_s
    assert busy_s == pytest.approx(window.seconds, rel=1e-12)


def test_gaps_of_a_request_add_up_to_its_decoding():
    recording = make_geometric(0.6, np.random.default_rng(2), sequences=9, length=40, depths=5)
    cost = ConstantCost(prompt_token_s=U)
    facts = serve(recording, Watched(3), cost, request_rate=20.0, num_prompts=40, max_concurrency=4)
    gaps = np.bincount(facts.rounds["request"], chunk_gaps(facts, find_window(facts)), 40)
    decoding_s = facts.requests["finish_s"] - facts.requests["first_token_s"]
    assert gaps == pytest.approx(decoding_s, rel=1e-12)
    assert (chunk_gaps(facts, find_window(facts)) > STEP_S).any()


def test_the_window_counts_first_tokens_by_their_end():
    """From 1 s to 2 s: prefills by their beginning and end."""
    cases = [
        (0.5, 1.0, False),  # the completion that opens the window
        (1.0, 1.0, True),  # free, behind that completion
        (0.5, 1.25, True),
        (1.5, 2.0, True),  # the completion that closes it
        (2.0, 2.0, False),  # free, behind that completion
        (1.75, 2.25, False),
    ]
    begin_s, end_s, inside = (np.array(column) for column in zip(*cases))
    requests = {"admitted_s": begin_s, "first_token_s": end_s, "warmup": np.zeros(6, bool)}
    facts = Facts(requests, {}, {}, 2)
    assert Window(FULL_BATCH, 1.0, 2.0).admitted(facts).tolist() == inside.tolist()
    assert Window(WHOLE_RUN, 0.0, 2.0).admitted(facts).tolist() == [True] * 5 + [False]
    facts.requests["warmup"][2] = True
    assert Window(FULL_BATCH, 1.0, 2.0).admitted(facts).sum() == inside.sum() - 1
    assert Window(FULL_BATCH, 1.0, 2.0).prefilled(facts).tolist() == inside.tolist()


# ---------------------------------------------------------------- a whole run


def summary_of(words: list[str]) -> dict:
    assert main([*words, "policy=fixed_chain", "hydra.run.dir=out"]) == 0
    with open("out/summary.json") as file:
        return json.load(file)


def test_the_summary_says_what_prefill_took(here, recorded, profile):
    """1 ms and 1 ms more per token, an open loop: the whole run, no warm-up requests."""
    path = profile("prompt_tokens,prefill_ms\n1,2\n5,6\n")
    words = [f"trace={recorded}", f"latency={path}", "request_rate=50", "num_prompts=12"]
    summary = summary_of(words)
    assert summary["ttft_note"] == "queue and prefill"
    assert summary["prefill_ms_total"] == pytest.approx(12 + summary["total_input_tokens"])
    assert summary["mean_ttft_ms"] >= 1 + summary["total_input_tokens"] / 12
    assert set(summary["step_ms"]) == {"draft", "verify", "host", "prefill", "total"}
    prompts = np.array(parquet.read_table("out/requests.parquet")["prompt_tokens"])
    assert 0 < np.mean(prompts > 5) < 1
    assert summary["prefill_modelled_share"] == np.mean(prompts > 5)


def test_without_a_prefill_table_nothing_is_said(here, recorded, profile):
    summary = summary_of([f"trace={recorded}", f"latency={profile(None)}", "num_prompts=12"])
    assert summary["ttft_note"] == "queue only"
    assert not [key for key in summary if "prefill" in key]


def test_strict_refuses_long_prompts_before_a_run(here, recorded, profile, capsys):
    path = profile("prompt_tokens,prefill_ms\n1,2\n2,3\n")
    words = [f"trace={recorded}", f"latency={path}", "latency.strict=true", "hydra.run.dir=out"]
    assert main(words) == 2
    recording = read_recording(recorded)
    longest = recording["prompt_len"][recording.sequences_of("report")].max()
    refused = f"(strict): prefill of {longest} tokens; measured: up to 2"
    assert refused in capsys.readouterr().err
    assert not (here / "out").exists()


def test_a_step_time_has_no_prefill_in_it():
    assert StepTime(1.0, 2.0, 4.0, Source.MEASURED).total_s == 7.0
