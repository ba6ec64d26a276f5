"""Figures as drawings and as files: looks, room for labels, what is plotted, captions, refusals."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

import analysis
import traces
from analysis.figures.draw import KINDS, chosen, draw, read_inputs
from analysis.figures.drawing import short
from analysis.figures.load import attained
from analysis.look import KNOWN, look_of, looks
from analysis.read.runs import read_runs
from tests.figure_cases import (
    MEASURED,
    A,
    changed,
    drawn,
    named,
    printed,
    refused,
    steps,
    summary,
    sweep,
    write_run,
    write_table,
)
from traces.common.errors import InputError
from traces.profiles.profile import PROFILE_FOLDER

CONF = Path(analysis.__file__).parents[1] / "conf" / "policy"
DATA = Path(traces.__file__).parent / "data"
SEVEN = ("autoregressive", "fixed_chain", "tuned_chain", "fixed_tree", "cast", "treespark",
         "priced_survival")  # fmt: skip
USERS = [f"a_policy_of_a_user_{number}" for number in range(200)]
REJECTED = {"num_prompts": 40, "completed": 10, "rejected": 30}


# ---------------------------------------------------------------- looks


def test_every_shipped_policy_has_a_look_that_no_other_has_whatever_else_is_drawn():
    assert {path.stem for path in CONF.glob("*.yaml")} <= set(KNOWN)
    taken = {(look.colour, look.marker) for look in KNOWN.values()}
    assert len(taken) == len(KNOWN)
    together = looks([*KNOWN, *USERS[:8]])
    assert len(set(together.values())) == len(together)
    for name, look in together.items():
        own = look_of(name)
        assert looks([name])[name] == own
        assert (own.colour, own.marker) == (look.colour, look.marker)
    assert not taken & {(look_of(name).colour, look_of(name).marker) for name in USERS}
    by_look: dict[tuple, list[str]] = {}
    for name in USERS:
        by_look.setdefault((look_of(name).colour, look_of(name).marker), []).append(name)
    alike = next(names for names in by_look.values() if len(names) > 1)  # 200 names, fewer looks
    first, second = (looks(alike[:2])[name] for name in alike[:2])
    assert (first.colour, first.marker) == (second.colour, second.marker)
    assert first.dash != second.dash


def test_variants_share_their_colour_in_the_order_of_their_numbers():
    found = looks(["cast(width=127)", "cast(width=3)", "cast(width=15)"])
    assert list(found) == ["cast(width=3)", "cast(width=15)", "cast(width=127)"]
    assert {look.colour for look in found.values()} == {KNOWN["cast"].colour}
    assert len({(look.marker, look.dash) for look in found.values()}) == 3


# ---------------------------------------------------------------- room


@cache
def _drawn(folder: Path):
    return draw(read_inputs([folder]), list(KINDS), strict=False, say=lambda _: None)


@pytest.fixture(scope="module")
def seven(tmp_path_factory) -> Path:
    return sweep(tmp_path_factory.mktemp("seven") / "runs", SEVEN, (1, 16, 64, 256), seeds=3)


@pytest.fixture(scope="module")
def forty(tmp_path_factory) -> Path:
    """All shipped policies and some with long names, as in a sweep of hundreds of runs."""
    longest = [f"{name}_with_quite_a_long_name" for name in USERS[:4]]
    policies = [*sorted(KNOWN), *USERS[:10], *longest]
    return sweep(tmp_path_factory.mktemp("forty") / "runs", policies, (1, 256))


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one") / "runs"
    write_run(folder, summary("a$b_{c$", what_if=True), steps([4] * 30, [28] * 30))
    return folder


def _clipped(figure) -> list[str]:
    """What sticks out of the figure, and legends that stand over data."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    tight = figure.get_tightbbox(renderer)  # inches
    page, room = figure.get_size_inches(), 1 / figure.dpi
    inside = (tight.min >= -room).all() and (tight.max <= page + room).all()
    boxes = [legend.get_window_extent(renderer) for legend in figure.legends]
    axes = [one.get_window_extent(renderer) for one in figure.axes if one.get_visible()]
    over = any(box.overlaps(one) for box in boxes for one in axes)
    return ["clipped"] * (not inside) + ["a legend over data"] * over


