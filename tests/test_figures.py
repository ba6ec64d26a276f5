"""Figures as files and as drawings: looks, room for labels, captions, refusals, equal bytes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

import analysis
import traces
from analysis.__main__ import main
from analysis.figures.draw import KINDS, chosen, draw, read_inputs
from analysis.look import KNOWN, look_of, looks
from tests.figure_cases import comparison, steps, summary, sweep, write_run

CONF = Path(analysis.__file__).parents[1] / "conf" / "policy"
DATA = Path(traces.__file__).parent / "data"
SEVEN = ("autoregressive", "fixed_chain", "tuned_chain", "fixed_tree", "cast", "treespark",
         "priced_survival")  # fmt: skip
USERS = [f"a_policy_of_a_user_{number}" for number in range(200)]


# ---------------------------------------------------------------- looks


def test_every_shipped_policy_has_a_look_that_no_other_has():
    shipped = {path.stem for path in CONF.glob("*.yaml")}
    assert shipped <= set(KNOWN)
    assert len({(look.colour, look.marker) for look in KNOWN.values()}) == len(KNOWN)


def test_a_policy_looks_the_same_whatever_else_is_drawn():
    alone = {name: looks([name])[name] for name in (*KNOWN, *USERS[:8])}
    assert alone == {name: look_of(name) for name in alone}
    together = looks([*KNOWN, *USERS[:8]])
    for name, look in alone.items():
        assert (together[name].colour, together[name].marker) == (look.colour, look.marker)


def test_users_policies_take_no_shipped_look_and_are_told_apart_by_dash_at_least():
    taken = {(look.colour, look.marker) for look in KNOWN.values()}
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


# ---------------------------------------------------------------- drawings


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
    write_run(folder, summary("cast", what_if=True), steps([4] * 30, [28] * 30))
    return folder


def _clipped(figure) -> list[str]:
    """Texts that stick out of the figure, and legends that stand over data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    page = figure.bbox
    found = []
    for text in figure.findobj(Text):
        box = text.get_window_extent(renderer)
        shown = text.get_visible() and text.get_text().strip() and box.width > 0
        if shown and not _is_tick_outside(text, figure):
            inside = box.x0 >= -1 and box.y0 >= -1
            inside &= box.x1 <= page.width + 1 and box.y1 <= page.height + 1
            found += [] if inside else [f"clipped: {text.get_text()!r}"]
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        for axes in figure.axes:
            if axes.get_visible() and box.overlaps(axes.get_window_extent(renderer)):
                found.append("a legend over data")
    return found


def _is_tick_outside(text, figure) -> bool:
    """Whether matplotlib hides it: the label of a tick beyond the limits of its axis."""
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    place = tick.get_loc()
                    return not min(limits) <= place <= max(limits) or not axes.axison
    return False


@pytest.mark.parametrize("size", ["one", "seven", "forty"])
def test_every_label_has_room_and_no_legend_covers_data(size, request):
    drawn = _drawn(request.getfixturevalue(size))
    assert {one.name.partition(".")[0] for one in drawn} >= {
        "throughput_vs_concurrency",
        "goodput_vs_concurrency",
        "acceptance_length_vs_budget",
        "time_of_a_round",
        "nodes_vs_batch",
        "sorted_prefix_mass",
    }
    for one in drawn:
        assert one.figure.get_figwidth() == 3.3
        assert one.figure.get_figheight() < 9  # fits a page
        assert _clipped(one.figure) == [], one.name


def test_load_axes_read_as_plain_numbers(seven):
    by_name = {one.name: one.figure for one in _drawn(seven)}
    axes = by_name["throughput_vs_concurrency"].axes[-1]
    assert axes.get_xscale() == "log"
    assert _ticks(axes.xaxis) == ["1", "16", "64", "256"]
    assert axes.get_xlabel() == "concurrency (requests in flight)"
    labels = _ticks(by_name["pareto"].axes[0].yaxis)
    assert len(labels) > 1
    assert all(float(text.replace("k", "e3").replace("M", "e6")) > 0 for text in labels)


def _ticks(axis) -> list[str]:
    axis.figure.draw_without_rendering()
    return [text.get_text() for text in axis.get_ticklabels()]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (999, "999"), (1000, "1k"), (2500, "2.5k"), (30_000, "30k"), (2e6, "2M")],
)
def test_thousands_are_written_one_way(value, text):
    from analysis.figures.drawing import short

    assert short(value) == text


