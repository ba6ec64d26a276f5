"""Runs that differ in more than the seed are neither averaged nor paired, and are told apart."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from analysis.__main__ import main
from analysis.compare.comparison import compare
from analysis.compare.settings import distinctions
from analysis.figures.draw import draw, read_inputs
from analysis.figures.load import attained
from analysis.read.runs import read_runs
from tests.figure_cases import comparison, summary, write_run
from traces.common.errors import InputError
from traces.profiles.profile import PROFILE_FOLDER

A, B = "3fa9c1d2" + "0" * 56, "77" * 32


def _write(folder: Path, *runs: dict) -> Path:
    for run in runs:
        write_run(folder, run)
    return folder


def _code(target: str, sha256: str) -> dict:
    return {"policy_code": {"target": target, "sha256": sha256}}


def _rows(capsys, folder: Path, *words: str) -> list[dict]:
    capsys.readouterr()
    assert main([str(folder), "--no-figures", "--format", "csv", *words]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def _node(name: str, **changes) -> dict:
    """A node of a summary with some keys changed."""
    return {name: summary("cast")[name] | changes}


FILE = {"file": "w.csv", "sha256": A, "format": "csv", "rows": 5, "played_rate": 0.5}
# Of each pair: what the second run differs in, and how its title says so.
APART = [
    (_node("latency", content_hash=A), _node("latency", content_hash=B),
     ("latency.content_hash=3fa9c1d20000", "latency.content_hash=777777777777")),
    ({}, _node("latency", content_hash=A),
     ("without latency.content_hash", "latency.content_hash=3fa9c1d20000")),
    (_node("latency", host={"round_s": 0}), _node("latency", host={"round_s": 0.01}),
     ("latency.host.round_s=0", "latency.host.round_s=0.01")),
    (_node("server", replicas=1), _node("server", replicas=2),
     ("server.replicas=1", "server.replicas=2")),
    (_node("trace", domains=["code"]), {}, ("trace.domains=code", "trace.domains=code,chat")),
    (_node("trace", content_hash="ef" * 32), {},
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
    folder = _write(
        tmp_path / "runs",
        summary("autoregressive", 100.0) | first,
        summary("cast", 150.0) | first,
        summary("cast", 300.0, seed=1) | second,
    )
    found = compare(read_runs([folder]))
    assert sorted(one.differs for one in found) == sorted(said)
    assert {one.title for one in found} == {f"small on card_a; {text}" for text in said}
    rows = _rows(capsys, folder, "--metric", "speedup")
    assert {row["setting"] for row in rows} == set(said)
    by_setting = {(row["setting"], row["policy"]): row["speedup"] for row in rows}
    assert sorted(by_setting.values()) == ["", "1.0", "1.5"]
    drawn = draw(read_inputs([folder]), ["throughput"], strict=True)
    assert len({one.name for one in drawn}) == 2
    assert {text for one in drawn for key, text in one.facts if key == "setting"} == set(said)


def test_names_of_recordings_and_profiles_say_what_follows_from_them(tmp_path):
    """A server's setting is said although the profiles differ as well."""
    card_b = _node("latency", profile="card_b", num_gpus=8, source="theirs", content_hash=B)
    folder = _write(
        tmp_path,
        summary("cast", 1.0, **_node("latency", content_hash=A)),
        summary("cast", 2.0, **card_b),
        summary("cast", 3.0, **card_b, **_node("server", replicas=2)),
    )
    titles = [one.title for one in compare(read_runs([folder]))]
    assert titles == [
        "small on card_a; server.replicas=1",
        "small on card_b; server.replicas=1",
        "small on card_b; server.replicas=2",
    ]
    alone = _write(tmp_path / "two", summary("cast", 1.0), summary("cast", 2.0, **card_b))
    assert {one.differs for one in compare(read_runs([alone]))} == {""}


def test_equal_names_are_told_apart_by_all_that_differs():
    both = [{"trace.recording": '"a"', "what_if": one} for one in ("true", "false")]
    assert distinctions(both) == ["what_if=true", "what_if=false"]
    assert distinctions(both[:1]) == [""]


# ---------------------------------------------------------------- policies


def test_an_edited_policy_and_another_class_are_no_seeds(tmp_path):
    mine, theirs = "my.HalfChain", "other.TwoThirds"
    folder = _write(
        tmp_path,
        summary("half_chain", 100.0, **_code(mine, A)),
        summary("half_chain", 120.0, seed=1, **_code(mine, B)),
        summary("cast", 1.0, **_code(mine, A)),
        summary("cast", 3.0, seed=1, **_code(theirs, B)),
        summary("treespark", 5.0, **_code("t.TreeSpark", A)),
        summary("treespark", 7.0, seed=1, **_code("t.TreeSpark", A)),
        summary("treespark", 9.0, max_concurrency=8, **_code("t.TreeSpark", A)),
    )
    found = comparison(folder)
    rows = found.blocks[0][1]
    assert dict(zip(rows["label"], rows["seeds"])) == {
        "half_chain(source=3fa9c1d2)": (0,),
        "half_chain(source=77777777)": (1,),
        "cast(class=HalfChain)": (0,),
        "cast(class=TwoThirds)": (1,),
        "treespark": (0, 1),
    }


