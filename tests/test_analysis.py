"""Comparisons by hand: settings, loads, policies, pairing, intervals, refusals, text formats."""

from __future__ import annotations

import json
import subprocess
import sys
from math import inf, isnan

import pytest

from analysis.compare.metrics import estimate
from analysis.compare.settings import distinctions
from analysis.read.runs import read_runs
from tests.figure_cases import (
    A,
    B,
    changed,
    comparison,
    comparisons,
    drawn,
    printed,
    refused,
    rows_of,
    summary,
    write_run,
    write_runs,
)
from traces.common.errors import InputError

NO_GOAL = {"goodput": None, "request_goodput": None}
REJECTED = {"num_prompts": 40, "completed": 10, "rejected": 30}
FILE = {"file": "w.csv", "sha256": A, "format": "csv", "rows": 5, "played_rate": 0.5}


def _code(target: str, sha256: str) -> dict:
    return {"policy_code": {"target": target, "sha256": sha256}}


def _estimate(found, label: str, key: str):
    """Mean, half width and count of a policy that ran at one load."""
    (row,) = found.rows.index[found.rows["label"] == label]
    return found.estimates(key).loc[row]


# ---------------------------------------------------------------- runs and pairs of them


def test_runs_are_one_table_with_a_column_for_every_key(tmp_path):
    write_run(tmp_path, summary("cast", 9.0, request_rate=None, server={"replicas": 2}))
    write_run(tmp_path, summary("cast", 8.0, rejected=1, completed=7, mean_ttft_ms=None, server={}))
    found = read_runs([tmp_path])
    assert found["output_throughput"].tolist() == [9.0, 8.0]
    assert found["request_rate"].tolist() == [0.0, inf]
    assert (found["server.replicas"][0], isnan(found["server.replicas"][1])) == (2.0, True)
    assert (found["mean_ttft_ms"][0], isnan(found["mean_ttft_ms"][1])) == (12.0, True)
    assert found["rejected"].tolist() == [0, 1]
    assert found["cost_shares.time.measured"].tolist() == [1.0, 1.0]
    assert set(found["trace.recording"]) == {"small"}


def test_interval_by_hand():
    # 1, 2, 3: standard deviation 1, so 4.3027 / sqrt(3).
    one = estimate([1.0, 2.0, 3.0])
    assert (one["mean"], one["n"]) == (2.0, 3)
    assert one["half"] == pytest.approx(4.30265 / 3**0.5, rel=1e-5)
    assert (one["low"], one["high"]) == (2.0 - one["half"], 2.0 + one["half"])
    lone = estimate([5.0])
    assert isnan(lone["half"])
    assert (lone["low"], lone["high"]) == (5.0, 5.0)


def test_speedup_is_the_mean_of_paired_ratios(tmp_path):
    for policy, rates in (("autoregressive", (100.0, 200.0)), ("cast", (150.0, 500.0))):
        write_runs(tmp_path, *(summary(policy, rate, seed=at) for at, rate in enumerate(rates)))
    found = comparison(tmp_path)
    speedup = _estimate(found, "cast", "speedup")
    # Ratios 1.5 and 2.5: mean 2 (the ratio of the means would be 2.17), deviation sqrt(1/2).
    assert (speedup["mean"], speedup["n"]) == (2.0, 2)
    assert speedup["half"] == pytest.approx(12.7062 * 0.5, rel=1e-5)
    assert _estimate(found, "cast", "output_throughput")["mean"] == 325.0
    assert _estimate(found, "autoregressive", "speedup")["mean"] == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        changed("trace", content_hash="cd" * 16),
        changed("latency", profile="card_b"),
        changed("latency", packing="dense"),
        {"server": {"max_num_seqs": 8}},
        {"max_concurrency": 8},
        {"request_rate": 2.0},
        {"seed": 1},
        {"num_prompts": 4, "completed": 4},
    ],
)
def test_no_speedup_across_settings_loads_or_seeds(tmp_path, changes):
    write_runs(tmp_path, summary("autoregressive", 100.0), summary("cast", 150.0, **changes))
    found = comparisons(tmp_path)
    assert {label for one in found for label in one.labels} == {"autoregressive", "cast"}
    (own,) = [one for one in found if "cast" in one.labels]
    assert isnan(_estimate(own, "cast", "speedup")["mean"])