def test_loads_share_a_scale_of_step_times_where_all_can_be_read(tmp_path):
    def limits(*longest: float) -> list[float]:
        folder = tmp_path / str(longest[0])
        for load, ms in zip((1, 4), longest):
            step = {"draft": 0.0, "verify": ms, "host": 0.0, "total": ms}
            write_run(folder, summary("cast", max_concurrency=load, step_ms=step))
        drawn = [one for one in _drawn(folder) if one.name.startswith("time_of_a_round")]
        own = "that of every load" if longest[0] * 4 >= longest[1] else "of this load alone"
        assert all(f"Scale: {own}." in one.remarks for one in drawn)
        return [one.figure.axes[0].get_xlim()[1] for one in drawn]

    first, second = limits(10.0, 40.0)
    assert first == second
    first, second = limits(9.0, 40.0)
    assert second == pytest.approx(first * 40 / 9)


def test_ratios_have_a_dotted_line_at_1(seven):
    by_name = {one.name: one.figure for one in _drawn(seven)}
    for name in ("throughput_vs_concurrency", "speedup_by_domain.c16"):
        lines = [line for axes in by_name[name].axes for line in axes.get_lines()]
        (dotted, *_) = [line for line in lines if line.get_label() == "_baseline"]
        assert (set(dotted.get_ydata()), dotted.get_linestyle()) == ({1.0}, ":")
        low, high = dotted.axes.get_ylim()
        assert low < 1 < high


def test_bars_are_the_speedups_in_the_colours_of_the_policies(seven):
    from matplotlib.colors import to_hex

    (figure,) = [one.figure for one in _drawn(seven) if one.name == "speedup_by_domain.c16"]
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["code", "chat", "all"]
    # tuned_chain is third: TPOT a third of the baseline's, but for what the seeds add to both.
    first = [bar for bar in axes.patches if to_hex(bar.get_facecolor()) == "#0072b2"]
    ratios = [(10 + 0.1 * seed) / (10 / 3 + 0.1 * seed) for seed in range(3)]
    assert first[0].get_height() == pytest.approx(sum(ratios) / 3)
    assert len(axes.patches) == 6 * 3


def test_a_dollar_in_a_name_is_no_formula(tmp_path):
    folder = sweep(tmp_path / "runs", ("autoregressive", "a$b_{c$"), (1, 4))
    figure = next(one.figure for one in _drawn(folder) if one.name.startswith("throughput"))
    assert _clipped(figure) == []
    assert figure.legends[0].get_texts()[1].get_text() == r"a\$b_{c\$"


def test_sweeps_of_a_width_get_a_figure_over_budgets(tmp_path):
    write_run(tmp_path / "runs", summary("autoregressive", 50.0))
    for nodes in (3, 7, 15):
        data = summary("fixed_tree", 100.0 + nodes, policy_config={"nodes": nodes})
        data |= {"acceptance_length": 2 + nodes / 10, "draft_nodes_per_request": nodes}
        write_run(tmp_path / "runs", data)
    by_name = {one.name: one for one in _drawn(tmp_path / "runs")}
    speedup, length = by_name["speedup_vs_budget"].figure.axes
    (line,) = [line for line in speedup.get_lines() if line.get_label() == "fixed_tree"]
    assert list(line.get_xdata()) == [3, 7, 15]
    assert list(line.get_ydata()) == pytest.approx([2.06, 2.14, 2.3])
    assert list(length.get_lines()[0].get_ydata()) == pytest.approx([2.3, 2.7, 3.5])
    assert line.get_color() == KNOWN["fixed_tree"].colour
    assert "fixed_tree: nodes" in " ".join(by_name["speedup_vs_budget"].remarks)


# ---------------------------------------------------------------- the command


def test_files_captions_and_equal_bytes(tmp_path, capsys):
    folder = sweep(tmp_path / "runs", ("autoregressive", "cast"), (1, 4), seeds=2)
    for out in ("a", "b"):
        words = ["figures", str(folder), "--only", "domains,pareto", "--out", str(tmp_path / out)]
        assert main(words) == 0
    assert capsys.readouterr().out == ""
    written = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    names = ("speedup_by_domain.c1", "speedup_by_domain.c4", "pareto")
    assert set(written) == {f"{n}.{end}" for n in names for end in ("png", "pdf", "svg", "txt")}
    for name, data in written.items():
        if not name.endswith(".txt"):
            assert data == (tmp_path / "b" / name).read_bytes(), name
    text = written["pareto.txt"].decode()
    drawn_by = f"command: python -m analysis figures {folder} --only domains,pareto"
    setting = ("recording: small (abababababab)", "latency: card_a, 2 GPUs, measured")
    said = ("what-if: no", "seeds: 0, 1;", "runs: 8, of 8 requests each", "modelled 0%")
    for fact in (*setting, *said, drawn_by):
        assert fact in text
    root = ElementTree.fromstring(written["pareto.svg"])
    assert root.attrib["width"].startswith("237.6")  # points of 3.3 inches
    assert written["pareto.png"][:8] == b"\x89PNG\r\n\x1a\n"


