"""What figures take from results, by hand and by brute force."""

from __future__ import annotations

import csv
from itertools import product
from math import exp, log
from pathlib import Path

import numpy as np
import pandas
import pytest

import traces
from analysis.compare.budgets import order_curves, tried_widths
from analysis.figures.budget import node_lines, step_sums
from analysis.figures.domains import speedups
from analysis.figures.drawing import covered, equal_lines, equal_words
from analysis.figures.latency import relative, single, verify_times
from analysis.figures.load import frontier, per_gpu_rates
from analysis.figures.mass import NODES, published_curves, recorded_curve, sorted_masses
from analysis.figures.time import round_parts
from analysis.look import KNOWN
from analysis.read.runs import read_runs
from analysis.read.tables import spent_in_window, steps_in_window
from simulator.cli.main import main as simulate
from tests.figure_cases import (
    comparison,
    drawn,
    named,
    steps,
    summary,
    write_run,
    write_runs,
    write_table,
)
from traces.common.errors import InputError
from traces.profiles.profile import PROFILE_FOLDER, known_profiles, read_profile


def test_speedups_by_domain_are_means_of_ratios_paired_by_seed(tmp_path):
    def of(policy: str, seed: int, code: float | None, every: float) -> dict:
        domains = {"code": {"mean_tpot_ms": code}, "chat": {"mean_tpot_ms": 12.0}}
        return summary(policy, seed=seed, by_domain=domains, mean_tpot_ms=every)

    folder = write_runs(
        tmp_path,
        of("autoregressive", 0, 10.0, 9.0),
        of("autoregressive", 1, 20.0, 9.0),
        of("cast", 0, 5.0, 3.0),
        of("cast", 1, 5.0, 9.0),
        of("treespark", 0, None, 4.5),  # no request of this domain was measured
    )
    bars = speedups(comparison(folder)).set_index(["domain", "label"])
    assert list(dict.fromkeys(bars.index.get_level_values("domain"))) == ["code", "chat", "all"]
    code = bars.loc["code", "cast"]
    assert (code["mean"], code["n"]) == (3.0, 2)  # of 2 and 4
    assert code["half"] == pytest.approx(12.7062 * 1.0, rel=1e-4)
    assert bars.loc[("chat", "cast"), "mean"] == 1.0
    assert bars.loc[("all", "cast"), "mean"] == 2.0  # of 3 and 1
    assert ("code", "treespark") not in bars.index
    assert tuple(bars.loc[("all", "treespark"), ["mean", "n"]]) == (2.0, 1)
    assert "autoregressive" not in bars.index.get_level_values("label")


# ---------------------------------------------------------------- budgets


def _width(policy: str, verified: float, rate: float, /, **settings) -> dict:
    return summary(policy, rate, policy_config=settings, draft_nodes_per_request=verified)


def _swept(folder: Path) -> tuple:
    """The comparison at one load, and its swept widths of two points at least by name."""
    found = comparison(folder)
    tried = tried_widths(found, found.rows)
    return found, {one.name: one for one in tried if len(one.nodes) > 1}


def test_widths_are_swept_by_the_setting_that_counts_nodes(tmp_path):
    def tree(nodes: int, branch: int, throughput: float) -> dict:
        return _width("fixed_tree", nodes, throughput, nodes=nodes, branch=branch)

    codes = [{"policy_code": {"target": "c", "sha256": sha * 32}} for sha in ("a1", "b2")]
    folder = write_runs(
        tmp_path,
        summary("autoregressive", 50.0),
        *(tree(nodes, 8, 100.0 + nodes) for nodes in (15, 3, 63)),
        *(tree(nodes, 2, 90.0 + nodes) for nodes in (3, 15)),
        *(_width("pctree", n - 1, 70.0 * n, packed_tokens=n) for n in (2, 4)),
        *(summary("treespark", 1.0 + t, policy_config={"theta": t}) for t in (0.1, 0.2)),
        *(_width("opt_tree", n, 1.0, nodes=n) | code for code in codes for n in (3, 7)),
        summary("cast", 1.0, policy_config={"width": 7}),
    )
    every, found = _swept(folder)
    sources = {"opt_tree(source=a1a1a1a1)", "opt_tree(source=b2b2b2b2)"}
    assert set(found) == {"fixed_tree(branch=2)", "fixed_tree(branch=8)", "pctree"} | sources
    nodes = found["fixed_tree(branch=8)"].nodes
    means = every.estimates("speedup").loc[nodes.index, "mean"]
    assert list(zip(nodes, means)) == [(3, 2.06), (15, 2.3), (63, 3.26)]
    assert list(found["pctree"].nodes) == [1, 3]  # the root is no draft node
    assert all(one.exact and not one.note for one in found.values())