def test_classes_of_one_name_are_said_whole_and_sources_where_classes_do_not_say_them(tmp_path):
    folder = _write(
        tmp_path,
        summary("cast", 1.0, **_code("mine.Cast", A)),
        summary("cast", 2.0, **_code("mine.Cast", B)),
        summary("cast", 3.0, **_code("theirs.Cast", A)),
    )
    assert comparison(folder).labels == [
        "cast(class=mine.Cast, source=3fa9c1d2)",
        "cast(class=mine.Cast, source=77777777)",
        "cast(class=theirs.Cast, source=3fa9c1d2)",
    ]


def test_a_source_that_follows_the_load_is_said(tmp_path, capsys):
    """At each load there is one source, so labels are plain, but a line over loads joins two."""
    folder = _write(
        tmp_path / "runs",
        *(summary("cast", 9.0, max_concurrency=n, **_code("c.Cast", sha)) for n, sha in
          ((1, A), (4, B))),
        *(summary("treespark", 9.0, max_concurrency=n, **_code("t.T", A)) for n in (1, 4)),
    )  # fmt: skip
    assert comparison(folder).labels == ["cast", "treespark"]
    assert main([str(folder), "--no-figures"]) == 0
    said = "of another class or source at other loads: cast\n"
    assert said in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(page)]) == 0
    assert f"Lines over loads join runs {said.strip()}." in page.read_text()


def test_a_baseline_of_several_sources_is_to_be_chosen(tmp_path, capsys):
    codes = [_code("a.Plain", sha) for sha in (A, B)]
    folder = _write(tmp_path, *(summary("autoregressive", 9.0, seed=at, **one)
                                for at, one in enumerate(codes)))  # fmt: skip
    write_run(folder, summary("cast", 18.0, seed=1))
    names = ("autoregressive(source=3fa9c1d2)", "autoregressive(source=77777777)")
    assert main([str(folder), "--no-figures"]) == 0
    said = f"autoregressive ran as {', '.join(names)}: speedup left blank, see --baseline"
    assert said in capsys.readouterr().out
    rows = _rows(capsys, folder, "--baseline", names[1])
    assert {row["policy"]: row["speedup"] for row in rows}["cast"] == "2.0"


# ---------------------------------------------------------------- loads


def test_ramps_are_loads_of_their_own(tmp_path, capsys):
    open_loop = {"request_rate": 2.0, "realised_request_rate": 2.0}
    folder = _write(
        tmp_path / "runs",
        summary("autoregressive", 100.0, **open_loop, ramp=0),
        summary("cast", 150.0, **open_loop, ramp=0),
        summary("cast", 300.0, **open_loop, ramp=16),
        summary("cast", 300.0, seed=1, **open_loop, ramp=16),
    )
    found = comparison(folder)
    plain, ramped = (load for load, _ in found.blocks)
    rest = "request rate 2/s, burstiness 1, at most 4 in flight"
    assert [plain.title, ramped.title] == [rest, f"{rest}, ramp 16"]
    assert found.estimates("speedup")["mean"].fillna(-1).tolist() == [1.0, 1.5, -1.0]
    assert [row["ramp"] for row in _rows(capsys, folder)] == ["0", "0", "16"]
    assert {way.axis_name for way, _ in found.axes()} == {
        "cap4_burstiness1",
        "cap4_burstiness1_ramp16",
    }


def test_the_arrivals_of_a_file_have_no_burstiness(tmp_path, capsys):
    """A file's own times give the rate; the same file under drawn gaps is another load."""
    folder = _write(
        tmp_path,
        summary("cast", 1.0, workload=FILE, request_rate=0.5),
        summary("cast", 2.0, workload=FILE, request_rate=3.0, burstiness=0.25),
    )
    titles = [load.title for load, _ in comparison(folder).blocks]
    assert titles == [
        "request rate 0.5/s, the file's arrivals, at most 4 in flight",
        "request rate 3/s, burstiness 0.25, at most 4 in flight",
    ]
    assert [row["burstiness"] for row in _rows(capsys, folder)] == ["", "0.25"]