def test_what_cannot_be_drawn_is_said_in_a_line_and_an_error_where_asked_for(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bare = summary("cast")
    for key in ("by_domain", "step_ms", "request_goodput", "acceptance_length_by_budget"):
        bare[key] = None
    write_run(tmp_path / "runs", bare)
    assert main(["figures", "runs", "--out", "out"]) == 0
    lines = capsys.readouterr().err.splitlines()
    left_out = {line.split()[2].rstrip(":"): line for line in lines if "left out" in line}
    assert set(left_out) == {
        "domains", "acceptance", "budget", "goodput", "pareto", "nodes", "time", "latency",
        "reliability", "live",
    }  # fmt: skip
    assert "step_ms" in left_out["time"]
    assert "card_a" in left_out["latency"]
    assert "steps.parquet" in left_out["nodes"]
    assert {path.name.partition(".")[0] for path in (tmp_path / "out").iterdir()} == {
        "throughput_vs_concurrency",
        "sorted_prefix_mass",
    }
    for name in left_out:
        assert main(["figures", "runs", "--out", "none", "--only", f"throughput,{name}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: --only {name}: ")
        assert error.count("\n") == 1
    assert not (tmp_path / "none").exists()


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
    ],
)
def test_bad_words_are_refused(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", summary("autoregressive"))
    (tmp_path / "notes.json").write_text(json.dumps({"format": "x"}))
    (tmp_path / "bounds.json").write_text(json.dumps({"format": "specdec-bounds"}))
    (tmp_path / "empty").mkdir()
    assert main(["figures", "runs", *words, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_damaged_steps_are_an_error_that_names_the_file(tmp_path, capsys):
    run = write_run(tmp_path / "runs", summary("cast"), steps([4] * 30, [28] * 30))
    (run / "steps.parquet").write_bytes(b"PAR1 no table")
    words = ["figures", str(tmp_path / "runs"), "--only", "nodes", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert f"error: {run.resolve() / 'steps.parquet'}: unreadable" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_calibrations_profiles_and_recordings_are_drawn_without_any_run(tmp_path, capsys):
    files = [DATA / "small_block_t0.calibration.json", DATA.parent / "latency" / "mi355x.csv"]
    files.append(DATA / "small_block_t0.safetensors")
    words = [*map(str, files), "--only", "reliability,latency,prefix_mass"]
    assert main(["figures", *words, "--out", str(tmp_path)]) == 0
    names = {path.stem for path in tmp_path.glob("*.svg")}
    expected = {"reliability.small_block_t0", "latency_vs_packed_tokens.mi355x"}
    assert names == expected | {"sorted_prefix_mass"}
    text = (tmp_path / "latency_vs_packed_tokens.mi355x.txt").read_text()
    assert "MI355X" in text
    assert "1 of its slices do not reach" in text  # batch 32 begins at 32 tokens
    mass = (tmp_path / "sorted_prefix_mass.txt").read_text()
    assert "small_block_t0: best-first tree" in mass
    assert main(["figures", *words[:1], "--only", "domains", "--out", str(tmp_path / "x")]) == 2
    assert "no run was given" in capsys.readouterr().err


def test_several_profiles_have_a_figure_together(tmp_path):
    """A line each, as in Figure 2 of CAST (arXiv 2610.00321)."""
    names = ("blackwell_qwen3_8b", "a6000_qwen3_8b")
    files = [str(DATA.parent / "latency" / f"{name}.csv") for name in names]
    assert main(["figures", *files, "--only", "latency", "--out", str(tmp_path)]) == 0
    stems = {path.stem for path in tmp_path.glob("*.svg")}
    assert stems == {"latency_vs_packed_tokens", *(f"latency_vs_packed_tokens.{n}" for n in names)}
    text = (tmp_path / "latency_vs_packed_tokens.txt").read_text()
    assert "blackwell_qwen3_8b: batch 1, context 1024, 21.9 ms at 16 tokens." in text
    assert text.count("arXiv 2610.00321") == 2


def test_the_order_of_names_is_kept():
    assert chosen(["pareto,time", "domains,pareto"]) == ["pareto", "time", "domains"]


def test_open_loops_get_figures_of_their_own(tmp_path):
    for rate in (2.0, 4.0):
        for policy in ("autoregressive", "cast"):
            data = summary(policy, 10 * rate, request_rate=rate, realised_request_rate=rate)
            write_run(tmp_path / "runs", data | {"median_tpot_ms": 5 + rate})
    names = {one.name for one in _drawn(tmp_path / "runs")}
    assert "goodput_vs_request_rate.cap4_burstiness1" in names
    assert "pareto_of_request_rates" in names
    assert {"speedup_by_domain.r2_b1_c4", "time_of_a_round.r4_b1_c4"} <= names
    assert comparison(tmp_path / "runs").blocks[0][0].title.startswith("request rate 2/s")