@pytest.mark.parametrize(
    ("verified", "places", "exact"),
    [
        ((15.0, 56.7), [15, 63], True),  # 10 % fewer of 63, as near ends of texts
        ((15.0, 56.0), [15.0, 56.0], False),  # 11 % fewer
        ((16.6, 63.0), [16.6, 63.0], False),  # 11 % more of 15
    ],
)
def test_a_setting_is_a_budget_where_it_is_what_was_verified(tmp_path, verified, places, exact):
    write_run(tmp_path, summary("autoregressive", 50.0))
    for nodes, own in zip((15, 63), verified):
        data = _width("fixed_tree", own, 100.0 + nodes, nodes=nodes)
        write_run(tmp_path, data | {"acceptance_length": 2 + nodes / 10})
    (found,) = _swept(tmp_path)[1].values()
    assert (list(found.nodes), found.exact) == (places, exact)
    said = "" if exact else "fixed_tree: at the mean nodes verified, not at nodes."
    assert found.note == said
    (one,) = drawn(tmp_path, "budget")
    speedup, length = one.figure.axes
    assert length.get_xlabel() == ("node budget (N)" if exact else "nodes verified per request (N)")
    line = named(speedup)["fixed_tree"]
    assert list(line.get_xdata()) == places
    assert list(line.get_ydata()) == pytest.approx([2.3, 3.26])
    assert list(named(length)["fixed_tree"].get_ydata()) == pytest.approx([3.5, 8.3])
    assert line.get_color() == KNOWN["fixed_tree"].colour


def test_a_width_that_changes_nothing_is_no_sweep(tmp_path):
    """CAST alone runs its own width of 31, whatever it may give to each request of a batch."""
    alone = [summary("autoregressive", 50.0)]
    alone += [_width("cast", 31.0, 150.0, nodes_per_request=n) for n in (4, 8, 16)]
    verified = {4: 0.0, 8: 31.0, 16: 31.2, 64: 60.0}
    bastion = [_width("bastion", nodes, 100.0, width=n) for n, nodes in verified.items()]
    folder = write_runs(tmp_path / "runs", *alone, *bastion)
    found = _swept(folder)[1]
    assert {name: list(one.nodes) for name, one in found.items()} == {"bastion": [31.0, 60.0]}
    (one,) = drawn(folder, "budget")
    text = " ".join([one.sentence, *one.remarks])
    assert "cast is not drawn: nodes_per_request 4, 8, 16 changed no number of nodes." in text
    assert "Without width 4, 16: as many nodes as at another, or none." in text
    assert "against nodes verified per request, at concurrency 4" in text
    with pytest.raises(InputError, match="nodes_per_request 4, 8, 16 changed no number of nodes"):
        drawn(write_runs(tmp_path / "lone", *alone), "budget")


def test_variants_whose_curve_is_another_ones_beginning_share_its_line(tmp_path):
    ends = {"1": 1.5, "4": 2.25}
    # 8 is another tree, not how the largest begins; cast is another policy.
    curves = {4: ends, 16: ends | {"16": 3.0}, 8: {"1": 1.5, "8": 2.4}}
    for nodes, curve in curves.items():
        data = summary("fixed_tree", 1.0, policy_config={"nodes": nodes})
        write_run(tmp_path, data | {"acceptance_length_by_budget": curve})
    write_run(tmp_path, summary("cast", 1.0, acceptance_length_by_budget=ends))
    found = order_curves(comparison(tmp_path))
    assert {one.name: tuple(one.points["x"]) for one in found} == {
        "fixed_tree(nodes=4), fixed_tree(nodes=16)": (1, 4, 16),
        "fixed_tree(nodes=8)": (1, 8),
        "cast": (1, 4),
    }


def test_nodes_per_request_by_batch_size(tmp_path):
    tree = steps([4] * 30 + [2] * 19, [40] * 15 + [20] * 15 + [2] * 19)
    write_run(tmp_path / "a", summary("cast"), tree)
    write_run(tmp_path / "a", summary("cast", seed=1), steps([2], [6]))
    write_run(tmp_path / "a", summary("autoregressive"), steps([4] * 30, [0] * 30))
    write_run(tmp_path / "a", summary("treespark"))  # wrote no steps
    sums = step_sums(comparison(tmp_path / "a"))
    assert set(sums["label"]) == {"autoregressive", "cast"}
    # At 4: 900 nodes of 120 requests. At 2: 19 x 2 + 6 = 44 of 40, in 20 steps of two runs.
    assert node_lines(sums).to_numpy().tolist() == [["cast", 2.0, 1.1], ["cast", 4.0, 7.5]]
    # Neighbouring sizes are put together where they are many.
    sizes = [size for size in range(1, 17) for _ in range(20)]
    write_run(tmp_path / "b", summary("cast"), steps(sizes, [3 * size for size in sizes]))
    points = node_lines(step_sums(comparison(tmp_path / "b")))
    assert len(points) < 16
    assert list(points["y"]) == pytest.approx([3.0] * len(points))
    assert points["x"].is_monotonic_increasing