def test_the_same_run_counts_once_and_other_results_are_refused(tmp_path, capsys):
    """With objectives and without, it is the same run."""
    none = {**NO_GOAL, "config_hash": "0" * 64}
    write_runs(tmp_path, summary("cast", 10.0, **none), summary("cast", 10.0, request_goodput=2.0))
    write_run(tmp_path, summary("cast", 10.0, request_goodput=2.0))
    found = comparison(tmp_path)
    assert list(found.rows["seeds"]) == [(0,)]
    assert found.estimates("request_goodput")["mean"].tolist() == [2.0]
    write_run(tmp_path, summary("cast", 11.0, **none))
    assert "different results for policy cast, concurrency 4, seed 0" in refused(capsys, tmp_path)


# ---------------------------------------------------------------- settings

# Of each pair: what the second run differs in, and how its title says so.
APART = [
    (changed("latency", content_hash=A), changed("latency", content_hash=B),
     ("latency.content_hash=3fa9c1d20000", "latency.content_hash=777777777777")),
    ({}, changed("latency", content_hash=A),
     ("without latency.content_hash", "latency.content_hash=3fa9c1d20000")),
    (changed("latency", host={"round_s": 0}), changed("latency", host={"round_s": 0.01}),
     ("latency.host.round_s=0", "latency.host.round_s=0.01")),
    (changed("server", replicas=1), changed("server", replicas=2),
     ("server.replicas=1", "server.replicas=2")),
    (changed("trace", domains=["code"]), {}, ("trace.domains=code", "trace.domains=code,chat")),
    (changed("trace", content_hash="ef" * 32), {},
     ("trace.content_hash=abababababab", "trace.content_hash=efefefefefef")),
    ({"workload": FILE}, {"workload": FILE | {"sha256": B, "rows": 6}},
     ("workload.sha256=3fa9c1d20000", "workload.sha256=777777777777")),
    ({"workload": FILE | {"time_scale": 1.0}}, {"workload": FILE | {"time_scale": 2.0}},
     ("workload.time_scale=1.0", "workload.time_scale=2.0")),
    ({"goodput": {"tpot": 50.0}}, {"goodput": {"tpot": 100.0}},
     ("goodput.tpot=50.0", "goodput.tpot=100.0")),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "said"), APART)
def test_settings_are_kept_apart_and_told_apart(tmp_path, capsys, first, second, said):
    """Tables, rows of CSV, captions and names of files say what differs, and no ratio crosses."""
    folder = write_runs(
        tmp_path / "runs",
        summary("autoregressive", 100.0) | first,
        summary("cast", 150.0) | first,
        summary("cast", 300.0, seed=1) | second,
    )
    found = comparisons(folder)
    assert sorted(one.differs for one in found) == sorted(said)
    assert {one.title for one in found} == {f"small on card_a; {text}" for text in said}
    rows = rows_of(capsys, folder, "--no-figures", "--metric", "speedup")
    assert {row["setting"] for row in rows} == set(said)
    by_setting = {(row["setting"], row["policy"]): row["speedup"] for row in rows}
    assert sorted(by_setting.values()) == ["", "1.0", "1.5"]
    drawings = drawn(folder, "throughput")
    assert len({one.name for one in drawings}) == 2
    facts = {text for one in drawings for key, text in one.facts if key == "setting"}
    assert facts == set(said)


def test_names_of_recordings_and_profiles_say_what_follows_from_them(tmp_path):
    """A server's setting is said although the profiles differ as well."""
    card_b = changed("latency", profile="card_b", num_gpus=8, source="theirs", content_hash=B)
    folder = write_runs(
        tmp_path / "three",
        summary("cast", 1.0, **changed("latency", content_hash=A)),
        summary("cast", 2.0, **card_b),
        summary("cast", 3.0, **card_b, **changed("server", replicas=2)),
    )
    assert [one.title for one in comparisons(folder)] == [
        "small on card_a; server.replicas=1",
        "small on card_b; server.replicas=1",
        "small on card_b; server.replicas=2",
    ]
    other = changed("trace", recording="other", content_hash="cd" * 16)
    alone = write_runs(
        tmp_path / "names",
        summary("cast", 1.0),
        summary("cast", 2.0, **card_b),
        summary("cast", 3.0, **other),
        summary("treespark", 4.0, **changed("trace", unique_prompts=9)),  # follows the load
    )
    found = comparisons(alone)
    assert [one.title for one in found] == ["other on card_a", "small on card_a", "small on card_b"]
    assert found[1].labels == ["cast", "treespark"]
    both = [{"trace.recording": '"a"', "what_if": one} for one in ("true", "false")]
    assert distinctions(both) == ["what_if=true", "what_if=false"]
    assert distinctions(both[:1]) == [""]


