"""Comparisons by hand: grouping, pairing, intervals, refusals, text formats and figures."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from math import inf, isnan
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.compare.comparison import Comparison, compare
from analysis.compare.metrics import choose_metrics, estimate
from analysis.figures.draw import draw, read_inputs
from analysis.look import KNOWN, looks
from analysis.read.runs import read_runs
from traces.common.errors import InputError

MEASURED = {"measured": 1.0, "interpolated": 0.0, "modelled": 0.0, "clamped": 0.0}
CHAIN = {"1": 1.5, "2": 1.75, "4": 2.0}
TREE = {"0": 1.0, "1": 1.5, "4": 2.25, "16": 3.0}


def _summary(policy: str, throughput: float, **changes) -> dict:
    data = {
        "format": "specdec-summary",
        "version": 1,
        "policy": policy,
        "policy_fit": {},
        "trace": {"recording": "small", "content_hash": "ab" * 16, "unique_prompts": 5},
        "latency": {"profile": "card_a", "kind": "measured"},
        "what_if": False,
        "what_if_reason": None,
        "max_concurrency": 4,
        "request_rate": "inf",
        "burstiness": 1.0,
        "seed": 0,
        "num_prompts": 8,
        "completed": 8,
        "output_throughput": throughput,
        "mean_ttft_ms": 12.0,
        "median_tpot_ms": 20.0,
        "p99_tpot_ms": 30.0,
        "ttft_note": "queue only",
        "acceptance_length": None,
        "draft_nodes_per_request": 0.0,
        "share_verified_accepted": None,
        "cost_shares": {"steps": MEASURED, "time": MEASURED},
        "acceptance_length_by_budget": None,
    }
    return data | changes


@pytest.fixture
def runs(tmp_path: Path):
    """A function that writes each summary into a run folder of its own below one folder."""
    folder = tmp_path / "runs"

    def write(*summaries: dict) -> Path:
        for data in summaries:
            run = folder / str(len(list(folder.glob("*"))))
            run.mkdir(parents=True)
            (run / "summary.json").write_text(json.dumps(data))
        return folder

    return write


def _compare(folder: Path) -> list[Comparison]:
    return compare(read_runs([folder]))


def _estimate(comparison: Comparison, label: str, key: str):
    """Mean, half width and count of a policy that ran at one load."""
    (row,) = comparison.rows.index[comparison.rows["label"] == label]
    return comparison.estimates(key).loc[row]


def _fails(capsys, *argv: object) -> str:
    """The one error line of a refused command."""
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_interval_by_hand():
    # 1, 2, 3: standard deviation 1, so 4.3027 / sqrt(3).
    one = estimate([1.0, 2.0, 3.0])
    assert (one["mean"], one["n"]) == (2.0, 3)
    assert one["half"] == pytest.approx(4.30265 / 3**0.5, rel=1e-5)
    assert (one["low"], one["high"]) == (2.0 - one["half"], 2.0 + one["half"])
    lone = estimate([5.0])
    assert isnan(lone["half"])
    assert (lone["low"], lone["high"]) == (5.0, 5.0)


def test_speedup_is_the_mean_of_paired_ratios(runs):
    folder = runs(
        _summary("autoregressive", 100.0, seed=0),
        _summary("autoregressive", 200.0, seed=1),
        _summary("cast", 150.0, seed=0),
        _summary("cast", 500.0, seed=1),
    )
    (found,) = _compare(folder)
    speedup = _estimate(found, "cast", "speedup")
    # Ratios 1.5 and 2.5: mean 2 (the ratio of the means would be 2.17), deviation sqrt(1/2).
    assert (speedup["mean"], speedup["n"]) == (2.0, 2)
    assert speedup["half"] == pytest.approx(12.7062 * 0.5, rel=1e-5)
    assert _estimate(found, "cast", "output_throughput")["mean"] == 325.0
    assert _estimate(found, "autoregressive", "speedup")["mean"] == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"trace": {"recording": "small", "content_hash": "cd" * 16}},
        {"latency": {"profile": "card_b", "kind": "measured"}},
        {"latency": {"profile": "card_a", "kind": "measured", "packing": "dense"}},
        {"server": {"max_num_seqs": 8}},
        {"max_concurrency": 8},
        {"request_rate": 2.0},
        {"seed": 1},
        {"num_prompts": 4, "completed": 4},
    ],
)
def test_no_speedup_across_settings_loads_or_seeds(runs, changes):
    folder = runs(_summary("autoregressive", 100.0), _summary("cast", 150.0, **changes))
    found = _compare(folder)
    assert {label for one in found for label in one.labels} == {"autoregressive", "cast"}
    (own,) = [one for one in found if "cast" in one.labels]
    assert isnan(_estimate(own, "cast", "speedup")["mean"])


def test_mixed_recordings_and_profiles_get_separate_comparisons(runs):
    other = {"recording": "other", "content_hash": "cd" * 16}
    card_b = {"profile": "card_b"}
    folder = runs(
        _summary("cast", 150.0),
        _summary("cast", 160.0, trace=other),
        _summary("cast", 170.0, latency=card_b),
        _summary("treespark", 140.0, trace={"unique_prompts": 9} | _summary("", 0)["trace"]),
    )
    found = _compare(folder)
    names = [(one.trace["recording"], one.latency["profile"]) for one in found]
    assert names == [("other", "card_a"), ("small", "card_a"), ("small", "card_b")]
    assert found[1].labels == ["cast", "treespark"]  # prompts used follow the load


def test_partial_baseline_is_said(runs, capsys):
    folder = runs(
        _summary("autoregressive", 100.0),
        _summary("cast", 150.0),
        _summary("cast", 900.0, seed=1),
    )
    assert main([str(folder), "--no-figures"]) == 0
    out = capsys.readouterr().out
    assert "1.500 (n=1)" in out
    assert "speedup of cast rests on 1 of 2 seeds" in out


def test_equal_duplicates_count_once_and_different_ones_are_refused(runs, capsys):
    folder = runs(_summary("cast", 150.0), _summary("cast", 150.0))
    assert list(_compare(folder)[0].rows["seeds"]) == [(0,)]
    runs(_summary("cast", 151.0))
    assert "different results for policy cast, concurrency 4, seed 0" in _fails(capsys, folder)


def test_settings_of_one_policy_are_not_averaged(runs):
    folder = runs(
        *(_summary("fixed_chain", 10.0 * n, policy_fit={"length": n}) for n in (4, 8)),
        _summary("fixed_chain", 44.0, policy_fit={"length": 4}, seed=1),
        # A fit that follows the load is no setting: one label over all loads.
        _summary("tuned_chain", 1.0, policy_fit={"length": 7}, max_concurrency=1),
        _summary("tuned_chain", 4.0, policy_fit={"length": 3}),
    )
    (found,) = _compare(folder)
    assert found.labels == ["fixed_chain(length=4)", "fixed_chain(length=8)", "tuned_chain"]
    assert _estimate(found, "fixed_chain(length=4)", "output_throughput")["mean"] == 42.0
    assert list(found.rows.loc[found.rows["label"] == "fixed_chain(length=8)", "seeds"]) == [(0,)]


BAD = {
    "not JSON": "{",
    "expected format": json.dumps({"format": "other", "version": 1}),
    "version is 2": json.dumps(_summary("cast", 1.0, version=2)),
    "incomplete: 3 of 8": json.dumps(_summary("cast", 1.0, completed=3)),
    "trace.content_hash is missing": json.dumps(_summary("cast", 1.0, trace={"recording": "r"})),
    "output_throughput is nan": json.dumps(_summary("cast", float("nan"))),
    "output_throughput is '9'": json.dumps(_summary("cast", "9")),
    "request_rate is 0": json.dumps(_summary("cast", 1.0, request_rate=0)),
    "acceptance_length_by_budget": json.dumps(
        _summary("cast", 1.0, acceptance_length_by_budget={"all": 2.0})
    ),
    "cost_shares": json.dumps(_summary("cast", 1.0, cost_shares={"time": {}})),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_files_are_refused_by_name(runs, tmp_path, capsys, message):
    folder = runs(_summary("cast", 1.0), _summary("cast", 2.0, seed=1))
    bad = folder / "1" / "summary.json"
    bad.write_text(BAD[message])
    error = _fails(capsys, folder, "--out", tmp_path / "out")
    assert error.startswith(f"error: {bad}: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_folders_without_runs_and_unknown_metrics_are_refused(runs, tmp_path, capsys):
    assert "not a folder" in _fails(capsys, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no summary.json" in _fails(capsys, tmp_path / "empty")
    folder = runs(_summary("cast", 1.0))
    error = _fails(capsys, folder, "--metric", "latency", "--out", tmp_path / "out")
    assert "--metric latency" in error
    assert "mean_ttft_ms" in error
    occupied = tmp_path / "occupied"
    occupied.write_text("keep")
    assert f"{occupied}: cannot write" in _fails(capsys, folder, "--out", occupied)
    assert occupied.read_text() == "keep"


def test_best_in_bold_and_what_it_rests_on(runs, capsys):
    half = {"measured": 0.25, "interpolated": 0.25, "modelled": 0.5, "clamped": 0.0}
    folder = runs(
        _summary("autoregressive", 100.0, what_if=True, what_if_reason="pair p, model m"),
        _summary("cast", 150.0, what_if=True, what_if_reason="pair p, model m", p99_tpot_ms=31.0)
        | {"cost_shares": {"time": half}},
    )
    argv = [str(folder), "--no-figures", "--format", "markdown"]
    assert main([*argv, "--metric", "speedup,p99_tpot_ms", "--metric", "mean_ttft_ms"]) == 0
    out = capsys.readouterr().out
    assert "| policy | seeds | speedup | TPOT p99 (ms) | TTFT mean (ms) | step time from |" in out
    assert "| autoregressive | 1 | 1.000 | **30.00** | 12.00 | measured |" in out
    assert "| cast | 1 | **1.500** | 31.00 | 12.00 | modelled 50%, interp. 25% |" in out
    assert "- recording: small (abababababab)" in out
    assert "modelled 0% to 50% (most: cast at concurrency 4)" in out
    assert "- what-if: YES: pair p, model m" in out
    assert "- TTFT: queue only" in out
    assert "- seeds: 0; one run of each, so no intervals" in out


def test_table_leaves_speedup_blank_and_says_why(runs, capsys):
    assert main([str(runs(_summary("cast", 150.0))), "--no-figures"]) == 0
    out = capsys.readouterr().out
    assert "no autoregressive run of this setting at concurrency 4: speedup left blank" in out
    line = next(line for line in out.splitlines() if line.lstrip().startswith("cast"))
    assert line.split()[:4] == ["cast", "1", "150.0", "–"]


def test_csv_has_means_intervals_and_counts(runs, capsys):
    folder = runs(_summary("cast", 100.0), _summary("cast", 300.0, seed=1))
    assert main([str(folder), "--no-figures", "--format", "csv"]) == 0
    (record,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(record["output_throughput"]) == 200.0
    assert float(record["output_throughput_ci95"]) == pytest.approx(12.7062 * 100.0, rel=1e-5)
    assert (record["output_throughput_n"], record["seeds"]) == ("2", "0 1")
    assert (record["speedup"], record["speedup_n"]) == ("", "0")
    assert record["best"] == ""  # of one policy none is better


def test_csv_names_the_columns_in_which_a_row_is_best(runs, capsys):
    folder = runs(_summary("cast", 100.0, p99_tpot_ms=40.0), _summary("treespark", 90.0))
    words = ["--no-figures", "--format", "csv"]
    assert main([str(folder), *words]) == 0
    cast, treespark = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (cast["best"], treespark["best"]) == ("output_throughput", "p99_tpot_ms")


def test_ratios_can_be_over_any_policy(runs, capsys):
    folder = runs(
        _summary("cast", 100.0),
        _summary("cast", 300.0, seed=1),
        _summary("treespark", 150.0),
        _summary("treespark", 300.0, seed=1),
    )
    words = [str(folder), "--no-figures", "--baseline", "cast"]
    assert main([*words, "--format", "markdown", "--metric", "speedup"]) == 0
    out = capsys.readouterr().out
    assert "| policy | seeds | ratio to cast | step time from |" in out
    # 1.5 and 1: mean 1.25, deviation 0.3536, so 12.706 x 0.25 around it.
    assert "| treespark | 2 | **1.250 ±3.177** | measured |" in out
    assert "| cast | 2 | 1.000 ±0.000 | measured |" in out
    assert "output throughput over cast of the same recording" in out
    error = _fails(capsys, folder, "--baseline", "bastion")
    assert "--baseline bastion is of no run; accepted: cast, treespark" in error


def test_workloads_are_not_mixed(runs):
    texts = ("recorded texts", {"path": "trace.csv"})
    folder = runs(*(_summary("cast", 10.0 + at, workload=w) for at, w in enumerate(texts)))
    assert len(_compare(folder)) == 2


def test_arrivals_at_one_time_are_no_closed_loop(runs, tmp_path, capsys):
    """A file whose requests all come at once has no rate: null, where a closed loop has inf."""
    folder = runs(
        _summary("autoregressive", 100.0),
        *(_summary(name, rate, request_rate=None, burstiness=0.5)
          for name, rate in (("autoregressive", 50.0), ("cast", 150.0))),
    )  # fmt: skip
    (comparison,) = _compare(folder)
    titles = ["arrivals all at one time, at most 4 in flight", "concurrency 4"]
    assert [load.title for load, _ in comparison.blocks] == titles
    assert [load.closed for load, _ in comparison.blocks] == [False, True]
    assert _estimate(comparison, "cast", "speedup")["mean"] == 3.0
    assert [way.closed for way, _ in comparison.axes()] == [True]
    assert main([str(folder), "--no-figures", "--format", "csv"]) == 0
    rates = [row["request_rate"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert rates == ["", "", "inf"]
    alone = tmp_path / "alone"
    (alone / "a").mkdir(parents=True)
    (alone / "a" / "summary.json").write_text(json.dumps(_summary("cast", 1.0, request_rate=None)))
    words = ["figures", alone, "--only", "throughput", "--out", tmp_path / "out"]
    assert "all arrivals come at one time" in _fails(capsys, *words)


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("mean_tpot_ms", "TPOT mean (ms)"),
        ("median_ttft_ms", "TTFT p50 (ms)"),
        ("p99.9_itl_ms", "ITL p99.9 (ms)"),
        ("prefill_ms", "prefill (ms)"),
    ],
)
def test_titles_say_which_statistic_a_latency_is(runs, key, title):
    summaries = read_runs([runs(_summary("cast", 1.0, **{key: 3.0}))])
    assert [one.title for one in choose_metrics([key], summaries)] == [title]


def test_latex_says_the_same_with_the_best_in_bold(runs, capsys):
    folder = runs(
        _summary("autoregressive", 100.0),
        _summary("my_policy", 150.0),
        _summary("my_policy", 170.0, seed=1),
    )
    words = ["--no-figures", "--format", "latex", "--metric", "output_throughput,speedup"]
    assert main([str(folder), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    # 160 in the mean, 12.706 x 14.142 / sqrt(2) around it; one seed has a baseline.
    ours = r"\textbf{160.0 $\pm$127.1} & \textbf{1.500 (n=1)}"
    assert rf"my\_policy & 2 & {ours} & measured \\" in lines
    assert {r"\caption{concurrency 4}", r"\label{tab:c4}", r"\toprule"} <= set(lines)
    assert "% recording: small (abababababab), all domains" in lines


def test_batches_without_a_bound_are_all_named_with_the_command(runs, tmp_path, capsys):
    rates = {name: {"output_throughput": 9.0} for name in ("plain", "o2", "o3", "o5", "o5_free")}
    loads = (1, 4, 16, 256)
    folder = runs(*(_summary("cast", 5.0, max_concurrency=load) for load in loads))
    bounds = tmp_path / "bounds.json"
    data = {key: _summary("cast", 1.0)[key] for key in ("trace", "latency")}
    made = [{"batch": batch, "bounds": rates} for batch in (16, 1, 64)]
    head = {"format": "specdec-bounds", "version": 1}
    bounds.write_text(json.dumps(head | data | {"batches": made}))
    error = _fails(capsys, "reach", folder, "--bounds", bounds)
    assert f"batches 4, 256 have no bound in {bounds}, which has 1, 16, 64" in error
    command = "python -m simulator task=bounds trace.recording=small latency=card_a"
    assert f"{command} 'bounds.batches=[1,4,16,64,256]'" in error


def test_metrics_can_be_any_number_of_the_summaries(runs):
    summaries = read_runs([runs(_summary("cast", 1.0))])
    assert [one.key for one in choose_metrics(["mean_ttft_ms"], summaries)] == ["mean_ttft_ms"]
    with pytest.raises(InputError, match="--metric policy"):
        choose_metrics(["policy"], summaries)


def test_looks_are_fixed_for_known_policies_and_distinct_for_all():
    names = [*KNOWN, "one", "two", "three", "cast(nodes=8)"]
    found = looks(names)
    assert len(set(found.values())) == len(names)
    assert all(found[name] == KNOWN[name] for name in KNOWN if name != "cast")
    assert found["cast"].colour == found["cast(nodes=8)"].colour == KNOWN["cast"].colour
    assert looks(["one"])["one"] == looks(["one", "cast"])["one"]


def _sweep(runs, seeds: int = 2) -> Path:
    curves = {"autoregressive": None, "fixed_chain": CHAIN, "tuned_chain": CHAIN, "cast": TREE}
    return runs(
        *(
            _summary(policy, 100.0 * (1 + index) * load + 10 * seed)
            | {"max_concurrency": load, "seed": seed, "acceptance_length_by_budget": curve}
            for index, (policy, curve) in enumerate(curves.items())
            for load in (1, 4, 12)
            for seed in range(seeds)
        )
    )


def _named(axes) -> list:
    return [line for line in axes.get_lines() if not line.get_label().startswith("_")]


def _drawn(folder: Path, name: str) -> list:
    return draw(read_inputs([folder]), [name], strict=True)


@pytest.mark.parametrize(("seeds", "bands"), [(1, 0), (2, 4)])
def test_throughput_figure(runs, seeds, bands):
    (drawn,) = _drawn(_sweep(runs, seeds), "throughput")
    throughput, speedup = drawn.figure.axes
    labels = ["autoregressive", "fixed_chain", "tuned_chain", "cast"]
    assert [line.get_label() for line in _named(throughput)] == labels
    assert [line.get_label() for line in _named(speedup)] == labels[1:]
    assert len(throughput.collections) == bands
    assert (speedup.get_xscale(), speedup.get_xticks().tolist()) == ("log", [1, 4, 12])
    chain = next(line for line in _named(throughput) if line.get_label() == "fixed_chain")
    assert chain.get_ydata().tolist() == [200 * x + 5 * (seeds - 1) for x in (1, 4, 12)]
    (dotted,) = [line for line in speedup.get_lines() if line.get_label() == "_baseline"]
    assert set(dotted.get_ydata()) == {1.0}


def test_throughput_figure_without_baseline_has_one_panel_and_open_loops_their_own(runs):
    folder = runs(
        _summary("cast", 9.0),
        *(_summary("cast", 9.0 * rate, request_rate=rate) for rate in (1.0, 2.0)),
    )
    by_name = {one.name.partition("_vs_")[2]: one for one in _drawn(folder, "throughput")}
    rates = by_name["request_rate.cap4_burstiness1"]
    (axes,) = rates.figure.axes
    assert _named(axes)[0].get_xdata().tolist() == [1.0, 2.0]
    assert _named(by_name["concurrency"].figure.axes[0])[0].get_xdata().tolist() == [4]
    assert "No speedup" in " ".join(rates.remarks)


def test_modelled_points_are_hollow_and_what_if_is_written_in_the_figure(runs):
    modelled = {"time": MEASURED | {"measured": 0.9, "modelled": 0.1}}
    folder = runs(
        _summary("cast", 9.0, what_if=True),
        _summary("cast", 9.0, what_if=True, max_concurrency=8, cost_shares=modelled),
    )
    figure = _drawn(folder, "throughput")[0].figure
    hollow = [line for line in figure.axes[0].get_lines() if line.get_label() == "_hollow"]
    assert [list(line.get_xdata()) for line in hollow] == [[8]]
    assert "what-if" in figure.get_supxlabel()
    assert "modelled" in figure.get_supxlabel()
    (entry,) = figure.legends[0].get_lines()
    assert entry.get_markerfacecolor() == KNOWN["cast"].colour  # one of its points is filled
    runs(*(_summary("treespark", 9.0, what_if=True, max_concurrency=load, cost_shares=modelled)
           for load in (4, 8)))  # fmt: skip
    cast, treespark = _drawn(folder, "throughput")[0].figure.legends[0].get_lines()
    faces = (cast.get_markerfacecolor(), treespark.get_markerfacecolor())
    assert faces == (KNOWN["cast"].colour, "white")


def test_acceptance_figure_draws_one_line_per_order(runs):
    (drawn,) = _drawn(_sweep(runs), "acceptance")
    (axes,) = drawn.figure.axes
    lines = {line.get_label(): line for line in _named(axes)}
    assert list(lines) == ["fixed_chain, tuned_chain", "cast"]
    assert list(lines["cast"].get_xdata()) == [1, 4, 16]  # log2 axis: no budget 0
    assert list(lines["cast"].get_ydata()) == [1.5, 2.25, 3.0]


def test_figures_are_written_whole_and_equal_each_time(runs, tmp_path):
    folder = _sweep(runs, seeds=1)
    for out in ("a", "b"):
        assert main([str(folder), "--out", str(tmp_path / out)]) == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    names = ("throughput_vs_concurrency", "acceptance_length_vs_budget")
    kinds = ("png", "pdf", "svg", "txt")
    assert set(written) == {f"{name}.{kind}" for name in names for kind in kinds}
    for name in names:
        assert written[f"{name}.png"].startswith(b"\x89PNG")
        assert written[f"{name}.pdf"].startswith(b"%PDF")
        caption = written[f"{name}.txt"].decode()
        for fact in ("recording: small", "latency: card_a", "what-if: no", "seeds: 0", "modelled"):
            assert fact in caption
        assert f"command: python -m analysis {folder} --out" in caption
    for name in written:
        if not name.endswith(".txt"):
            assert (tmp_path / "b" / name).read_bytes() == written[name]


def test_mixed_settings_get_figures_of_their_own(runs, tmp_path):
    folder = runs(_summary("cast", 1.0), _summary("cast", 2.0, latency={"profile": "dir/b.csv"}))
    assert main([str(folder), "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").glob("*.png")}
    expected = ("small.b", "small.card_a")
    assert names == {f"throughput_vs_concurrency.{setting}.png" for setting in expected}


def test_tables_load_no_plotting_and_nothing_of_the_simulator(runs):
    folder = runs(_summary("cast", 1.0))
    code = (
        "import sys; from analysis.__main__ import main; "
        f"assert main([{str(folder)!r}, '--no-figures']) == 0; "
        "loaded = {name.partition('.')[0] for name in sys.modules}; "
        "assert not loaded & {'matplotlib', 'seaborn', 'simulator', 'torch'}, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_runs_are_one_table_with_a_column_for_every_key(runs):
    folder = runs(
        _summary("cast", 9.0, request_rate=None, server={"replicas": 2}),
        _summary("cast", 8.0, rejected=1, completed=7, mean_ttft_ms=None),
    )
    found = read_runs([folder])
    assert found["output_throughput"].tolist() == [9.0, 8.0]
    assert found["request_rate"].tolist() == [0.0, inf]
    assert (found["server.replicas"][0], isnan(found["server.replicas"][1])) == (2.0, True)
    assert (found["mean_ttft_ms"][0], isnan(found["mean_ttft_ms"][1])) == (12.0, True)
    assert found["rejected"].tolist() == [0, 1]
    assert found["cost_shares.time.measured"].tolist() == [1.0, 1.0]
    assert set(found["trace.recording"]) == {"small"}