# ---------------------------------------------------------------- rates


def test_frontier_holds_exactly_what_nothing_exceeds():
    rng = np.random.default_rng(3)
    for _ in range(50):
        pairs = rng.integers(1, 6, (12, 2)).tolist()  # many ties
        best = frontier(pandas.DataFrame(pairs, columns=["x", "y"], dtype=float))
        expected = {
            (x, y)
            for x, y in pairs
            if not any((a >= x and b >= y and (a, b) != (x, y)) for a, b in pairs)
        }
        assert set(zip(best["x"], best["y"])) == expected
        assert best["x"].is_monotonic_increasing


def test_rates_are_per_gpu_of_all_replicas(tmp_path):
    old = summary("cast", 120.0, server={"replicas": 3})
    del old["output_throughput_per_gpu"]
    unknown = dict(old, latency={"profile": "card_a", "num_gpus": None})
    rates = per_gpu_rates(read_runs([write_runs(tmp_path, old, unknown, summary("cast", 120.0))]))
    assert rates.fillna(-1.0).tolist() == [120.0 / (2 * 3), -1.0, 60.0]


# ---------------------------------------------------------------- the time of a step

STEP = {"draft": 1.0, "verify": 80.0, "host": 0.5, "prefill": 0.0, "total": 81.5}
WHOLE = {"prefill_ms_total": 100.0, "step_ms": STEP}
NAMES = ["draft", "verify", "padding", "host", "prefill"]


def _parts(folder: Path):
    """Of the one run below a folder: its path, its summary and the parts of its steps."""
    found = comparison(folder)
    (run,) = found.runs.itertuples()
    parts = round_parts(found)
    return run.path, run.data, None if parts.empty else parts.loc[0]


def _timed(begin_s: list[float], **columns: list) -> dict:
    """Steps of 81.5 ms that begin at these seconds."""
    count = len(begin_s)
    rows = {"batch": [4] * count, "draft_nodes": [8] * count}
    return rows | {"time_s": begin_s, "step_s": [0.0815] * count} | columns