def test_one_sweep_over_a_file_is_one_setting(tmp_path):
    """Rows, limits and rates follow from the number of requests; a time scale makes the load."""
    first = FILE | {"arrivals": "load", "limit": 24, "scaled_rate": 3.1, "time_scale": 1.0}
    other = first | {"limit": 96, "rows": 96, "played_rate": 17.0, "file": "moved/w.csv"}
    write_run(tmp_path, summary("cast", 10.0, workload=first, max_concurrency=4))
    write_run(tmp_path, summary("cast", 30.0, workload=other, max_concurrency=16))
    found = comparison(tmp_path)
    assert [load.max_concurrency for load, _ in found.blocks] == [4, 16]
    assert found.differs == ""
    write_run(tmp_path, summary("cast", 10.0, workload=first | {"max_gap_s": 2.0}))
    assert len(comparisons(tmp_path)) == 2


def test_live_runs_are_told_from_simulated_ones_by_their_profiles_name(tmp_path):
    priced = changed("latency", host={"round_s": 0.1}, cliffs=None)
    live = {"latency": {"profile": "live", "told": "card_a", "told_strict": False, "num_gpus": 1}}
    write_runs(tmp_path, summary("cast", 10.0, **priced), summary("cast", 11.0, **live))
    assert [one.differs for one in comparisons(tmp_path)] == ["", ""]


def test_runs_without_objectives_stay_beside_those_with_one_set(tmp_path):
    write_runs(
        tmp_path,
        summary("autoregressive", 10.0, **NO_GOAL),
        summary("cast", 30.0, **NO_GOAL),
        summary("cast", 30.0, seed=1, request_goodput=2.0),
    )
    found = comparison(tmp_path)
    assert found.objectives == {"tpot": 50.0}
    assert found.estimates("speedup")["mean"].tolist() == [1.0, 3.0]
    assert found.estimates("request_goodput")["mean"].tolist()[1] == 2.0
    write_run(tmp_path, summary("cast", 30.0, seed=2, goodput={"e2el": 1.0}))
    assert len(comparisons(tmp_path)) == 3  # which of two they were beside is not known


# ---------------------------------------------------------------- policies


def test_settings_and_sources_of_one_policy_are_not_averaged(tmp_path):
    fits = [{"policy_config": None, "policy_fit": {"length": n}} for n in (4, 8, 7, 3)]
    write_runs(
        tmp_path,
        *(summary("fixed_chain", 40.0 * at, **fits[at]) for at in (1, 0)),
        summary("fixed_chain", 4.0, **fits[0], seed=1),
        # A fit that follows the load is no setting: one label over all loads.
        summary("tuned_chain", 1.0, **fits[2], max_concurrency=1),
        summary("tuned_chain", 4.0, **fits[3]),
        summary("half_chain", 100.0, **_code("my.HalfChain", A)),
        summary("half_chain", 120.0, seed=1, **_code("my.HalfChain", B)),
        summary("cast", 1.0, **_code("my.HalfChain", A)),
        summary("cast", 3.0, seed=1, **_code("other.TwoThirds", B)),
        summary("treespark", 5.0, **_code("t.TreeSpark", A)),
        summary("treespark", 7.0, seed=1, **_code("t.TreeSpark", A)),
        # Classes of one name are said whole, and sources where classes do not say them.
        *(summary("eagle2", 1.0, **_code(*one)) for one in (("a.E", A), ("a.E", B), ("b.E", A))),
    )
    rows = comparison(tmp_path).blocks[1][1]
    assert dict(zip(rows["label"], rows["seeds"])) == {
        "fixed_chain(length=4)": (0, 1),
        "fixed_chain(length=8)": (0,),
        "tuned_chain": (0,),
        "half_chain(source=3fa9c1d2)": (0,),
        "half_chain(source=77777777)": (1,),
        "cast(class=HalfChain)": (0,),
        "cast(class=TwoThirds)": (1,),
        "treespark": (0, 1),
        "eagle2(class=a.E, source=3fa9c1d2)": (0,),
        "eagle2(class=a.E, source=77777777)": (0,),
        "eagle2(class=b.E, source=3fa9c1d2)": (0,),
    }
    assert _estimate(comparison(tmp_path), "fixed_chain(length=4)", "output_throughput")["n"] == 2