def test_pareto_figures_keep_burstiness_and_caps_apart(tmp_path):
    for rate in (2.0, 4.0):
        for more in ({"burstiness": 1.0}, {"burstiness": 0.5}, {"max_concurrency": 8}):
            data = summary("cast", 10 * rate, request_rate=rate, **more)
            write_run(tmp_path, data | {"median_tpot_ms": 5 + rate})
    drawn = draw(read_inputs([tmp_path]), ["pareto"], strict=True)
    ends = ("cap4_burstiness0.5", "cap4_burstiness1", "cap8_burstiness1")
    assert [one.name for one in drawn] == [f"pareto_of_request_rates.{end}" for end in ends]
    assert "burstiness 0.5, at most 4 in flight" in drawn[0].sentence
    for one in drawn:
        (line,) = [line for line in one.figure.axes[0].get_lines() if line.get_label() == "cast"]
        assert list(line.get_ydata()) == [10.0, 20.0]  # tokens/s/GPU of two GPUs


# ---------------------------------------------------------------- goodput and rejected requests


def test_goodputs_of_other_objectives_are_neither_averaged_nor_drawn_together(tmp_path):
    folder = _write(
        tmp_path / "runs",
        summary("cast", 10.0, request_goodput=3.0, goodput={"tpot": 50.0}),
        summary("cast", 10.0, seed=1, request_goodput=1.0, goodput={"tpot": 20.0}),
        summary("cast", 10.0, seed=2, request_goodput=2.0, goodput={"tpot": 20.0}),
    )
    found = compare(read_runs([folder]))
    means = {one.differs: one.estimates("request_goodput")["mean"][0] for one in found}
    assert means == {"goodput.tpot=20.0": 1.5, "goodput.tpot=50.0": 3.0}
    words = ["figures", str(folder), "--only", "goodput", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    texts = sorted(path.read_text().splitlines()[0] for path in (tmp_path / "out").glob("*.txt"))
    assert ["(tpot:20, in ms)" in texts[0], "(tpot:50, in ms)" in texts[1]] == [True, True]
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0


def test_runs_without_objectives_stay_beside_those_with_one_set(tmp_path):
    none = {"goodput": None, "request_goodput": None}
    folder = _write(
        tmp_path / "runs",
        summary("autoregressive", 10.0, **none),
        summary("cast", 30.0, **none),
        summary("cast", 30.0, seed=1, request_goodput=2.0),
    )
    found = comparison(folder)
    assert found.objectives == {"tpot": 50.0}
    assert found.estimates("speedup")["mean"].tolist() == [1.0, 3.0]
    (drawn,) = draw(read_inputs([folder]), ["goodput"], strict=True)
    (line,) = [one for one in drawn.figure.axes[0].get_lines() if one.get_label() == "cast"]
    assert list(line.get_ydata()) == [2.0]
    write_run(folder, summary("cast", 30.0, seed=2, goodput={"e2el": 1.0}))
    assert len(compare(read_runs([folder]))) == 3  # which of two they were beside is not known


REJECTED = {"num_prompts": 40, "completed": 10, "rejected": 30}


def test_rejected_requests_meet_no_objective(tmp_path):
    """All 10 that were served met them: 10 of 40 requests, not all of them."""
    window = {"kind": "whole run", "start_s": 0.0, "end_s": 5.0, "requests": 10}
    good = {"request_goodput": 2.0, "request_throughput": 2.0}
    run = write_run(tmp_path, summary("cast", window=window, **good, **REJECTED))
    runs = read_runs([tmp_path])
    assert attained(runs).tolist() == [0.25]
    # The table says which were measured, 6, and which of the rejected came in the window, 20 of 30.
    columns = {
        "arrival_s": [1.0] * 30 + [5.5] * 10,
        "measured": [True] * 6 + [False] * 34,
        "rejected": [False] * 10 + [True] * 30,
    }
    parquet.write_table(pyarrow.table(columns), run / "requests.parquet")
    assert attained(runs).tolist() == pytest.approx([6 / 26])
    (drawn,) = draw(read_inputs([tmp_path]), ["goodput"], strict=True)
    assert "rejected ones meet no objective" in " ".join(drawn.remarks)
    (run / "requests.parquet").unlink()
    write_run(tmp_path / "old", summary("cast", window=None, **good, **REJECTED))
    assert attained(read_runs([tmp_path / "old"])).isna().all()
    (drawn,) = draw(read_inputs([tmp_path / "old"]), ["goodput"], strict=True)
    assert len(drawn.figure.axes) == 1  # without a share


def test_without_rejected_requests_the_share_is_of_those_served(tmp_path):
    write_run(tmp_path, summary("cast", request_goodput=3.0, request_throughput=4.0))
    assert attained(read_runs([tmp_path])).tolist() == [0.75]


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
def test_tables_say_how_many_requests_were_rejected(tmp_path, capsys, form):
    folder = _write(
        tmp_path / "runs",
        summary("autoregressive", 100.0),
        summary("cast", 90.0, **REJECTED),
        summary("cast", 90.0, seed=1, num_prompts=40, completed=40),
    )
    assert main([str(folder), "--no-figures", "--format", form]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "cast: 30 of 80 requests were rejected; they are in no latency" in out
    assert "30 of 80 requests of 1 rows (most: 30 of 80, cast at concurrency 4)" in out
    rows = {row["policy"]: row for row in _rows(capsys, folder)}
    counts = [(rows[name]["requests_rejected"], rows[name]["requests_sent"]) for name in rows]
    assert counts == [("0", "8"), ("30", "80")]
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(page)]) == 0
    assert "cast: 30 of 80 requests were rejected" in page.read_text()
    (drawn,) = draw(read_inputs([folder]), ["throughput"], strict=True)
    assert any(key == "rejected" for key, _ in drawn.facts)