@pytest.mark.parametrize("size", ["one", "seven", "forty"])
def test_every_label_has_room_and_no_legend_covers_data(size, request):
    figures = _drawn(request.getfixturevalue(size))
    assert {one.name.partition(".")[0] for one in figures} >= {
        "throughput_vs_concurrency",
        "goodput_vs_concurrency",
        "acceptance_length_vs_budget",
        "time_of_a_round",
        "nodes_vs_batch",
        "sorted_prefix_mass",
    }
    for each in figures:
        assert each.figure.get_figwidth() == 3.3
        assert each.figure.get_figheight() < 9  # fits a page
        assert _clipped(each.figure) == [], each.name
        if size == "one" and each.name.startswith("throughput"):  # a dollar is no formula
            assert each.figure.legends[0].get_texts()[0].get_text() == r"a\$b_{c\$"


def test_axes_read_as_plain_numbers(seven):
    by_name = {one.name: one.figure for one in _drawn(seven)}
    axes = by_name["throughput_vs_concurrency"].axes[-1]
    assert axes.get_xscale() == "log"
    assert _ticks(axes.xaxis) == ["1", "16", "64", "256"]
    labels = _ticks(by_name["pareto"].axes[0].yaxis)
    assert len(labels) > 1
    assert all(float(text.replace("k", "e3").replace("M", "e6")) > 0 for text in labels)
    numbers = {0.5: "0.5", 999: "999", 1000: "1k", 2500: "2.5k", 30_000: "30k", 2e6: "2M"}
    assert {value: short(value) for value in numbers} == numbers


def _ticks(axis) -> list[str]:
    axis.figure.draw_without_rendering()
    return [text.get_text() for text in axis.get_ticklabels()]


def test_loads_share_a_scale_of_step_times_where_all_can_be_read(tmp_path):
    def limits(*longest: float) -> list[float]:
        folder = tmp_path / str(longest[0])
        for load, ms in zip((1, 4), longest):
            step = {"draft": 0.0, "verify": ms, "host": 0.0, "total": ms}
            write_run(folder, summary("cast", max_concurrency=load, step_ms=step))
        return [one.figure.axes[0].get_xlim()[1] for one in drawn(folder, "time")]

    first, second = limits(10.0, 40.0)
    assert first == second
    first, second = limits(9.0, 40.0)
    assert second == pytest.approx(first * 40 / 9)


# ---------------------------------------------------------------- what is plotted


@pytest.mark.parametrize("seeds", [1, 2])
def test_throughput_and_speedup_by_load(tmp_path, seeds):
    labels = ["autoregressive", "fixed_chain", "tuned_chain", "cast"]
    for at, policy in enumerate(labels, start=1):
        for load in (1, 4, 12):
            for seed in range(seeds):
                data = summary(policy, 100.0 * at * load + 10 * seed, max_concurrency=load)
                write_run(tmp_path, data | {"seed": seed})
    (one,) = drawn(tmp_path, "throughput")
    throughput, speedup = one.figure.axes
    assert list(named(throughput)) == labels
    assert list(named(speedup)) == labels[1:]
    assert len(throughput.collections) == (4 if seeds > 1 else 0)  # bands
    assert (speedup.get_xscale(), speedup.get_xticks().tolist()) == ("log", [1, 4, 12])
    rates = named(throughput)["fixed_chain"].get_ydata().tolist()
    assert rates == [200 * x + 5 * (seeds - 1) for x in (1, 4, 12)]
    (dotted,) = [line for line in speedup.get_lines() if line.get_label() == "_baseline"]
    assert (set(dotted.get_ydata()), dotted.get_linestyle()) == ({1.0}, ":")
    low, high = speedup.get_ylim()
    assert low < 1 < high


