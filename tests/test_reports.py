"""The public reports of `simulator/REPORTS.md`: every experiment composes, and what the page claims
holds on a small version of it (few prompts, two or three cells)."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from simulator.cost import find_profile
from simulator.engine.inputs import settled
from simulator.engine.run import load, prepare, run_job
from simulator.studies.options import CONF
from tests.composing import composed

ROOT = CONF.parent
PAGE = (ROOT / "simulator" / "REPORTS.md").read_text(encoding="utf-8")
REPORTS = sorted(path.stem for path in (CONF / "experiment").glob("report_*.yaml"))
CODE = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
CLIFF = "latency.cliffs=[{{above: {}, factor: 1.13}}]"
TABLES = {
    "schedule": "policy.table=[[1,4,2],[5,512,0]]",
    "always": "policy.table=[[1,512,2]]",
    "never": "policy.table=[[1,512,0]]",
}


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """Play one cell of an experiment; returns its summary, with its folder beside it."""
    known: dict[tuple[str, ...], dict] = {}

    def played(name: str, *overrides: str) -> dict:
        key = (name, *overrides)
        if key not in known:
            folder = tmp_path_factory.mktemp("run")
            job = prepare(load(settled(composed("config", f"experiment={name}", *overrides))))
            known[key] = run_job(job, folder) | {"folder": folder}
        return known[key]

    return played


@pytest.fixture
def speed(play):
    """Output tokens per second of one cell."""
    return lambda *words: play(*words)["output_throughput"]


@pytest.fixture
def in_checkout(monkeypatch):
    """Paths of experiments are relative to the checkout."""
    monkeypatch.chdir(ROOT)


# ---------------------------------------------------------------- the page


def test_the_page_names_every_experiment_and_no_other():
    assert set(re.findall(r"experiment=(report_\w+)", PAGE)) == set(REPORTS)


# ---------------------------------------------------------------- a fixed draft under load

COLLAPSE = "report_fixed_draft_collapse"


def at(clients: int) -> tuple[str, ...]:
    return f"max_concurrency={clients}", f"num_prompts={2 * clients + 100}"


def test_a_fixed_draft_peaks_where_it_fills_the_last_graph(speed):
    """128 x 8 tokens are the last captured size; with 129 the step leaves the graphs."""
    fixed = {clients: speed(COLLAPSE, "policy=fixed_chain", *at(clients)) for clients in (64, 128)}
    beyond = [speed(COLLAPSE, "policy=fixed_chain", *at(clients)) for clients in (129, 256)]
    assert fixed[128] > fixed[64] > max(beyond)
    plain = {c: speed(COLLAPSE, "policy=autoregressive", *at(c)) for c in (64, 128, 256)}
    assert fixed[128] > plain[128]
    assert beyond[1] < 0.5 * plain[256]
    assert fixed[64] / plain[64] > fixed[128] / plain[128]  # the speedup falls all along


@pytest.mark.parametrize("policy", ["tuned_chain", "adaptive_verification", "priced_survival"])
def test_drafts_sized_by_load_stay_ahead_of_none(speed, policy):
    for clients in (64, 128, 256):
        plain = speed(COLLAPSE, "policy=autoregressive", *at(clients))
        assert speed(COLLAPSE, f"policy={policy}", *at(clients)) > 1.1 * plain


def test_a_straight_line_through_the_staircase_sizes_drafts_wrongly(speed):
    full = "max_concurrency=256"
    plain = speed(COLLAPSE, "policy=autoregressive", full)
    smart = ("policy=smartspec", full)
    assert speed(COLLAPSE, *smart) < plain < speed(COLLAPSE, *smart, "policy.cost=measured")


# ---------------------------------------------------------------- prompts in the steps

PREFILL = "report_fixed_draft_prefill"


def test_chunks_priced_apart_do_not_move_the_peak_one_pass_does(play, in_checkout):
    """The page's script, on its own two runs."""
    words = ("policy=fixed_chain", "workload.max_prompt_tokens=128")
    load = ((clients, f"num_prompts={2 * clients + 20}") for clients in (64, 128))
    runs = {c: play(PREFILL, *words, f"max_concurrency={c}", few) for c, few in load}
    apart = {clients: run["output_throughput"] for clients, run in runs.items()}
    assert apart[128] > apart[64]
    script = next(code for kind, code in CODE if kind == "python")
    folders = [str(run["folder"]) for run in runs.values()]
    done = subprocess.run(
        [sys.executable, "-c", script, *folders], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    together = {int(clients): float(tokens) for _, _, clients, _, tokens in rows}
    assert together[64] > together[128]
    assert together[64] == pytest.approx(by_hand(runs[64]), rel=1e-4)


def by_hand(run: dict) -> float:
    """Tokens per second of the window's steps, read off the table with bisection."""
    steps, window = pd.read_parquet(run["folder"] / "steps.parquet"), run["window"]
    steps = steps[(steps.time_s >= window["start_s"]) & (steps.time_s <= window["end_s"])]
    rows = [(row.packed_tokens_total, row.verify_ms) for row in find_profile("b300").verify]
    sizes, ms = np.array(rows).T
    total = (steps.packed_tokens + steps.prefill_tokens).to_numpy()
    assert total.max() <= 1024  # inside the graphs: the next captured size, no interpolation
    verify_s = ms[np.searchsorted(sizes, total)] / 1e3
    return steps.committed.sum() / (verify_s + steps.draft_s).sum()


# ---------------------------------------------------------------- eager or graphs

MODES = "report_eager_or_graphs"


def test_eager_mode_hides_what_graphs_expose(play):
    """In eager mode every step takes its launches, so only accepted tokens count."""

    def cell(policy: str, mode: str, bubble_s: float) -> dict:
        host = f"latency.host.bubble_s={bubble_s}"
        return play(MODES, f"policy={policy}", f"latency.mode={mode}", host, "num_prompts=24")

    def ratio(*where) -> float:
        tree, chain = (cell(p, *where)["output_throughput"] for p in ("cast", "fixed_chain"))
        return tree / chain

    eager, graphs, exposed = ratio("eager", 0.005), ratio("graphs", 0), ratio("graphs", 0.005)
    assert eager == ratio("eager", 0)
    free, paid = (cell("fixed_chain", "graphs", s)["output_throughput"] for s in (0, 0.005))
    assert free == paid  # by trees alone
    for policy in ("cast", "fixed_chain"):
        step_s = pd.read_parquet(cell(policy, "eager", 0.005)["folder"] / "steps.parquet").step_s
        assert np.allclose(step_s, 0.03)
    assert eager > 1.15
    assert 1 < graphs < eager
    assert exposed < 0.9


# ---------------------------------------------------------------- a kernel's cliff

KERNEL = "report_kernel_cliff"


@pytest.mark.parametrize(("above", "under"), [(8, 7), (16, 15)])
def test_the_line_walks_over_the_cliff_and_measured_sizes_do_not(play, above, under):
    cliff, few = CLIFF.format(above), "num_prompts=24"
    line, measured, priced = (
        play(KERNEL, f"policy={policy}", cliff, few)
        for policy in ("cast", "cast_measured", "priced_survival")
    )
    before = play(KERNEL, "policy=cast", "latency.cliffs=null", few)
    assert line["policy_fit"]["width"] == before["policy_fit"]["width"] == 31
    assert line["output_throughput"] < 0.92 * before["output_throughput"]
    assert measured["policy_fit"]["width"] == under
    assert measured["output_throughput"] > 1.08 * line["output_throughput"]
    assert priced["output_throughput"] > measured["output_throughput"]


def test_a_cliff_it_never_reaches_narrows_the_line(play):
    far = play(KERNEL, "policy=cast", CLIFF.format(48), "num_prompts=24")
    assert far["policy_fit"]["width"] == 15


# ---------------------------------------------------------------- a schedule's threshold

CLOSED, TWO, OPEN = (
    "report_schedule_threshold",
    "report_schedule_two_lengths",
    "report_schedule_bursts",
)


def test_throughput_falls_where_load_crosses_the_threshold(speed):
    table = {
        clients: speed(TWO, TABLES["schedule"], f"max_concurrency={clients}") for clients in (4, 5)
    }
    always = [speed(TWO, TABLES["always"], f"max_concurrency={c}") for c in (4, 5)]
    never = speed(TWO, TABLES["never"], "max_concurrency=5")
    assert table[5] == never < 0.7 * table[4]
    assert table[4] == always[0] < always[1]
    for clients, tokens in table.items():  # the page's own numbers, from its whole run
        assert f"| {tokens:.1f} |" in PAGE, clients


@pytest.mark.parametrize(("below", "above"), [(31, 32), (63, 64)])
def test_default_tiers_fall_and_prices_do_not(speed, below, above):
    def pair(policy: str) -> list[float]:
        cells = (f"max_concurrency={clients}" for clients in (below, above))
        return [speed(CLOSED, f"policy={policy}", cell) for cell in cells]

    low, high = pair("batch_schedule")
    assert high < 0.9 * low
    for policy in ("tuned_chain", "priced_survival"):
        low, high = pair(policy)
        assert high > low


def test_bursts_hold_the_schedule_above_its_threshold(play):
    """At a rate that a draft of 2 serves with fewer than 4 requests, on average."""
    cell = ("request_rate=20", "burstiness=1", "num_prompts=256")
    runs = {name: play(OPEN, table, *cell) for name, table in TABLES.items()}
    batch, plain = {}, {}
    for name, run in runs.items():
        steps = pd.read_parquet(run["folder"] / "steps.parquet")
        batch[name] = np.average(steps.batch, weights=steps.step_s)
        plain[name] = 1 - steps.drafted.mean()
    assert batch["always"] < 4 < batch["schedule"] < batch["never"]
    assert 0.5 < plain["schedule"] < 1
    slow, fast = runs["schedule"]["median_tpot_ms"], runs["always"]["median_tpot_ms"]
    assert slow > 1.5 * fast


# ---------------------------------------------------------------- widths and context

WIDTH, PRICES, BATCH = "report_context_width", "report_context_policies", "report_context_batch"
SHORT, LONG = "workload.prompt_tokens=1024", "workload.prompt_tokens=16384"


def test_context_takes_most_of_the_gain_and_a_narrow_draft_all_of_it(speed):
    few = "num_prompts=16"
    wide = {c: speed(WIDTH, "policy.width=127", c, few) for c in (SHORT, LONG)}
    plain = {c: speed(PRICES, "policy=autoregressive", c, few) for c in (SHORT, LONG)}
    assert wide[SHORT] / plain[SHORT] > 3
    assert 1.3 < wide[LONG] / plain[LONG] < 1.8
    two, four = ([speed(WIDTH, f"policy.width={w}", c, few) for c in (SHORT, LONG)] for w in (1, 3))
    assert four[0] > two[0]
    assert four[1] < two[1]  # four tokens cost more than twice two at 16,384


def test_a_width_from_the_probe_does_not_follow_the_context(play):
    few = "num_prompts=16"
    probed = [play(WIDTH, "policy.width=measured", c, few)["policy_fit"] for c in (SHORT, LONG)]
    assert probed[0] == probed[1]
    priced = [play(PRICES, "policy=priced_survival", c, few) for c in (SHORT, LONG)]
    nodes = [run["draft_nodes_per_request"] for run in priced]
    assert nodes[1] < 0.7 * nodes[0]
    fixed = play(WIDTH, "policy.width=127", LONG, few)["output_throughput"]
    assert priced[1]["output_throughput"] > 1.05 * fixed


def test_the_best_length_at_one_batch_turns_with_the_context(speed):
    def cell(length: int, prompt: int) -> float:
        table = f"policy.table=[[1,512,{length}]]"
        context = f"workload.prompt_tokens={prompt}"
        return speed(BATCH, table, context, "max_concurrency=64", "num_prompts=160")

    assert cell(0, 400) > cell(3, 400)
    assert cell(3, 8000) > 1.2 * cell(0, 8000)