def test_parts_of_a_round(tmp_path):
    """Every second step waits for a prompt, and some of them were pushed out and are read again."""
    begin = [0.1 * (3 * at // 2) for at in range(40)]  # at 0, 0.1, 0.3, 0.4, 0.6 s, ...
    # From 0.3 s to the end of the step at 5.7 s: two steps every 0.3 s, 18 times, and one more.
    window = {"kind": "full batch", "start_s": 0.3, "end_s": 5.7 + 0.0815, "requests": 9}
    write_run(tmp_path, summary("cast", window=window, preemptions=3, **WHOLE), _timed(begin))
    *_, parts = _parts(tmp_path)
    assert parts[NAMES[:4]].tolist() == [1.0, 60.0, 20.0, 0.5]
    # The parts are the window's time, over its steps: not what first readings took, 100 ms.
    assert parts["total"] == pytest.approx(1e3 * (5.4 + 0.0815) / 37)
    assert parts[NAMES].sum() == pytest.approx(parts["total"])
    assert parts["hidden"] == pytest.approx(0)
    write_run(tmp_path / "old", summary("cast", step_ms={"draft": None, "verify": 1.0}))
    assert _parts(tmp_path / "old")[-1] is None


def test_time_without_a_request_is_no_prefill(tmp_path):
    """Steps at 1, 2 and 4 s; requests from 0.9 to 2.0815 and from 3.95 to 4.0815: 0.1, 0.05 s
    before the first of each, and 0.9185 s between the first two, are prompts."""
    window = {"kind": "whole run", "start_s": 0.0, "end_s": 5.0, "requests": 2}
    data = summary("cast", window=window, request_rate=1.0, num_prompts=3, completed=2, rejected=1)
    run = write_run(tmp_path, data | WHOLE, _timed([1.0, 2.0, 4.0]))
    path, data, parts = _parts(tmp_path)
    assert parts is None  # not known without the requests
    ends = [2.0815, float("nan"), 4.0815]
    write_table(run, "requests", arrival_s=[0.9, 3.0, 3.95], finish_s=ends)
    spent = spent_in_window(path, data)
    assert (spent.steps, spent.idle_s) == (3, pytest.approx(5 - 1.1815 - 0.1315))
    assert spent.between_s == pytest.approx(0.1 + 0.05 + 0.9185)
    *_, parts = _parts(tmp_path)
    assert parts["prefill"] == pytest.approx(1068.5 / 3)
    assert 3 * parts["total"] == pytest.approx(1e3 * (5 - spent.idle_s))


def test_replicas_have_their_own_steps_and_stays(tmp_path):
    """Two servers over 1 s: 0.3 s of the second one's step before the window; the first reads
    prompts for 0.5185 of the 0.6 s in which it has a request."""
    window = {"kind": "full batch", "start_s": 1.0, "end_s": 2.0, "requests": 2}
    data = summary("cast", window=window, server={"replicas": 2}, num_prompts=2, completed=2)
    rows = {"batch": [1, 1], "draft_nodes": [1, 1], "time_s": [1.2, 0.7], "step_s": [0.0815, 0.5]}
    run = write_run(tmp_path, data | WHOLE, rows | {"replica": [0, 1]})
    write_table(run, "requests", arrival_s=[1.0, 0.0], finish_s=[1.6, 1.2], replica=[0, 1])
    spent = spent_in_window(*_parts(tmp_path)[:2])
    assert (spent.steps, spent.idle_s) == (1, pytest.approx(0.4 + 0.8))
    assert spent.between_s == pytest.approx(0.5185)


def _simulated(recorded: Path, *words: str) -> tuple:
    common = [f"trace={recorded}", "trace.split=null", "latency=small_pair_block_cpu"]
    common += ["policy=fixed_chain", "policy.length=4", "max_concurrency=4", "hydra.run.dir=runs/a"]
    assert simulate([*common, *words]) == 0
    return _parts(Path("runs"))


def test_time_between_steps_is_what_prefill_took(recorded, here):
    """Two servers with arrivals and gaps without any: no request is pushed out, so the time of all
    first readings is what is left of the window without steps and idle time."""
    words = ["server.replicas=2", "request_rate=30", "num_prompts=40"]
    path, data, _ = _simulated(recorded, *words)
    spent = spent_in_window(path, data)
    assert data["preemptions"] == 0
    assert spent.idle_s > 0
    assert spent.between_s == pytest.approx(data["prefill_ms_total"] / 1e3)
    assert data["prefill_ms_total"] > 0


def test_parts_of_a_preempting_server_are_the_windows_time(recorded, here):
    """A simulated run whose cache pushes requests out, prompts read whole: nothing is lost."""
    words = ["server.kv_block=1", "workload.prompt_tokens=64", "server.kv_tokens=300"]
    path, data, parts = _simulated(recorded, *words, "num_prompts=60")
    assert data["preemptions"] > 0
    inside = steps_in_window(path, data)
    seconds = data["window"]["end_s"] - data["window"]["start_s"]
    assert inside * parts[NAMES].sum() == pytest.approx(1e3 * seconds)
    assert inside * parts["prefill"] > data["prefill_ms_total"] > 0  # read again


# ---------------------------------------------------------------- profiles and drafts


@pytest.mark.parametrize("name", known_profiles())
def test_every_shipped_profile_is_taken_whole(name):
    path = PROFILE_FOLDER / f"{name}.csv"
    times = verify_times(read_profile(path))
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(times["ms"]) == sorted(float(row["verify_ms"]) for row in rows)
    for _, own in relative(times).groupby("label"):
        assert own["base"].iloc[0] == pytest.approx(np.interp(16, own["tokens"], own["ms"]))


def test_latency_relative_to_16_by_hand():
    # The first lines of the table: 5.109 ms at 1 token, 5.592 ms at 16.
    lines = relative(verify_times(read_profile(PROFILE_FOLDER / "b300.csv")))
    (label,) = set(lines["label"])
    first = lines.iloc[0]
    assert (first["tokens"], first["ms"], first["base"]) == (1, 5.109, 5.592)
    assert first["ratio"] == 5.109 / 5.592
    assert "any batch" in label
    assert list(lines["eager"].iloc[[0, -1]]) == [False, True]


def test_of_several_batches_and_contexts_the_smallest_near_1024_is_drawn_with_others():
    slices = ((1, 512, 2.0), (1, 900, 3.0), (1, 4096, 4.0), (2, 1024, 5.0))
    rows = [
        {"batch": batch, "context": context, "tokens": tokens, "ms": ms, "label": f"{batch}.{ms}"}
        for batch, context, ms in slices
        for tokens in (8, 16, 32)
    ]
    found = single(pandas.DataFrame(rows))
    assert set(zip(found["batch"], found["context"], found["base"])) == {(1, 900, 3.0)}


def test_masses_of_the_published_file_and_of_a_recording():
    with (Path(traces.__file__).parent / "published" / "cast_mass_curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["domain"] == "gsm8k"]
    curve = published_curves()[0]
    assert curve.name == "gsm8k (CAST)"
    assert curve.mass[1] == float(rows[0]["mean_prefix_mass"]) == 0.859477
    assert len(curve.mass) == len(rows)
    assert "arXiv 2610.00321" in curve.source
    curve = recorded_curve(Path(traces.__file__).parent / "data" / "small_block_t0.safetensors")
    assert all(a >= b > 0 for a, b in zip(curve.mass, curve.mass.iloc[1:]))
    assert 0 < curve.mass[1] < 1
    assert curve.name == "small_block_t0"


class _Drafter:
    """Draft laws over three tokens at three depths, drawn at random for every parent."""

    depths = 3

    def __init__(self, seed: int) -> None:
        self.law = np.random.default_rng(seed).dirichlet([0.7] * 3, (self.depths, 3))

    def anchor_tokens(self, anchors):
        return np.zeros(len(anchors), int)

    def conditional(self, anchor, depth, parents, top):
        law = self.law[depth, parents[0]]
        order = np.argsort(-law)
        return order[None], np.log(law[order])[None]


@pytest.mark.parametrize("seed", range(5))
def test_masses_are_the_largest_products_of_all_paths(seed):
    drafter = _Drafter(seed)
    masses = []
    for depth in range(1, 4):
        for path in product(range(3), repeat=depth):
            parents = (0, *path[:-1])
            logs = [log(drafter.law[at, u, x]) for at, (u, x) in enumerate(zip(parents, path))]
            masses.append(exp(sum(logs)))
    found = list(sorted_masses(drafter, 0))
    assert found == pytest.approx(sorted(masses, reverse=True)[:NODES])
    assert len(found) == 3 + 9 + 27


# ---------------------------------------------------------------- lines on one another


def test_lines_that_are_the_same_are_both_seen_and_named(tmp_path):
    """fixed_chain under tuned_chain: wider, its marks larger, and said in the figure."""
    rates = {"autoregressive": (10, 40), "fixed_chain": (20, 70), "tuned_chain": (20, 70),
             "cast": (20, 90)}  # fmt: skip
    for policy, both in rates.items():
        for load, rate in zip((1, 4), both):
            write_run(tmp_path, summary(policy, float(rate), max_concurrency=load))
    (one,) = drawn(tmp_path, "throughput")
    assert one.figure.get_supxlabel() == "same line: fixed_chain = tuned_chain"
    axes = one.figure.axes[0]
    widths = {name: line.get_linewidth() for name, line in named(axes).items()}
    assert widths["fixed_chain"] > widths["tuned_chain"] == widths["cast"]
    size = named(axes)["cast"].get_markersize()
    found = [
        (line.get_color(), *line.get_xdata(), (line.get_markersize() - size) / 1.7)
        for line in axes.get_lines()
        if line.get_label() == "_below"
    ]
    sky, blue = (KNOWN[name].colour for name in ("fixed_chain", "tuned_chain"))
    # At 1 both chains lie below cast, at 4 one below the other.
    expected = [(sky, 1, 2), (sky, 4, 1), (blue, 1, 1)]
    assert found == [(*mark, pytest.approx(more)) for *mark, more in expected]


def _lines(**lines: list) -> pandas.DataFrame:
    points = [(label, *point) for label, own in lines.items() for point in own]
    return pandas.DataFrame(points, columns=["label", "x", "y"])


def test_points_under_later_lines_by_hand():
    lines = _lines(a=[(1, 10.0), (2, 20.0)], b=[(1, 10.01), (2, 21.0)], c=[(1, 10.0)])
    assert covered(lines).tolist() == [2, 0, 1, 0, 0]
    other = _lines(a=[(1, 5.0)], b=[(1, 5.0)], d=[(1, 5.0)])
    assert equal_lines([other]) == [["a", "b", "d"]]
    assert equal_lines([lines, other]) == []  # the same in one panel, not in both
    assert equal_words([_lines(**{name: [(1, 1.0)] for name in "abc"})]) == ["same line: a = b = c"]
    pairs = {f"{name}{at}": [(1, float(at + 1))] for at in range(5) for name in "ab"}
    assert equal_words([_lines(**pairs)]) == ["same line: a0 = b0, a1 = b1, a2 = b2, 2 more"]
