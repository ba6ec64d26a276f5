"""What figures take from results, by hand and by brute force."""

from __future__ import annotations

import csv
from itertools import product
from math import exp, log
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import traces
from analysis.__main__ import main
from analysis.budgets import swept_widths
from analysis.figure.domains import speedups
from analysis.figure.latency import relative, single
from analysis.figure.nodes import node_lines, step_sums
from analysis.figure.pareto import Spot, frontier, per_gpu_rate
from analysis.figure.time import round_parts
from analysis.figures import draw
from analysis.inputs import read_inputs
from analysis.prefix_mass import NODES, published_curves, recorded_curve, sorted_masses
from analysis.profiles import SHIPPED, read_profile, shipped_profile
from analysis.steps import spent_in_window, steps_in_window
from analysis.summaries import read_summaries
from simulator.cli.main import main as simulate
from tests.figure_cases import comparison, steps, summary, write_run
from traces.common.errors import InputError


def _write(folder: Path, *runs: dict) -> Path:
    for run in runs:
        write_run(folder, run)
    return folder


def test_speedups_by_domain_are_means_of_ratios_paired_by_seed(tmp_path):
    def of(policy: str, seed: int, code: float | None, every: float) -> dict:
        domains = {"code": {"mean_tpot_ms": code}, "chat": {"mean_tpot_ms": 12.0}}
        return summary(policy, seed=seed, by_domain=domains, mean_tpot_ms=every)

    folder = _write(
        tmp_path,
        of("autoregressive", 0, 10.0, 9.0),
        of("autoregressive", 1, 20.0, 9.0),
        of("cast", 0, 5.0, 3.0),
        of("cast", 1, 5.0, 9.0),
        of("treespark", 0, None, 4.5),  # no request of this domain was measured
    )
    bars = speedups(comparison(folder).blocks[0])
    assert list(bars) == ["code", "chat", "all"]
    assert (bars["code"]["cast"].mean, bars["code"]["cast"].n) == (3.0, 2)  # of 2 and 4
    assert bars["code"]["cast"].half_width == pytest.approx(12.7062 * 1.0, rel=1e-4)
    assert bars["chat"]["cast"].mean == 1.0
    assert bars["all"]["cast"].mean == 2.0  # of 3 and 1
    assert "treespark" not in bars["code"]
    assert (bars["all"]["treespark"].mean, bars["all"]["treespark"].n) == (2.0, 1)
    assert all("autoregressive" not in one for one in bars.values())


def _width(policy: str, verified: float, rate: float, /, **settings) -> dict:
    return summary(policy, rate, policy_config=settings, draft_nodes_per_request=verified)


def test_widths_are_swept_by_the_setting_that_counts_nodes(tmp_path):
    def tree(nodes: int, branch: int, throughput: float) -> dict:
        return _width("fixed_tree", nodes, throughput, nodes=nodes, branch=branch)

    folder = _write(
        tmp_path,
        summary("autoregressive", 50.0),
        *(tree(nodes, 8, 100.0 + nodes) for nodes in (15, 3, 63)),
        *(tree(nodes, 2, 90.0 + nodes) for nodes in (3, 15)),
        *(_width("pctree", n - 1, 70.0 * n, packed_tokens=n) for n in (2, 4)),
        *(summary("treespark", 1.0 + t, policy_config={"theta": t}) for t in (0.1, 0.2)),
        summary("cast", 1.0, policy_config={"width": 7}),
    )
    found = {one.name: one for one in swept_widths(comparison(folder).blocks[0])}
    assert set(found) == {"fixed_tree(branch=2)", "fixed_tree(branch=8)", "pctree"}
    points = found["fixed_tree(branch=8)"].estimates("speedup")
    assert [(nodes, one.mean) for nodes, one in points] == [(3, 2.06), (15, 2.3), (63, 3.26)]
    assert [nodes for nodes, _ in found["pctree"].points] == [1, 3]  # the root is no draft node
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
    pairs = zip((15, 63), verified)
    folder = _write(tmp_path, *(_width("fixed_tree", n, 9.0, nodes=s) for s, n in pairs))
    (found,) = swept_widths(comparison(folder).blocks[0])
    assert ([nodes for nodes, _ in found.points], found.exact) == (places, exact)
    said = "" if exact else "fixed_tree: at the mean nodes verified, not at nodes."
    assert found.note == said