def test_ratios_can_be_over_any_policy(tmp_path, capsys):
    for policy, rates in (("cast", (100.0, 300.0)), ("treespark", (150.0, 300.0))):
        write_runs(tmp_path, *(summary(policy, rate, seed=at) for at, rate in enumerate(rates)))
    words = [tmp_path, "--no-figures", "--baseline", "cast", "--format", "markdown"]
    out = printed(capsys, *words, "--metric", "speedup")
    assert "| policy | seeds | ratio to cast | step time from |" in out
    # 1.5 and 1: mean 1.25, deviation 0.3536, so 12.706 x 0.25 around it.
    assert "| treespark | 2 | **1.250 ±3.177** | measured |" in out
    assert "| cast | 2 | 1.000 ±0.000 | measured |" in out
    assert "output throughput over cast of the same recording" in out
    error = refused(capsys, tmp_path, "--baseline", "bastion")
    assert "--baseline bastion is of no run; accepted: cast, treespark" in error


def test_speedups_without_a_baseline_are_blank_and_say_why(tmp_path, capsys):
    alone = write_runs(tmp_path / "alone", summary("cast", 150.0))
    out = printed(capsys, alone, "--no-figures")
    assert "no autoregressive run of this setting at concurrency 4: speedup left blank" in out
    line = next(line for line in out.splitlines() if line.lstrip().startswith("cast"))
    assert line.split()[:4] == ["cast", "1", "150.0", "–"]
    partly = [summary("cast", 150.0), summary("cast", 900.0, seed=1)]
    out = printed(
        capsys,
        write_runs(tmp_path / "partly", summary("autoregressive"), *partly),
        "--no-figures",
    )
    assert "1.500 (n=1)" in out
    assert "speedup of cast rests on 1 of 2 seeds" in out
    codes = [
        summary("autoregressive", 9.0, seed=at, **_code("a.P", s)) for at, s in ((0, A), (1, B))
    ]
    several = write_runs(tmp_path / "several", *codes, summary("cast", 18.0, seed=1))
    names = ("autoregressive(source=3fa9c1d2)", "autoregressive(source=77777777)")
    said = f"autoregressive ran as {', '.join(names)}: speedup left blank, see --baseline"
    assert said in printed(capsys, several, "--no-figures")
    rows = rows_of(capsys, several, "--no-figures", "--baseline", names[1])
    assert {row["policy"]: row["speedup"] for row in rows}["cast"] == "2.0"


# ---------------------------------------------------------------- loads


def test_ramps_are_loads_of_their_own(tmp_path, capsys):
    open_loop = {"request_rate": 2.0, "realised_request_rate": 2.0}
    write_runs(
        tmp_path,
        summary("autoregressive", 100.0, **open_loop, ramp=0),
        summary("cast", 150.0, **open_loop, ramp=0),
        summary("cast", 300.0, **open_loop, ramp=16),
    )
    found = comparison(tmp_path)
    plain, ramped = (load for load, _ in found.blocks)
    rest = "request rate 2/s, burstiness 1, at most 4 in flight"
    assert [plain.title, ramped.title] == [rest, f"{rest}, ramp 16"]
    assert found.estimates("speedup")["mean"].fillna(-1).tolist() == [1.0, 1.5, -1.0]
    assert [row["ramp"] for row in rows_of(capsys, tmp_path, "--no-figures")] == ["0", "0", "16"]
    names = {way.axis_name for way, _ in found.axes()}
    assert names == {"cap4_burstiness1", "cap4_burstiness1_ramp16"}


def test_the_arrivals_of_a_file_have_no_burstiness(tmp_path, capsys):
    """A file's own times give the rate; the same file under drawn gaps is another load."""
    write_run(tmp_path, summary("cast", 1.0, workload=FILE, request_rate=0.5))
    write_run(tmp_path, summary("cast", 2.0, workload=FILE, request_rate=3.0, burstiness=0.25))
    assert [load.title for load, _ in comparison(tmp_path).blocks] == [
        "request rate 0.5/s, the file's arrivals, at most 4 in flight",
        "request rate 3/s, burstiness 0.25, at most 4 in flight",
    ]
    rows = rows_of(capsys, tmp_path, "--no-figures")
    assert [row["burstiness"] for row in rows] == ["", "0.25"]