# ---------------------------------------------------------------- what is said


def test_hashes_stand_beside_names(tmp_path, capsys):
    more = _node("latency", content_hash=A) | {"workload": FILE | {"sha256": B}}
    folder = _write(tmp_path / "runs", summary("cast", **more))
    assert main([str(folder), "--format", "markdown", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    said = ("card_a (3fa9c1d20000), 2 GPUs", "- workload: w.csv (777777777777)")
    assert all(text in out for text in said)
    caption = (tmp_path / "out" / "throughput_vs_concurrency.txt").read_text()
    assert "latency: card_a (3fa9c1d20000)" in caption
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(page)]) == 0
    assert "card_a (3fa9c1d20000)" in page.read_text()
    assert A in page.read_text()
    (row,) = _rows(capsys, folder)
    assert row["latency_content_hash"] == A


def test_cells_of_markdown_are_one_line_and_no_markup(tmp_path, capsys):
    folder = _write(tmp_path, summary("a|b\n<img src=x>&lt;", 1.0))
    words = [str(folder), "--no-figures", "--format", "markdown", "--metric", "output_throughput"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| a\\|b &lt;img src=x>&amp;lt; | 1 | 1.0 | measured |" in lines


def test_one_sweep_over_a_file_is_one_setting(tmp_path):
    """Rows, limits and rates follow from the number of requests; a time scale makes the load."""
    first = FILE | {"arrivals": "load", "limit": 24, "scaled_rate": 3.1, "time_scale": 1.0}
    other = first | {"limit": 96, "rows": 96, "played_rate": 17.0, "file": "moved/w.csv"}
    runs = [
        summary("cast", 10.0, workload=first, max_concurrency=4),
        summary("cast", 30.0, workload=other, max_concurrency=16),
    ]
    (found,) = compare(read_runs([_write(tmp_path, *runs)]))
    assert [load.max_concurrency for load, _ in found.blocks] == [4, 16]
    assert found.differs == ""
    write_run(tmp_path, summary("cast", 10.0, workload=first | {"max_gap_s": 2.0}))
    assert len(compare(read_runs([tmp_path]))) == 2


def test_live_runs_are_told_from_simulated_ones_by_their_profiles_name(tmp_path):
    priced = _node("latency", host={"round_s": 0.1}, cliffs=None)
    live = {"latency": {"profile": "live", "told": "card_a", "told_strict": False, "num_gpus": 1}}
    runs = [summary("cast", 10.0, **priced), summary("cast", 11.0, **live)]
    found = compare(read_runs([_write(tmp_path, *runs)]))
    assert [one.differs for one in found] == ["", ""]


def test_the_same_run_with_and_without_objectives_counts_once(tmp_path):
    none = {"goodput": None, "request_goodput": None, "config_hash": "0" * 64}
    runs = [summary("cast", 10.0, **none), summary("cast", 10.0, request_goodput=2.0)]
    folder = _write(tmp_path, *runs)
    assert comparison(folder).estimates("request_goodput")["mean"].tolist() == [2.0]
    write_run(folder, summary("cast", 11.0, **none))
    with pytest.raises(InputError, match="different results for policy cast"):
        compare(read_runs([folder]))


def test_a_run_on_another_profile_of_a_shipped_name_is_not_drawn_with_the_shipped(tmp_path):
    node = _node("latency", profile="b300", content_hash=A)
    run = write_run(tmp_path, summary("cast", **node))
    with pytest.raises(InputError, match="no table of b300: name a profile's .csv"):
        draw(read_inputs([run]), ["latency"], strict=True)
    shipped = PROFILE_FOLDER / "b300.csv"
    own = tmp_path / "own"
    own.mkdir()
    for ending in (".csv", ".yaml", ".draft.csv"):
        (own / f"b300{ending}").write_bytes(shipped.with_suffix(ending).read_bytes())
    drawn = draw(read_inputs([own / "b300.csv", shipped]), ["latency"], strict=True)
    names = sorted(one.name.removeprefix("latency_vs_packed_tokens") for one in drawn)
    assert names == ["", ".latency_b300", ".own_b300"]