def test_a_width_that_changes_nothing_is_no_sweep(tmp_path):
    """CAST alone runs its own width of 31, whatever it may give to each request of a batch."""
    folder = _write(
        tmp_path / "runs",
        summary("autoregressive", 50.0),
        *(_width("cast", 31.0, 150.0, nodes_per_request=n) for n in (4, 8, 16)),
        *(_width("bastion", nodes, 100.0, width=n)
          for n, nodes in ((4, 0.0), (8, 31.0), (16, 31.2), (64, 60.0))),
    )  # fmt: skip
    block = comparison(folder).blocks[0]
    (bastion,) = swept_widths(block)
    assert (bastion.name, [nodes for nodes, _ in bastion.points]) == ("bastion", [31.0, 60.0])
    words = ["figures", str(folder), "--only", "budget", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    text = (tmp_path / "out" / "speedup_vs_budget.txt").read_text()
    assert "cast is not drawn: nodes_per_request 4, 8, 16 changed no number of nodes." in text
    assert "Without width 4, 16: as many nodes as at another, or none." in text
    assert "against nodes verified per request, at concurrency 4" in text
    lone = _write(
        tmp_path / "lone",
        summary("autoregressive", 50.0),
        *(_width("cast", 31.0, 150.0, nodes_per_request=n) for n in (4, 8)),
    )
    with pytest.raises(InputError, match="nodes_per_request 4, 8 changed no number of nodes"):
        draw(read_inputs([lone]), ["budget"], strict=True)


def test_the_axis_says_whether_it_is_what_was_set_or_verified(tmp_path):
    for name, of in (("set", lambda nodes: nodes), ("verified", lambda nodes: nodes / 2)):
        folder = _write(
            tmp_path / name,
            summary("autoregressive", 50.0),
            *(_width("fixed_tree", of(n), 100.0 + n, nodes=n) for n in (7, 31)),
        )
        (drawn,) = draw(read_inputs([folder]), ["budget"], strict=True)
        axes = drawn.figure.axes[1]
        label = {"set": "node budget (N)", "verified": "nodes verified per request (N)"}[name]
        assert axes.get_xlabel() == label
        (line,) = [one for one in axes.get_lines() if one.get_label() == "fixed_tree"]
        assert list(line.get_xdata()) == [of(7), of(31)]


def test_sources_of_one_policy_are_lines_of_their_own(tmp_path):
    runs = [
        _width("cast", nodes, rate, nodes=nodes) | {"policy_code": {"target": "c", "sha256": sha}}
        for sha, rate in (("a1" * 32, 1.0), ("b2" * 32, 2.0))
        for nodes in (3, 7)
    ]
    found = swept_widths(comparison(_write(tmp_path, *runs)).blocks[0])
    assert [one.name for one in found] == ["cast(source=a1a1a1a1)", "cast(source=b2b2b2b2)"]


def test_frontier_holds_exactly_what_nothing_exceeds():
    rng = np.random.default_rng(3)
    for _ in range(50):
        pairs = rng.integers(1, 6, (12, 2)).tolist()  # many ties
        spots = [Spot("p", at, float(x), float(y)) for at, (x, y) in enumerate(pairs)]
        kept = {(one.user, one.gpu) for one in frontier(spots)}
        expected = {
            (x, y)
            for x, y in pairs
            if not any((a >= x and b >= y and (a, b) != (x, y)) for a, b in pairs)
        }
        assert kept == expected
        users = [one.user for one in frontier(spots)]
        assert users == sorted(users)


def test_rates_are_per_gpu_of_all_replicas(tmp_path):
    old = summary("cast", 120.0, server={"replicas": 3})
    del old["output_throughput_per_gpu"]
    unknown = dict(old, latency={"profile": "card_a", "num_gpus": None})
    folder = _write(tmp_path, old, unknown, summary("cast", 120.0))
    rates = [per_gpu_rate(run) for run in read_summaries([folder])]
    assert rates == [120.0 / (2 * 3), None, 60.0]


def test_nodes_per_request_by_batch_size(tmp_path):
    tree = steps([4] * 30 + [2] * 19, [40] * 15 + [20] * 15 + [2] * 19)
    write_run(tmp_path, summary("cast"), tree)
    write_run(tmp_path, summary("cast", seed=1), steps([2], [6]))
    write_run(tmp_path, summary("autoregressive"), steps([4] * 30, [0] * 30))
    write_run(tmp_path, summary("treespark"))  # wrote no steps
    sums = step_sums(comparison(tmp_path))
    assert set(sums) == {"autoregressive", "cast"}
    # At 4: 900 nodes of 120 requests. At 2: 19 x 2 + 6 = 44 of 40, in 20 steps of two runs.
    assert node_lines(sums) == {"cast": [(2.0, 1.1), (4.0, 7.5)]}


def test_neighbouring_batch_sizes_are_put_together(tmp_path):
    sizes = list(range(1, 17))
    rows = steps(
        [size for size in sizes for _ in range(20)], [3 * n for n in sizes for _ in range(20)]
    )
    write_run(tmp_path, summary("cast"), rows)
    points = node_lines(step_sums(comparison(tmp_path)))["cast"]
    assert len(points) < len(sizes)
    assert [nodes for _, nodes in points] == pytest.approx([3.0] * len(points))
    assert [size for size, _ in points] == sorted(size for size, _ in points)


STEP = {"draft": 1.0, "verify": 80.0, "host": 0.5, "prefill": 0.0, "total": 81.5}
WHOLE = {"prefill_ms_total": 100.0, "step_ms": STEP}


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
    data = summary("cast", window=window, preemptions=3, **WHOLE)
    write_run(tmp_path, data, _timed(begin))
    (row,) = comparison(tmp_path).blocks[0].rows
    parts = round_parts(row)
    assert parts["draft"] == 1.0
    assert (parts["verify"], parts["padding"], parts["host"]) == (60.0, 20.0, 0.5)
    names = ("draft", "verify", "padding", "host", "prefill")
    inside = sum(0.3 - 1e-9 <= at <= 5.7 + 1e-9 for at in begin)
    assert inside == 37
    # The parts are the window's time, over its steps: not what first readings took, 100 ms.
    assert parts["total"] == pytest.approx(1e3 * (5.4 + 0.0815) / inside)
    assert sum(parts[name] for name in names) == pytest.approx(parts["total"])
    assert parts["hidden"] == pytest.approx(0)


def test_time_without_a_request_is_no_prefill(tmp_path):
    """Steps at 1, 2 and 4 s; requests from 0.9 to 2.0815 and from 3.95 to 4.0815: 0.1, 0.05 s
    before the first of each, and 0.9185 s between the first two, are prompts."""
    window = {"kind": "whole run", "start_s": 0.0, "end_s": 5.0, "requests": 2}
    data = summary("cast", window=window, request_rate=1.0, num_prompts=3, completed=2, rejected=1)
    run = write_run(tmp_path, data | WHOLE, _timed([1.0, 2.0, 4.0]))
    (row,) = comparison(tmp_path).blocks[0].rows
    assert round_parts(row) is None  # not known without the requests
    stays = {"arrival_s": [0.9, 3.0, 3.95], "finish_s": [2.0815, float("nan"), 4.0815]}
    parquet.write_table(pyarrow.table(stays), run / "requests.parquet")
    spent = spent_in_window(row.runs[0])
    assert (spent.steps, spent.idle_s) == (3, pytest.approx(5 - 1.1815 - 0.1315))
    assert spent.between_s == pytest.approx(0.1 + 0.05 + 0.9185)
    parts = round_parts(row)
    assert parts["prefill"] == pytest.approx(1068.5 / 3)
    assert 3 * parts["total"] == pytest.approx(1e3 * (5 - spent.idle_s))


def test_replicas_have_their_own_steps_and_stays(tmp_path):
    """Two servers over 1 s: 0.3 s of the second one's step before the window; the first reads
    prompts for 0.5185 of the 0.6 s in which it has a request."""
    window = {"kind": "full batch", "start_s": 1.0, "end_s": 2.0, "requests": 2}
    data = summary("cast", window=window, server={"replicas": 2}, num_prompts=2, completed=2)
    rows = {"batch": [1, 1], "draft_nodes": [1, 1], "time_s": [1.2, 0.7], "step_s": [0.0815, 0.5]}
    run = write_run(tmp_path, data | WHOLE, rows | {"replica": [0, 1]})
    stays = {"arrival_s": [1.0, 0.0], "finish_s": [1.6, 1.2], "replica": [0, 1]}
    parquet.write_table(pyarrow.table(stays), run / "requests.parquet")
    (row,) = comparison(tmp_path).blocks[0].rows
    spent = spent_in_window(row.runs[0])
    assert (spent.steps, spent.idle_s) == (1, pytest.approx(0.4 + 0.8))
    assert spent.between_s == pytest.approx(0.5185)


def test_time_between_steps_is_what_prefill_took(recorded, here):
    """Two servers with arrivals and gaps without any: no request is pushed out, so the time of all
    first readings is what is left of the window without steps and idle time."""
    words = [f"trace={recorded}", "trace.split=null", "latency=small_pair_block_cpu"]
    words += ["policy=fixed_chain", "policy.length=4", "server.replicas=2", "request_rate=30"]
    assert simulate([*words, "max_concurrency=4", "num_prompts=40", "hydra.run.dir=runs/a"]) == 0
    (row,) = comparison(here / "runs").blocks[0].rows
    data, spent = row.runs[0].data, spent_in_window(row.runs[0])
    assert data["preemptions"] == 0
    assert spent.idle_s > 0
    assert spent.between_s == pytest.approx(data["prefill_ms_total"] / 1e3)
    assert data["prefill_ms_total"] > 0


def test_parts_of_a_preempting_server_are_the_windows_time(recorded, here):
    """A simulated run whose cache pushes requests out, prompts read whole: nothing is lost."""
    words = [f"trace={recorded}", "trace.split=null", "latency=small_pair_block_cpu"]
    words += ["policy=fixed_chain", "policy.length=4", "server.kv_block=1"]
    words += ["workload.prompt_tokens=64", "server.kv_tokens=300"]
    assert simulate([*words, "max_concurrency=4", "num_prompts=60", "hydra.run.dir=runs/a"]) == 0
    (row,) = comparison(here / "runs").blocks[0].rows
    data = row.runs[0].data
    assert data["preemptions"] > 0
    steps = steps_in_window(row.runs[0])
    parts = round_parts(row)
    seconds = data["window"]["end_s"] - data["window"]["start_s"]
    names = ("draft", "verify", "padding", "host", "prefill")
    assert steps * sum(parts[name] for name in names) == pytest.approx(1e3 * seconds)
    assert steps * parts["prefill"] > data["prefill_ms_total"] > 0  # read again


def test_old_summaries_have_no_parts(tmp_path):
    write_run(tmp_path, summary("cast", step_ms={"draft": None, "verify": 1.0}))
    (row,) = comparison(tmp_path).blocks[0].rows
    assert round_parts(row) is None


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_profile_is_read_whole(path):
    table = shipped_profile(path.stem)
    profile = read_profile(table)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    read = sorted(ms for one in profile.slices for ms in one.verify_ms)
    assert read == sorted(float(row["verify_ms"]) for row in rows)
    for one, base in relative(profile).values():
        assert base == one.at(16)


def test_latency_relative_to_16_by_hand():
    # The first lines of the table: 5.109 ms at 1 token, 5.592 ms at 16.
    ((name, (one, base)),) = relative(read_profile(shipped_profile("b300"))).items()
    assert (one.tokens[0], one.verify_ms[0], base) == (1, 5.109, 5.592)
    assert "any batch" in name
    assert not one.eager[0]
    assert one.eager[-1]


def test_of_several_batches_and_contexts_the_smallest_near_1024_is_drawn_with_others(tmp_path):
    table = tmp_path / "card.csv"
    table.with_suffix(".yaml").write_text("hardware: card\nsource: a test\n")
    head = "batch,kv_prefix_tokens,packed_tokens_total,verify_ms,regime\n"
    rows = [
        f"{batch},{context},{tokens},{ms},eager"
        for batch, context, ms in ((1, 512, 2), (1, 900, 3), (1, 4096, 4), (2, 1024, 5))
        for tokens in (8, 16, 32)
    ]
    table.write_text(head + "\n".join(rows) + "\n")
    one, base = single(read_profile(table))
    assert (one.batch, one.prefix, base) == ("1", 900, 3.0)


def test_damaged_profiles_are_refused_by_line(tmp_path):
    table = tmp_path / "card.csv"
    table.with_suffix(".yaml").write_text("hardware: card\nfixed: {batch: 1}\n")
    table.write_text("packed_tokens_total,verify_ms,regime\n1,2.0,eager\n4,fast,eager\n")
    with pytest.raises(InputError, match=r"card.csv: line 3: .*fast"):
        read_profile(table)
    table.write_text("tokens,ms\n1,2\n")
    with pytest.raises(InputError, match="columns tokens, ms; accepted"):
        read_profile(table)


def test_published_masses_are_those_of_the_file():
    folder = Path(traces.__file__).parent / "published"
    with (folder / "cast_mass_curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["domain"] == "gsm8k"]
    curve = published_curves()[0]
    assert curve.name == "gsm8k (CAST)"
    assert curve.mass[0] == float(rows[0]["mean_prefix_mass"]) == 0.859477
    assert len(curve.mass) == len(rows)
    assert "arXiv 2610.00321" in curve.source


class _Drafter:
    """Draft laws over three tokens at three depths, drawn at random for every parent."""

    depths = 3

    def __init__(self, seed: int) -> None:
        law = np.random.default_rng(seed).dirichlet([0.7] * 3, (self.depths, 3))
        self.law = law

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


def test_mass_of_a_recording_falls_and_starts_at_its_best_first_token():
    path = Path(traces.__file__).parent / "data" / "small_block_t0.safetensors"
    curve = recorded_curve(path)
    assert all(a >= b > 0 for a, b in zip(curve.mass, curve.mass[1:]))
    assert 0 < curve.mass[0] < 1
    assert curve.name == "small_block_t0"
