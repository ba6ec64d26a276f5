"""The largest load on servers whose capacity is known by hand, and which loads a search tries."""

from __future__ import annotations

from math import ceil, exp, factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cli.main import main
from simulator.studies.capacity.plan import read_limits, read_plan
from simulator.studies.capacity.search import Found, Scale, search
from simulator.studies.capacity.trial import failures, longer_run
from simulator.studies.runs import GROWTH, Result, trend
from tests.composing import composed_jobs
from tests.known_servers import read_json, rows, write_constant, write_steps, write_texts
from tests.studies_cases import open_loop
from traces.common.errors import InputError
from traces.common.intervals import over_seeds

EVEN = "burstiness=1e9"  # gaps of equal length
OTHER_CONTEXT = {"measured": 0, "interpolated": 0, "modelled": 0, "clamped": 1}  # than 512
ALONE = "server.max_num_seqs=1"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """Texts of 2, 3 or 21 outputs; steps of 10 ms, or of 10 + b ms for b requests."""
    folder = tmp_path_factory.mktemp("known")
    found = {
        "constant": write_constant(folder),
        "rising": write_steps(folder, {b: 10.0 + b for b in (*range(1, 17), 32, 64)}),
    }
    for length in (2, 3, 21):
        place = folder / str(length)
        place.mkdir()
        found[f"texts of {length}"] = write_texts(place, length)
    return found


def words(files, goodput: str, *more: str, texts=3, steps="constant", **changes) -> list[str]:
    node = {"seeds": "[0]", "min_seconds": 1, "min_requests": 200} | changes
    given = [f"capacity.{key}={value}" for key, value in node.items()]
    recorded = files[f"texts of {texts}"]
    place = [f"trace={recorded}", f"latency={files[steps]}", "hydra.run.dir=out"]
    load = ["policy=autoregressive", "max_concurrency=null", "task=capacity"]
    return [*load, *place, f"goodput={goodput}", *given, *more]


def clients(files, goodput: str, *more: str, **changes) -> list[str]:
    node = {"of": "max_concurrency", "steps": "rising", "texts": 21} | changes
    return words(files, goodput, "max_concurrency=4", *more, **node)


def answer(command: list[str]) -> dict:
    assert main(command) == 0
    return read_json("out/capacity.json")


def test_a_server_for_one_at_even_gaps(here, files, capsys):
    """A request takes 2 steps of 10 ms, so 50 per second are served; one more waits for ever."""
    found = answer(words(files, "e2el:30", EVEN, ALONE))
    # At a rate r the last of 200 waits 200 (20 ms - 1 / r): 10 ms at 50.13 per second.
    assert 50 / 1.02 <= found["capacity"] <= 50.13
    (seed,) = found["seeds"]
    assert seed["capacity"] == found["capacity"] < 50.13 < seed["not_met_at"] * 1.005
    assert seed["resolution"] <= 0.0201
    assert 19.9 < seed["at_capacity"]["levels_ms"]["e2el"] < 30
    assert seed["at_capacity"]["output_throughput"] == pytest.approx(3 * seed["capacity"], rel=0.02)
    printed = capsys.readouterr().out
    assert f"capacity: {found['capacity']:.4g} requests/s\n" in printed
    assert "1 requests at most ran at once (max_concurrency, server.max_num_seqs)" in printed


def test_a_growing_queue_is_refused_whatever_is_asked(here, files):
    """TPOT is 10 ms at any load, even where the queue grows by a second every second."""
    found = answer(words(files, "tpot:11", EVEN, ALONE))
    assert 50 / 1.02 <= found["capacity"] <= 50 * 1.0101  # growth of 1 % is the limit
    assert found["seeds"][0]["binding"] == "queue grows"
    unmet = [row for row in rows("out/capacity.csv") if row["met"] == "false"]
    assert unmet
    for row in unmet:
        assert row["failed"].startswith("queue grows")
        assert float(row["p99_tpot_ms"]) == pytest.approx(10)
        # A request that comes dt later stays longer by (20 ms - 1 / rate) / (1 / rate) of it.
        rise = float(row["request_rate"]) * 0.02 - 1
        assert float(row["growth_s_per_s"]) == pytest.approx(rise, rel=0.01)