def test_arrivals_at_one_time_are_no_closed_loop(tmp_path, capsys):
    """A file whose requests all come at once has no rate: null, where a closed loop has inf."""
    folder = write_runs(tmp_path / "a", summary("autoregressive", 100.0))
    once = {"request_rate": None, "burstiness": 0.5}
    write_run(folder, summary("autoregressive", 50.0, **once))
    write_run(folder, summary("cast", 150.0, **once))
    found = comparison(folder)
    titles = ["arrivals all at one time, at most 4 in flight", "concurrency 4"]
    assert [load.title for load, _ in found.blocks] == titles
    assert [load.closed for load, _ in found.blocks] == [False, True]
    assert _estimate(found, "cast", "speedup")["mean"] == 3.0
    assert [way.closed for way, _ in found.axes()] == [True]
    rates = [row["request_rate"] for row in rows_of(capsys, folder, "--no-figures")]
    assert rates == ["", "", "inf"]
    with pytest.raises(InputError, match="all arrivals come at one time"):
        drawn(write_runs(tmp_path / "b", summary("cast", **once)), "throughput")


# ---------------------------------------------------------------- tables


def test_best_in_bold_and_what_it_rests_on(tmp_path, capsys):
    half = {"measured": 0.25, "interpolated": 0.25, "modelled": 0.5, "clamped": 0.0}
    what_if = {"what_if": True, "what_if_reason": "pair p, model m", "ttft_note": "queue only"}
    other = {"p99_tpot_ms": 31.0, "cost_shares": {"time": half}}
    write_run(tmp_path, summary("autoregressive", 100.0, **what_if))
    write_run(tmp_path, summary("cast", 150.0, **what_if, **other))
    words = [tmp_path, "--no-figures", "--format", "markdown", "--metric", "speedup,p99_tpot_ms"]
    out = printed(capsys, *words, "--metric", "mean_ttft_ms")
    for line in (
        "| policy | seeds | speedup | TPOT p99 (ms) | TTFT mean (ms) | step time from |",
        "| autoregressive | 1 | 1.000 | **30.00** | 12.00 | measured |",
        "| cast | 1 | **1.500** | 31.00 | 12.00 | modelled 50%, interp. 25% |",
        "- recording: small (abababababab)",
        "modelled 0% to 50% (most: cast at concurrency 4)",
        "- what-if: YES: pair p, model m",
        "- TTFT: queue only",
        "- seeds: 0; one run of each, so no intervals",
    ):
        assert line in out


def test_csv_has_means_intervals_counts_and_what_is_best(tmp_path, capsys):
    for seed, rate in enumerate((100.0, 300.0)):
        write_run(tmp_path, summary("cast", rate, seed=seed, p99_tpot_ms=40.0))
    (record,) = rows_of(capsys, tmp_path, "--no-figures")
    assert float(record["output_throughput"]) == 200.0
    assert float(record["output_throughput_ci95"]) == pytest.approx(12.7062 * 100.0, rel=1e-5)
    assert (record["output_throughput_n"], record["seeds"]) == ("2", "0 1")
    assert (record["speedup"], record["speedup_n"]) == ("", "0")
    assert record["best"] == ""  # of one policy none is better
    write_run(tmp_path, summary("treespark", 90.0))
    cast, treespark = rows_of(capsys, tmp_path, "--no-figures")
    assert (cast["best"], treespark["best"]) == ("output_throughput", "p99_tpot_ms")


def test_latex_says_the_same_with_the_best_in_bold(tmp_path, capsys):
    write_run(tmp_path, summary("autoregressive", 100.0, **changed("trace", domains=None)))
    for seed, rate in enumerate((150.0, 170.0)):
        data = summary("my_policy", rate, seed=seed, **changed("trace", domains=None))
        write_run(tmp_path, data)
    words = ["--no-figures", "--format", "latex", "--metric", "output_throughput,speedup"]
    lines = printed(capsys, tmp_path, *words).splitlines()
    # 160 in the mean, 12.706 x 14.142 / sqrt(2) around it; one seed has a baseline.
    ours = r"\textbf{160.0 $\pm$127.1} & \textbf{1.500 (n=1)}"
    assert rf"my\_policy & 2 & {ours} & measured \\" in lines
    assert {r"\caption{concurrency 4}", r"\label{tab:c4}", r"\toprule"} <= set(lines)
    assert "% recording: small (abababababab), all domains" in lines


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
def test_tables_say_how_many_requests_were_rejected(tmp_path, capsys, form):
    write_runs(
        tmp_path,
        summary("autoregressive", 100.0),
        summary("cast", 90.0, **REJECTED),
        summary("cast", 90.0, seed=1, num_prompts=40, completed=40),
    )
    out = " ".join(printed(capsys, tmp_path, "--no-figures", "--format", form).split())
    assert "cast: 30 of 80 requests were rejected; they are in no latency" in out
    assert "30 of 80 requests of 1 rows (most: 30 of 80, cast at concurrency 4)" in out
    rows = rows_of(capsys, tmp_path, "--no-figures")
    counts = [(row["requests_rejected"], row["requests_sent"]) for row in rows]
    assert counts == [("0", "8"), ("30", "80")]