def test_open_loops_have_figures_of_their_own_by_burstiness_and_cap(tmp_path):
    write_run(tmp_path, summary("cast", 9.0))
    for rate in (2.0, 4.0):
        for more in ({"burstiness": 1.0}, {"burstiness": 0.5}, {"max_concurrency": 8}):
            data = summary("cast", 10 * rate, request_rate=rate, realised_request_rate=rate, **more)
            write_run(tmp_path, data | {"median_tpot_ms": 5 + rate})
    figures = {one.name: one for one in _drawn(tmp_path)}
    ends = ("cap4_burstiness0.5", "cap4_burstiness1", "cap8_burstiness1")
    for end in ends:
        (axes,) = figures[f"pareto_of_request_rates.{end}"].figure.axes
        assert list(named(axes)["cast"].get_ydata()) == [10.0, 20.0]  # tokens/s/GPU of two GPUs
        rates = figures[f"throughput_vs_request_rate.{end}"]
        (axes,) = rates.figure.axes
        assert list(named(axes)["cast"].get_xdata()) == [2.0, 4.0]
        assert "No speedup" in " ".join(rates.remarks)
        assert f"goodput_vs_request_rate.{end}" in figures
    assert list(named(figures["throughput_vs_concurrency"].figure.axes[0])["cast"].get_xdata()) == [
        4
    ]
    assert "time_of_a_round.r4_b1_c4" in figures
    assert (
        "burstiness 0.5, at most 4 in flight"
        in figures[f"pareto_of_request_rates.{ends[0]}"].sentence
    )


def test_modelled_points_are_hollow_and_what_if_is_written_in_the_figure(tmp_path):
    modelled = {"time": MEASURED | {"measured": 0.9, "modelled": 0.1}}
    write_run(tmp_path, summary("cast", 9.0, what_if=True))
    write_run(tmp_path, summary("cast", 9.0, what_if=True, max_concurrency=8, cost_shares=modelled))
    for load in (4, 8):
        data = summary("treespark", 9.0, what_if=True, max_concurrency=load, cost_shares=modelled)
        write_run(tmp_path, data)
    (one,) = drawn(tmp_path, "throughput")
    hollow = [line for line in one.figure.axes[0].get_lines() if line.get_label() == "_hollow"]
    assert [list(line.get_xdata()) for line in hollow] == [[8], [4], [8]]
    assert "what-if" in one.figure.get_supxlabel()
    assert "modelled" in one.figure.get_supxlabel()
    cast, treespark = one.figure.legends[0].get_lines()  # a point of cast's is filled
    assert cast.get_markerfacecolor() == KNOWN["cast"].colour
    assert treespark.get_markerfacecolor() == "white"


def test_acceptance_has_one_line_per_order(tmp_path):
    chain, tree = {"1": 1.5, "2": 1.75}, {"0": 1.0, "1": 1.5, "4": 2.25, "16": 3.0}
    for policy, curve in (("fixed_chain", chain), ("tuned_chain", chain), ("cast", tree)):
        write_run(tmp_path, summary(policy, acceptance_length_by_budget=curve))
    write_run(tmp_path, summary("autoregressive", acceptance_length_by_budget=None))
    (one,) = drawn(tmp_path, "acceptance")
    lines = named(one.figure.axes[0])
    assert list(lines) == ["fixed_chain, tuned_chain", "cast"]
    assert list(lines["cast"].get_xdata()) == [1, 4, 16]  # log2 axis: no budget 0
    assert list(lines["cast"].get_ydata()) == [1.5, 2.25, 3.0]


def test_bars_are_the_speedups_in_the_colours_of_the_policies(seven):
    (figure,) = [one.figure for one in _drawn(seven) if one.name == "speedup_by_domain.c16"]
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["code", "chat", "all"]
    # tuned_chain is third: TPOT a third of the baseline's, but for what the seeds add to both.
    first = [bar for bar in axes.patches if to_hex(bar.get_facecolor()) == "#0072b2"]
    ratios = [(10 + 0.1 * seed) / (10 / 3 + 0.1 * seed) for seed in range(3)]
    assert first[0].get_height() == pytest.approx(sum(ratios) / 3)
    assert len(axes.patches) == 6 * 3


def test_goodputs_of_other_objectives_are_neither_averaged_nor_drawn_together(tmp_path):
    for seed, (good, limit) in enumerate(((3.0, 50.0), (1.0, 20.0), (2.0, 20.0))):
        write_run(
            tmp_path, summary("cast", seed=seed, request_goodput=good, goodput={"tpot": limit})
        )
    figures = sorted(drawn(tmp_path, "goodput"), key=lambda one: one.sentence)
    for one, limit, good in zip(figures, (20, 50), (1.5, 3.0), strict=True):
        assert f"(tpot:{limit}, in ms)" in one.sentence
        assert list(named(one.figure.axes[0])["cast"].get_ydata()) == [good]