def wait_below(multiple: float, load: float) -> float:
    """P(wait <= multiple x service) of a server for one with Poisson arrivals and equal services.

    A. K. Erlang's formula of 1909: (1 - r) sum over k of (r (k - t))^k / k! exp(r (t - k)).
    """
    return (1 - load) * sum(
        (load * (k - multiple)) ** k / factorial(k) * exp(load * (multiple - k))
        for k in range(int(multiple) + 1)
    )


def test_poisson_arrivals_against_erlang(here, files):
    """Services of one step, 10 ms, and 99 % within 60 ms: a wait of five services."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if wait_below(5, middle) > 0.99 else (low, middle)
    poisson = [ALONE, "request_rate=50"]
    length = {"min_requests": 3000, "tolerance": 0.05}
    found = answer(words(files, "e2el:60", *poisson, texts=2, **length))
    assert found["capacity"] == pytest.approx(low / 0.01, rel=0.08)


@pytest.mark.parametrize("objective", ["tpot:18.5", "itl:18.5", "e2el:370 itl:500"])
def test_the_largest_number_of_clients_exactly(here, files, objective):
    """With b clients a step takes 10 + b ms, and e2el 20 of them: 8 clients are within 18.5 ms."""
    found = answer(clients(files, objective, seeds="[0,1]"))
    assert (found["capacity"], found["capacity_low"], found["capacity_high"]) == (8, 8, 8)
    for seed in found["seeds"]:
        assert seed["not_met_at"] == 9
        assert seed["binding"] == objective.partition(":")[0]
        assert seed["at_capacity"]["output_throughput"] == pytest.approx(8 * 21 / 0.36, rel=0.01)
        assert seed["at_capacity"]["cost_shares"] == OTHER_CONTEXT
        assert seed["met_beyond"] == []


def test_the_share_that_meets_all_and_the_most_that_may_be_tried(here, files, capsys):
    """One rule or the other: with equal requests both give the same."""
    found = answer(clients(files, "tpot:18.5", attained=0.9))
    assert (found["capacity"], found["attained"], found["percentile"]) == (8, 0.9, None)
    assert found["seeds"][0]["at_capacity"]["attained"] == 1
    found = answer(clients(files, "tpot:18.5", most=5))
    assert (found["capacity"], found["at_least"]) == (5, True)
    assert "capacity: at least 5 clients" in capsys.readouterr().out


def test_nothing_meets_them(here, files, capsys):
    found = answer(clients(files, "tpot:10.5"))
    assert found["capacity"] is None
    assert found["seeds"][0]["capacity"] is None
    assert found["best_seen"]["load"] == 1  # 11 ms
    assert found["best_seen"]["levels_ms"]["tpot"] == pytest.approx(11)
    assert "capacity: none, no load tried meets the objectives" in capsys.readouterr().out


def test_a_run_that_is_too_short_does_not_pass(here, files, capsys):
    """Requests stay 20 to 30 ms, as they begin with a step: 99 gaps must last 0.2 to 0.3 s."""
    longest = {"min_requests": 100, "max_requests": 100, "min_seconds": 0.01}
    found = answer(words(files, "e2el:300", EVEN, "request_rate=100", **longest))
    assert 99 / 0.3 / 1.02 <= found["capacity"] <= 99 / 0.2
    assert found["seeds"][0]["binding"] == "run too short"
    assert "100 requests are too few to be steady" in capsys.readouterr().out


def test_short_runs_are_made_longer(here, files):
    """The same with room: every load is given the requests it needs."""
    room = {"min_requests": 100, "most": 800, "min_seconds": 0.01}
    answer(words(files, "e2el:300", EVEN, "request_rate=100", **room))
    found = {float(row["request_rate"]): row for row in rows("out/capacity.csv")}
    assert set(found) == {100, 200, 400, 800}
    for row in found.values():
        assert row["met"] == "true"
        assert float(row["seconds"]) >= 10 * float(row["mean_e2el_s"])
    assert int(found[100]["requests"]) == 100
    assert 160 <= int(found[800]["requests"]) < 300  # 0.2 s, or somewhat more


def test_another_objective_runs_again(here, files, capsys):
    """A trial belongs to what was asked of it; one of the same is found."""
    assert main(clients(files, "tpot:18.5")) == 0
    capsys.readouterr()
    assert main(clients(files, "tpot:16.5")) == 0
    assert "\n0 runs in" not in capsys.readouterr().out
    assert read_json("out/capacity.json")["capacity"] == 6


def test_a_run_at_the_answer_says_the_same(here, files):
    """The percentiles are those of `task=run` with the same load, requests and seed."""
    found = answer(clients(files, "tpot:18.5 e2el:5000"))["seeds"][0]["at_capacity"]
    load = [f"max_concurrency={found['load']}", f"num_prompts={found['requests']}"]
    place = [f"trace={files['texts of 21']}", f"latency={files['rising']}", "hydra.run.dir=run"]
    assert main(["policy=autoregressive", *load, *place]) == 0
    summary = read_json("run/summary.json")
    for name in ("tpot", "e2el"):
        assert found["levels_ms"][name] == summary[f"p99_{name}_ms"]
    for name in ("output_throughput", "request_throughput"):
        assert found[name] == summary[name]


@pytest.fixture(scope="module")
def config(files) -> dict:
    return composed_jobs(clients(files, "tpot:18.5"))[0]


def trial(share: float = 0.996, **changes) -> Result:
    """A run of 1000 requests that meets everything; `share` of them are within every limit."""
    judged = changes.get("judged", 1000 - changes.get("rejected", 0))
    node = {
        "clients": 8, "requests": 1024, "judged": judged, "seconds": 100.0, "stay_s": 1.0,
        "full": True, "growth": 0.0, "levels_ms": {"tpot": 18.0}, "missed": {"tpot": 0.004},
        "asked": [1000.0], "good": [share * (judged + changes.get("rejected", 0))],
        "prompts": [0], "tokens": [1.0], "inside_s": [1.0],
    }  # fmt: skip
    return open_loop(**(node | changes))


@pytest.mark.parametrize(
    ("attained", "change", "failed"),
    [
        (None, {}, ()),
        (None, {"levels_ms": {"tpot": None}}, ()),  # one-token requests alone
        (None, {"levels_ms": {"tpot": 18.6}}, ("tpot",)),
        (None, {"rejected": 10}, ()),  # one of a hundred may
        (None, {"rejected": 11}, ("requests rejected",)),
        (None, {"full": False}, ("run too short",)),
        (None, {"judged": 199}, ("run too short",)),
        (None, {"growing": True, "levels_ms": {"tpot": 19.0}}, ("queue grows", "tpot")),
        (0.99, {}, ()),
        (0.99, {"levels_ms": {"tpot": 900.0}}, ()),  # not looked at
        (0.99, {"share": 0.989, "missed": {"tpot": 0.011}}, ("tpot",)),
        (
            0.99,
            {"share": 0.97, "missed": {"tpot": 0.01}, "rejected": 20},
            ("requests rejected", "tpot"),
        ),
    ],
)
def test_what_fails(config, attained, change, failed):
    plan = read_plan(config | {"capacity": config["capacity"] | {"attained": attained}})
    assert failures(plan, trial(**change)) == failed


def test_how_much_longer_a_run_must_be(config):
    """Of a closed loop that should last 1 s (`min_seconds`), with 200 requests judged."""
    plan = read_plan(config)
    assert longer_run(plan, trial(), 1024) == 1024
    assert longer_run(plan, trial(seconds=0.5), 1024) == ceil(1024 * 1.1 * 2)
    assert longer_run(plan, trial(judged=100), 1024) == ceil(1024 * 1.1 * 2)
    assert longer_run(plan, trial(full=False), 1024) == ceil(1024 * 1.1 * 2)
    assert longer_run(plan, trial(seconds=1e-9), 1024) == 1024 * 16
    assert longer_run(plan, trial(seconds=0.5), 19000) == 20000  # the most
    assert longer_run(plan, trial(seconds=0.5, growing=True), 1024) == 1024
    # Of 1000 requests 10 may miss, give or take 3 times 3.15: 19 leave a doubt, 20 do not.
    assert longer_run(plan, trial(seconds=0.5, missed={"tpot": 0.019}), 1024) > 1024
    assert longer_run(plan, trial(seconds=0.5, missed={"tpot": 0.020}), 1024) == 1024


def test_objectives_are_read():
    assert read_limits("ttft:500 itl:50 tpot:20") == {"ttft": 500, "tpot": 20, "itl": 50}
    assert read_limits({"itl": 5}) == {"itl": 5}
    assert read_limits([{"e2el": 5}, "itl:7"]) == {"e2el": 5, "itl": 7}
    for bad in ("itl:5 itl:6", "itl:0", "itl:x", "", [], 5, "tpot"):
        with pytest.raises(InputError, match="goodput"):
            read_limits(bad)


RATES = Scale(0.001, 1e6, 0.02, whole=False)
CLIENTS = Scale(1, 256, 0.02, whole=True)


def sought(scale: Scale, met, start: float, near: bool = False) -> tuple[Found, list[float]]:
    """What a search finds on a server that meets loads by `met`, and what it tried."""
    asking, tried = search(scale, start, near), []
    load = next(asking)
    while True:
        tried.append(load)
        try:
            load = asking.send(met(load))
        except StopIteration as end:
            return end.value, tried


@given(st.floats(0.002, 9e5), st.floats(0.001, 1e6), st.booleans())
def test_a_rate_is_bracketed_to_the_tolerance(limit, start, near):
    one, tried = sought(RATES, lambda load: load <= limit, float(f"{start:.6g}"), near)
    assert one.low <= limit < one.high
    assert one.high <= one.low * 1.02 * (1 + 1e-5)  # six digits
    assert one.beyond == ()
    assert len(tried) == len(set(tried)) < 60


@given(st.integers(1, 255), st.integers(1, 256), st.booleans())
def test_a_number_of_clients_is_exact_up_to_fifty(limit, start, near):
    one, tried = sought(CLIENTS, lambda load: load <= limit, start, near)
    assert one.low <= limit < one.high
    assert one.high - one.low <= max(1, 0.02 * one.low)
    assert all(isinstance(load, int) for load in tried)


@pytest.mark.parametrize(
    ("met", "start", "expected", "found"),
    [
        # 6 is not met: 1.1, 1.3 and 1.6 times it are 7, 7, 9
        (lambda load: load <= 5, 1, [1, 2, 4, 8, 6, 5, 7, 9], (5, 6, False)),
        (lambda load: True, 16, [16, 32, 64, 128, 256], (256, None, True)),
        (lambda load: False, 16, [16, 8, 4, 2, 1], (None, 1, False)),
    ],
)
def test_the_bracket_doubles_and_then_halves(met, start, expected, found):
    one, tried = sought(CLIENTS, met, start)
    assert tried == expected
    assert (one.low, one.high, one.at_least) == found


def test_a_guess_nearby_costs_little():
    _, far = sought(RATES, lambda load: load <= 101, 1.0)
    _, close = sought(RATES, lambda load: load <= 101, 100.0, near=True)
    assert len(close) < len(far) / 2
    assert close[:2] == [100.0, 104.0]


def test_larger_loads_that_are_met_are_reported():
    """A server that misses 11 and 12 alone: a staircase whose next step is flat again."""
    one, tried = sought(CLIENTS, lambda load: load <= 10 or 13 <= load <= 15, 8)
    assert (one.low, one.high) == (10, 11)
    assert one.beyond == tuple(sorted(load for load in tried if 13 <= load <= 15))
    assert one.beyond


def test_growth_is_the_overload():
    """With a share d too many the k-th of requests a second apart stays d k seconds longer."""
    arrival_s, rng = np.arange(1000.0), np.random.default_rng(0)
    for share, growing in ((0.02, True), (0.5, True), (GROWTH / 2, False)):
        one = trend(arrival_s, 3.0 + share * arrival_s)
        assert (one.growth, one.growing) == (pytest.approx(share), growing)
    filling = np.minimum(1.0 + arrival_s / 20, 5.0)  # the first hundred meet an emptier server
    for stay_s in (np.full(1000, 3.0), 1000 * rng.exponential(size=1000), filling):
        assert not trend(arrival_s, stay_s).growing
    assert not trend(arrival_s[:8], arrival_s[:8]).growing  # too few to say
    # Rise 11.25 over noise of standard deviation 200: an error of 200 sqrt(2 / 450) = 13.
    noise = np.random.default_rng(1).normal(size=1000)
    assert trend(arrival_s, 0.025 * arrival_s + 200 * noise).certain is False
    assert trend(arrival_s, 0.025 * arrival_s + 2 * noise).growing


def test_the_interval_over_seeds_by_hand():
    """Student's t of 4 degrees at 95 % is 2.776; the standard deviation of 1..5 is sqrt(2.5)."""
    one = over_seeds([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776445 * (2.5 / 5) ** 0.5
    assert (one.value, one.low, one.high) == pytest.approx((3, 3 - half, 3 + half), rel=1e-6)
    assert over_seeds([2.0]).low is None