def test_hashes_stand_beside_names_and_cells_are_no_markup(tmp_path, capsys):
    more = changed("latency", content_hash=A) | {"workload": FILE | {"sha256": B}}
    write_run(tmp_path, summary("a|b\n<img src=x>&lt;", 1.0, **more))
    words = [tmp_path, "--no-figures", "--metric", "output_throughput"]
    out = printed(capsys, *words, "--format", "markdown")
    assert "card_a (3fa9c1d20000), 2 GPUs" in out
    assert "- workload: w.csv (777777777777)" in out
    assert "| a\\|b &lt;img src=x>&amp;lt; | 1 | 1.0 | measured |" in out.splitlines()
    (row,) = rows_of(capsys, *words)
    assert row["latency_content_hash"] == A


def test_tables_load_no_plotting_and_nothing_of_the_simulator(tmp_path):
    folder = write_runs(tmp_path, summary("cast", 1.0))
    code = (
        "import sys; from analysis.__main__ import main; "
        f"assert main([{str(folder)!r}, '--no-figures']) == 0; "
        "loaded = {name.partition('.')[0] for name in sys.modules}; "
        "assert not loaded & {'matplotlib', 'seaborn', 'simulator', 'torch'}, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# ---------------------------------------------------------------- refusals

BAD = {
    "not JSON": "{",
    "expected format": {"format": "other", "version": 1},
    "version is 2": summary("cast", 1.0, version=2),
    "incomplete: 3 of 8": summary("cast", 1.0, completed=3),
    "trace.content_hash is missing": summary("cast", 1.0, trace={"recording": "r"}),
    "output_throughput is nan": summary("cast", float("nan")),
    "output_throughput is '9'": summary("cast", 1.0) | {"output_throughput": "9"},
    "request_rate is 0": summary("cast", 1.0, request_rate=0),
    "acceptance_length_by_budget": summary("cast", 1.0, acceptance_length_by_budget={"all": 2.0}),
    "cost_shares": summary("cast", 1.0, cost_shares={"time": {}}),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_files_are_refused_by_name(tmp_path, capsys, message):
    folder = write_runs(tmp_path / "runs", summary("cast", 1.0), summary("cast", 2.0, seed=1))
    bad, data = folder / "run1" / "summary.json", BAD[message]
    bad.write_text(data if isinstance(data, str) else json.dumps(data))
    error = refused(capsys, folder, "--out", tmp_path / "out")
    assert error.startswith(f"error: {bad}: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_folders_without_runs_and_unknown_metrics_are_refused(tmp_path, capsys):
    assert "not a folder" in refused(capsys, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no summary.json" in refused(capsys, tmp_path / "empty")
    folder = write_runs(tmp_path / "runs", summary("cast", 1.0))
    for name in ("latency", "policy"):  # a mapping, a text
        error = refused(capsys, folder, "--metric", name, "--out", tmp_path / "out")
        assert f"--metric {name}" in error
        assert "mean_ttft_ms" in error
    occupied = tmp_path / "occupied"
    occupied.write_text("keep")
    assert f"{occupied}: cannot write" in refused(capsys, folder, "--out", occupied)
    assert occupied.read_text() == "keep"


def test_batches_without_a_bound_are_all_named_with_the_command(tmp_path, capsys):
    rates = {name: {"output_throughput": 9.0} for name in ("plain", "o2", "o3", "o5", "o5_free")}
    loads = [summary("cast", 5.0, max_concurrency=load, workload=None) for load in (1, 4, 16, 256)]
    folder, bounds = write_runs(tmp_path / "runs", *loads), tmp_path / "bounds.json"
    data = {key: loads[0][key] for key in ("trace", "latency")}
    made = [{"batch": batch, "bounds": rates} for batch in (16, 1, 64)]
    head = {"format": "specdec-bounds", "version": 1}
    bounds.write_text(json.dumps(head | data | {"batches": made}))
    error = refused(capsys, "reach", folder, "--bounds", bounds)
    assert f"batches 4, 256 have no bound in {bounds}, which has 1, 16, 64" in error
    command = "python -m simulator task=bounds trace.recording=small latency=card_a"
    assert f"{command} 'bounds.batches=[1,4,16,64,256]'" in error