def test_rejected_requests_meet_no_objective(tmp_path):
    """All 10 that were served met them: 10 of 40 requests, not all of them."""
    window = {"kind": "whole run", "start_s": 0.0, "end_s": 5.0, "requests": 10}
    good = {"request_goodput": 2.0, "request_throughput": 2.0}
    run = write_run(tmp_path / "new", summary("cast", window=window, **good, **REJECTED))
    runs = read_runs([tmp_path / "new"])
    assert attained(runs).tolist() == [0.25]
    # The table says which were measured, 6, and which of the rejected came in the window, 20 of 30.
    write_table(
        run,
        "requests",
        arrival_s=[1.0] * 30 + [5.5] * 10,
        measured=[True] * 6 + [False] * 34,
        rejected=[False] * 10 + [True] * 30,
    )
    assert attained(runs).tolist() == pytest.approx([6 / 26])
    (one,) = drawn(tmp_path / "new", "goodput")
    assert list(named(one.figure.axes[1])["cast"].get_ydata()) == pytest.approx([100 * 6 / 26])
    assert "rejected ones meet no objective" in " ".join(one.remarks)
    write_run(tmp_path / "old", summary("cast", window=None, **good, **REJECTED))
    assert attained(read_runs([tmp_path / "old"])).isna().all()
    (one,) = drawn(tmp_path / "old", "goodput")
    assert len(one.figure.axes) == 1  # without a share
    write_run(tmp_path / "all", summary("cast", request_goodput=3.0, request_throughput=4.0))
    assert attained(read_runs([tmp_path / "all"])).tolist() == [0.75]


def test_a_run_on_another_profile_of_a_shipped_name_is_not_drawn_with_the_shipped(tmp_path):
    node = changed("latency", profile="b300", content_hash=A)
    with pytest.raises(InputError, match="no table of b300: name a profile's .csv"):
        drawn(write_run(tmp_path / "runs", summary("cast", **node)), "latency")
    shipped, own = PROFILE_FOLDER / "b300.csv", tmp_path / "own"
    own.mkdir()
    for ending in (".csv", ".yaml", ".draft.csv"):
        (own / f"b300{ending}").write_bytes(shipped.with_suffix(ending).read_bytes())
    figures = draw(read_inputs([own / "b300.csv", shipped]), ["latency"], strict=True)
    names = sorted(one.name.removeprefix("latency_vs_packed_tokens") for one in figures)
    assert names == ["", ".latency_b300", ".own_b300"]


# ---------------------------------------------------------------- the command


def test_files_captions_and_equal_bytes(tmp_path, capsys):
    folder = sweep(tmp_path / "runs", ("autoregressive", "cast"), (1, 4), seeds=2)
    for out in ("a", "b"):
        words = ["figures", folder, "--only", "domains,pareto", "--out", tmp_path / out]
        assert printed(capsys, *words) == ""
    written = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    names = ("speedup_by_domain.c1", "speedup_by_domain.c4", "pareto")
    assert set(written) == {f"{n}.{end}" for n in names for end in ("png", "pdf", "svg", "txt")}
    for name, data in written.items():
        if not name.endswith(".txt"):
            assert data == (tmp_path / "b" / name).read_bytes(), name
    for fact in (
        "recording: small (abababababab)",
        "latency: card_a, 2 GPUs, measured",
        "what-if: no",
        "seeds: 0, 1;",
        "runs: 8, of 8 requests each",
        "modelled 0%",
        f"command: python -m analysis figures {folder} --only domains,pareto",
    ):
        assert fact in written["pareto.txt"].decode()
    root = ElementTree.fromstring(written["pareto.svg"])
    assert root.attrib["width"].startswith("237.6")  # points of 3.3 inches
    assert written["pareto.png"].startswith(b"\x89PNG")
    assert written["pareto.pdf"].startswith(b"%PDF")
    write_run(folder, summary("cast", 2.0, latency={"profile": "dir/b.csv"}))
    printed(capsys, folder, "--out", tmp_path / "out")
    stems = {path.name.removesuffix(".png") for path in (tmp_path / "out").glob("*.png")}
    kinds = ("throughput_vs_concurrency", "acceptance_length_vs_budget")
    assert stems == {f"{kind}.small.{end}" for kind in kinds for end in ("b", "card_a")}


