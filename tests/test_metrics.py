"""Metrics of runs small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.results.facts import Facts
from simulator.results.latency import chunk_gaps, meets, parse_goodput, request_times
from simulator.results.quantiles import statistics
from simulator.results.sums import JainSums, StepSums, Sums
from simulator.results.window import FULL_BATCH, WHOLE_RUN, Window, find_window
from tests.serving import columns
from traces.common.errors import InputError


@pytest.fixture
def by_hand() -> Facts:
    """Open loop, three requests, five steps of 0.1, 0.2, 0.3, 0.4 and 0.5 s.

    0 arrives at 0.0 with 4 outputs: rounds in steps 0 (2 tokens) and 1 (1 token).
    1 arrives at 0.2 with 6 outputs: first token at 0.3, rounds in steps 2 (2), 3 (1), 4 (2).
    2 arrives at 0.5 with 1 output: first and last token at 0.6.
    """
    requests = columns(
        request=[0, 1, 2],
        domain=[0, 1, 1],
        arrival_s=[0.0, 0.2, 0.5],
        admitted_s=[0.0, 0.3, 0.6],
        first_token_s=[0.0, 0.3, 0.6],
        finish_s=[0.3, 1.5, 0.6],
        prompt_tokens=[10, 20, 30],
        output_tokens=[4, 6, 1],
        rounds=[2, 3, 0],
        draft_nodes=[4, 8, 0],
        replica=[0, 1, 0],
        preemptions=[0, 2, 0],
        hand_overs=[0, 0, 0],
        **dict.fromkeys(("warmup", "rejected"), [False] * 3),
    )
    steps = columns(
        time_s=[0.0, 0.1, 0.3, 0.6, 1.0],
        batch=[1, 1, 1, 1, 1],
        draft_nodes=[0, 4, 4, 2, 2],
        step_s=[0.1, 0.2, 0.3, 0.4, 0.5],
        draft_s=[0.0, 0.1, 0.1, 0.1, 0.1],
        verify_s=[0.1, 0.1, 0.1, 0.2, 0.3],
        host_s=[0.0, 0.0, 0.1, 0.1, 0.1],
        drafted=[False, True, True, True, True],
        committed=[2, 1, 2, 1, 2],
        chunk_s=[0.0, 0.0, 0.0, 0.0, 0.0],
        packed_tokens=[1, 5, 5, 3, 3],
        executed_tokens=[1, 8, 8, 4, 4],
        prefill_tokens=[0, 0, 0, 0, 0],
        source=[1, 1, 1, 4, 1],
        order_ties=[0, 1, 0, 0, 2],
        replica=[0, 0, 1, 1, 1],
        kv_blocks=[3, 4, 9, 9, 8],
    )
    rounds = columns(
        step=[0, 1, 2, 3, 4],
        request=[0, 0, 1, 1, 1],
        anchor=[3, 5, 8, 10, 11],
        width=[0, 4, 4, 2, 2],
        accepted=[0, 2, 1, 0, 2],
        committed=[2, 1, 2, 1, 2],
    )
    return Facts(requests, steps, rounds, None)


def test_latency_by_hand(by_hand):
    """TTFT 0, 100, 100 ms. TPOT (0.3 - 0) / 3 and (1.3 - 0.1) / 5 s; one-token requests left out.

    ITL: the five steps. E2EL 300, 1300, 100 ms.
    """
    expected = {
        "mean_ttft_ms": 200 / 3,
        "median_ttft_ms": 100,
        "mean_tpot_ms": (100 + 240) / 2,
        "std_tpot_ms": 70,
        "mean_itl_ms": 300,
        "median_e2el_ms": 300,
        "mean_e2el_ms": 1700 / 3,
        # Linear interpolation between the sorted values 100, 300, 1300: rank 0.9 * 2 = 1.8.
        "p90_e2el_ms": 300 + 0.8 * 1000,
    }
    ms = Sums.of(by_hand).latency()
    assert {name: ms[name] for name in expected} == pytest.approx(expected)


def test_numbers_of_a_run_by_hand(by_hand):
    """The whole run: 3 requests, 8 tokens of rounds + 3 first tokens, 60 prompt tokens, 1.5 s.

    On two GPUs; nobody was rejected, request 1 was pushed out twice.
    """
    numbers = Sums.of(by_hand).numbers(gpus=2)
    assert numbers["window"] == {
        "kind": "whole run",
        "start_s": 0.0,
        "end_s": 1.5,
        "requests": 3,
        "tokens": 11,
        "first_tokens": 3,
    }
    rates, nodes = np.array([4 / 0.3, 6 / 1.3, 1 / 0.1]), np.array([4 / 2, 8 / 3])
    expected = {
        "request_throughput": 3 / 1.5,
        "output_throughput": 11 / 1.5,
        "output_throughput_per_gpu": 11 / 1.5 / 2,
        "total_token_throughput": 71 / 1.5,
        "rejected": 0,
        "preemptions": 2,
        "hand_over_share": 0.0,
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected)
    fairness = {"output_tokens_per_s": jain(rates), "draft_nodes_per_round": jain(nodes)}
    assert numbers["fairness"] == pytest.approx(fairness)


def jain(shares: np.ndarray) -> float:
    return shares.sum() ** 2 / (len(shares) * (shares**2).sum())


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ("ttft:150", 3),
        ("ttft:50", 1),
        ("tpot:200", 2),  # the one-token request meets any TPOT
        ("tpot:50", 1),
        ("ttft:150 tpot:200", 2),
        ("e2el:1000", 2),
        ("e2el:50", 0),
    ],
)
def test_goodput_by_hand(by_hand, limits, good):
    sums = Sums.of(by_hand, limits=parse_goodput(limits))
    assert sums.numbers()["request_goodput"] == pytest.approx(good / 1.5)


FORMS = (
    "ttft:500 tpot:50",
    ["ttft:500", "tpot:50"],
    {"ttft": 500, "tpot": 50.0},
    [{"ttft": 500}, "tpot:50"],
)
ODD = ("", "ttft", "ttft:", "ttft:-1", "ttft:0", "ttft:nan", "ttft:inf", "itl:5", "ttft:1 ttft:2")


def test_forms_of_goodput():
    assert parse_goodput(None) is None
    for form in FORMS:
        assert parse_goodput(form) == {"ttft": 500.0, "tpot": 50.0}
    for form in (*ODD, 5, [], {}, {"tpot": True}):
        with pytest.raises(InputError, match="goodput is"):
            parse_goodput(form)


def test_acceptance_by_hand(by_hand):
    """Four drafted rounds accept 2, 1, 0, 2 of 4, 4, 2, 2 nodes; five rounds commit 8 tokens."""
    numbers = Sums.of(by_hand).steps.acceptance()
    assert numbers["acceptance_length"] == 1 + 5 / 4
    assert numbers["committed_round_length"] == 8 / 5
    assert numbers["draft_nodes_per_request"] == 12 / 5
    assert numbers["share_verified_accepted"] == 5 / 12
    # Depth 1: 3 of 4 rounds. Depth 2: 2 of those 3.
    assert numbers["acceptance_rate_by_depth"] == [3 / 4, 2 / 3]


def test_steps_and_near_ties_by_hand(by_hand):
    """Of 25 executed tokens 17 were asked for; replica 1 has steps 2 to 4."""
    sums = Sums.of(by_hand, replicas=2)
    steps = sums.steps
    expected = {"draft": 80.0, "verify": 160.0, "host": 60.0, "prefill": 0.0, "total": 300.0}
    assert steps.step_ms() == pytest.approx(expected)
    assert steps.padding_share() == 1 - 17 / 25
    assert (steps.kv_blocks_peak, steps.order_ties) == (9, 3)
    shares = steps.cost_shares()
    assert shares["steps"] == {"measured": 0.8, "interpolated": 0, "modelled": 0.2, "clamped": 0}
    assert shares["time"]["modelled"] == pytest.approx(0.4 / 1.5)
    margin = np.full(12, 1.0)
    margin[[3, 10]] = 1e-4  # of rounds at anchors 3, 5, 8, 10 and 11
    assert sums.anchors.near(margin, 1e-3) == 2
    by_hand.steps["executed_tokens"][:] = 0
    assert Sums.of(by_hand).steps.padding_share() is None


def test_replicas_by_hand(by_hand):
    """Request 1 on replica 1: 5 tokens of rounds and a first one; the others on replica 0."""
    by_hand.requests["first_token_s"][1] = 0.4  # a prefill of 0.1 s
    sums = Sums.of(by_hand, replicas=2)
    first, second = sums.per_replica(whole=True)
    assert (first["requests"], first["output_tokens"]) == (2, 5)
    assert (second["requests"], second["output_tokens"]) == (1, 6)
    assert first["busy_share"] == pytest.approx(0.3 / 1.5)
    assert second["busy_share"] == pytest.approx((1.2 + 0.1) / 1.5)
    assert sums.per_replica(whole=False)[1]["busy_share"] == pytest.approx(0.8)


def test_domains_by_hand(by_hand):
    """Chat: requests 1 and 2 take 1.3 and 0.1 s for 6 and 1 tokens; one of them within 0.5 s.

    The plain round of code is left out of its acceptance.
    """
    names = ("code", "chat", "none")
    domains = Sums.of(by_hand, domains=names, limits={"e2el": 500.0}).numbers()["by_domain"]
    assert set(domains) == {"code", "chat"}
    fairness = domains["chat"].pop("fairness")
    expected = {
        "requests": 2,
        "acceptance_length": 1 + 3 / 3,
        "request_goodput": 1 / 1.5,
        "mean_e2el_ms": 700,
        "median_ttft_ms": 100,
        "mean_tpot_ms": 240,
        "p99_e2el_ms": 100 + 0.99 * 1200,
    }
    assert {name: domains["chat"][name] for name in expected} == pytest.approx(expected)
    assert fairness["output_tokens_per_s"] == pytest.approx(jain(np.array([6 / 1.3, 1 / 0.1])))
    assert fairness["draft_nodes_per_round"] == 1.0  # one of them has rounds
    code = domains["code"]
    assert (code["requests"], code["acceptance_length"]) == (1, 1 + 2 / 1)
    assert code["request_goodput"] == pytest.approx(1 / 1.5)
    code = Sums.of(by_hand, domains=names).numbers()["by_domain"]["code"]
    assert code["request_goodput"] is None


def test_jains_index():
    """1 for equal shares, 1 / n for one that has everything (Jain et al., 1984)."""
    shares = [(1.0, np.full(7, 0.3)), (0.25, np.array([0, 5, 0, 0])), (1.0, np.zeros(3))]
    for index, values in shares:
        sums = JainSums()
        sums.add(values)
        assert sums.index == pytest.approx(index)
    assert JainSums().index is None


def test_rejected_requests_are_left_out(by_hand):
    """A fourth request that is refused at 0.7 s: no latency changes, and no goodput is added."""
    limits = {"ttft": 150.0}
    before = Sums.of(by_hand, limits=limits).numbers()
    missing = dict.fromkeys(("admitted_s", "first_token_s", "finish_s"), np.nan)
    row = {"request": 3, "arrival_s": 0.7, "rejected": True, "domain": 1} | missing
    requests = {
        name: np.append(values, np.array(row.get(name, 0), values.dtype))
        for name, values in by_hand.requests.items()
    }
    facts = Facts(requests, by_hand.steps, by_hand.rounds, None)
    sums = Sums.of(facts, limits=limits)
    assert sums.numbers() == before | {"rejected": 1}
    assert (sums.requests, sums.completed) == (4, 3)
    times = request_times(requests)
    assert meets({"tpot": 1e9}, times).tolist() == [True, True, True, False]
    # 0.25 s and 250 ms are exact in binary: an objective is met at its limit
    assert meets({"ttft": 250.0}, {"ttft": np.array([0.25, 0.2501])}).tolist() == [True, False]


def test_a_pushed_out_requests_gap_ends_with_its_next_chunk(by_hand):
    """Request 1 misses step 3: its gap to the end of step 4 is 0.9 s, that of step 3 is gone."""
    keep = np.array([0, 1, 2, 4])
    rounds = {name: values[keep] for name, values in by_hand.rounds.items()}
    facts = Facts(by_hand.requests, by_hand.steps, rounds, None)
    gaps_s = chunk_gaps(facts, find_window(facts))
    assert gaps_s == pytest.approx([0.1, 0.2, 0.3, 0.9])


def test_statistics_of_nothing_are_null():
    assert set(statistics("tpot", np.zeros(0)).values()) == {None}
    assert statistics("itl", np.array([1.0, 2.0, 3.0, 10.0]))["p95_itl_ms"] == pytest.approx(8.95)


@pytest.mark.parametrize(
    ("finish_s", "clients", "ramp", "expected"),
    [
        ([3.0, 1.0, 2.0, 4.0, 6.0, 5.0], 2, 0, ("full batch", 2.0, 5.0)),
        # rejected requests do not complete
        ([3.0, np.nan, 1.0, 2.0, 4.0, np.nan, 6.0, 5.0], 2, 0, ("full batch", 2.0, 5.0)),
        ([3.0, 1.0, 2.0, 4.0, 6.0, 5.0], None, 2, ("without ramps", 2.0, 5.0)),
        # 2 K requests or fewer, an open loop, or everything in the middle ending at one instant
        ([1.0, 2.0, 3.0, 4.0], 2, 0, ("whole run", 0.0, 4.0)),
        ([1.0, 2.0, 3.0, 4.0], None, 2, ("whole run", 0.0, 4.0)),
        ([np.nan, 1.0, 2.0, 3.0, 4.0, np.nan], 2, 0, ("whole run", 0.0, 4.0)),
        ([1.0, 2.0, 3.0], None, 0, ("whole run", 0.0, 3.0)),
        ([0.0, 1.0, 1.0, 1.0, 1.0, 2.0], 2, 0, ("whole run", 0.0, 2.0)),
        ([np.nan, np.nan], 1, 0, ("whole run", 0.0, 0.0)),
    ],
)
def test_window_is_from_the_kth_to_the_kth_from_last_completion(finish_s, clients, ramp, expected):
    facts = Facts(columns(finish_s=finish_s), {}, {}, clients, ramp)
    window = find_window(facts)
    assert (window.kind, window.start_s, window.end_s) == expected
    first, last = expected[1:]
    opens = expected[0] == "whole run"  # the completion that opens another one is not inside
    inside = [first <= at <= last and (opens or at > first) for at in finish_s]
    assert window.requests(facts).tolist() == inside


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
    facts, full = Facts(requests, {}, {}, 2), Window(FULL_BATCH, 1.0, 2.0)
    assert full.admitted(facts).tolist() == inside.tolist()
    assert Window(WHOLE_RUN, 0.0, 2.0).admitted(facts).tolist() == [True] * 5 + [False]
    facts.requests["warmup"][2] = True
    assert full.admitted(facts).sum() == inside.sum() - 1
    assert full.prefilled(facts).tolist() == inside.tolist()


def test_acceptance_in_the_counts_of_vllm():
    # five drafts of 4 nodes accept 0, 1, 1, 3, 0: depth 1 three times, depths 2 and 3 once
    steps = StepSums(1)
    steps.sums["batch"], steps.verified, steps.accepting = 5, 20, np.array([2, 2, 0, 1, 0])
    expected = {
        "acceptance_rate_by_depth": [3 / 5, 1 / 3, 1],
        "spec_decode_num_drafts": 5,
        "spec_decode_accepted_tokens": 5,
        "spec_decode_acceptance_rate": 25.0,
        "spec_decode_acceptance_length": 2.0,
        "spec_decode_per_position_acceptance_rates": [0.6, 0.2, 0.2],
    }
    assert steps.acceptance().items() >= expected.items()
    steps = StepSums(1)  # of plain decoding
    steps.sums["batch"] = 3
    none = {"acceptance_rate_by_depth": [], "spec_decode_acceptance_rate": None}
    none |= {"acceptance_length": 1.0, "spec_decode_per_position_acceptance_rates": []}
    assert steps.acceptance().items() >= none.items()