def test_what_cannot_be_drawn_is_said_in_a_line_and_an_error_where_asked_for(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bare = summary("cast")
    for key in ("by_domain", "step_ms", "request_goodput", "acceptance_length_by_budget"):
        bare[key] = None
    write_run(tmp_path / "runs", bare)
    lost: list[str] = []
    figures = draw(read_inputs(["runs"]), chosen(None), strict=False, say=lost.append)
    assert {one.name for one in figures} == {"throughput_vs_concurrency", "sorted_prefix_mass"}
    left_out = {line.split()[2].rstrip(":"): line for line in lost}
    assert set(left_out) == set(KINDS) - {"throughput", "prefix_mass"}
    assert "step_ms" in left_out["time"]
    assert "card_a" in left_out["latency"]
    assert "steps.parquet" in left_out["nodes"]
    for name in left_out:
        error = refused(capsys, "figures", "runs", "--out", "none", "--only", f"throughput,{name}")
        assert error.startswith(f"error: --only {name}: ")
    assert not (tmp_path / "none").exists()
    assert chosen(["pareto,time", "domains,pareto"]) == ["pareto", "time", "domains"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "pie"], "--only pie; accepted: domains, "),
        (["--only", ","], "--only names no figure"),
        (["--baseline", "nobody"], "--baseline nobody is of no run; accepted: autoregressive"),
        (["nowhere"], "nowhere: no such file or folder; accepted: folders"),
        (["notes.json"], "notes.json: format is 'x'; accepted"),
        (["bounds.json"], "python -m analysis reach RUNS --bounds FILE"),
        (["empty"], "empty: nothing to draw below this folder"),
        (["--only", "nodes"], "run0/steps.parquet: unreadable"),
    ],
)
def test_bad_words_and_files_are_refused(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "runs", summary("autoregressive"), steps([4] * 30, [28] * 30))
    (run / "steps.parquet").write_bytes(b"PAR1 no table")
    (tmp_path / "notes.json").write_text(json.dumps({"format": "x"}))
    (tmp_path / "bounds.json").write_text(json.dumps({"format": "specdec-bounds"}))
    (tmp_path / "empty").mkdir()
    assert message in refused(capsys, "figures", "runs", *words, "--out", "out")
    assert not (tmp_path / "out").exists()


def test_calibrations_profiles_and_recordings_are_drawn_without_any_run(tmp_path, capsys):
    """Several profiles together too, a line each, as in Figure 2 of CAST (arXiv 2610.00321)."""
    profiles = ("mi355x", "blackwell_qwen3_8b", "a6000_qwen3_8b")
    files = [DATA / "small_block_t0.calibration.json", DATA / "small_block_t0.safetensors"]
    files += [PROFILE_FOLDER / f"{name}.csv" for name in profiles]
    words = [*files, "--only", "reliability,latency,prefix_mass"]
    printed(capsys, "figures", *words, "--out", tmp_path)
    captions = {path.stem: path.read_text() for path in tmp_path.glob("*.txt")}
    latency = "latency_vs_packed_tokens"
    expected = {latency, "reliability.small_block_t0", "sorted_prefix_mass"}
    assert set(captions) == expected | {f"{latency}.{name}" for name in profiles}
    assert "MI355X" in captions[f"{latency}.mi355x"]
    assert "1 of its slices do not reach" in captions[f"{latency}.mi355x"]  # batch 32: from 32 on
    assert "blackwell_qwen3_8b: batch 1, context 1024, 21.9 ms at 16 tokens." in captions[latency]
    assert captions[latency].count("arXiv 2610.00321") == 2
    assert "small_block_t0: best-first tree" in captions["sorted_prefix_mass"]
    words = ["figures", files[0], "--only", "domains", "--out", tmp_path / "x"]
    assert "no run was given" in refused(capsys, *words)
