"""`python -m analysis paired` on runs of the simulator and on files made by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from simulator.cli.main import main as simulate
from tests.figure_cases import printed, refused, rows_of, write_table


@pytest.fixture(scope="module")
def runs(recorded, tmp_path_factory) -> Path:
    """Chains of 1 and 4 at two loads and two seeds, and an open loop."""
    folder = tmp_path_factory.mktemp("paired")
    words = ["-m", f"trace={recorded}", "policy=fixed_chain", "trace.split=null", "num_prompts=40"]
    for length in (1, 4):
        name = folder / f"chain{length}"
        more = [f"policy.length={length}", f"policy.name=chain{length}"]
        loads = ["max_concurrency=2,5", "seed=0,1", f"hydra.sweep.dir={name}/closed"]
        assert simulate([*words, *more, *loads]) == 0
        loads = ["request_rate=300", f"hydra.run.dir={name}/open"]
        assert simulate([*words[1:], *more, *loads]) == 0
    return folder


def one_run(runs: Path, name: str, concurrency: int, seed: int = 0) -> Path:
    paths = [path for path in (runs / name / "closed").iterdir() if path.is_dir()]
    keys = [(one["max_concurrency"], one["seed"]) for one in map(summary, paths)]
    return paths[keys.index((concurrency, seed))]


def paired(capsys, *words) -> list[dict]:
    return rows_of(capsys, "paired", *words)


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def changed(folder: Path, model: Path, **changes) -> Path:
    """A copy of a run with other keys in its summary, nodes merged."""
    shutil.copytree(model, folder)
    data = summary(folder)
    for key, value in changes.items():
        data[key] = data[key] | value if isinstance(data.get(key), dict) else value
    (folder / "summary.json").write_text(json.dumps(data))
    return folder


def by_hand(folder: Path, model: Path, seconds: list[float], rejected=(False,) * 4) -> Path:
    """Four requests of three prompts that end after `seconds`; rejected ones never do."""
    lost, arrival = np.array(rejected), np.array([0.0, 0.0, 1.0, 1.0])
    tokens, count = np.where(lost, 0, [11, 11, 21, 21]), int(lost.sum())
    more = {"num_prompts": 4, "completed": 4 - count, "rejected": count, "max_concurrency": 2}
    window = {"kind": "full batch", "start_s": 0.0, "end_s": 3.0}
    changed(folder, model, **more, output_throughput=float(tokens.sum() / 3), window=window)
    write_table(
        folder,
        "requests",
        sequence=np.array([3, 5, 5, 8]),
        arrival_s=arrival,
        first_token_s=np.where(lost, np.nan, arrival),
        finish_s=np.where(lost, np.nan, arrival + seconds),
        output_tokens=tokens,
        measured=~lost,
        window_tokens=tokens,
        rejected=lost,
    )
    return folder


@pytest.mark.parametrize(
    ("metric", "key"),
    [
        ("output_throughput", "output_throughput"),
        ("tpot", "mean_tpot_ms"),
        ("ttft", "mean_ttft_ms"),
        ("e2el", "mean_e2el_ms"),
    ],
)
def test_values_are_those_of_the_summaries(runs, capsys, metric, key):
    a, b = (one_run(runs, name, 5) for name in ("chain4", "chain1"))
    (row,) = paired(capsys, a, b, "--metric", metric)
    ours, theirs = summary(a)[key], summary(b)[key]
    assert float(row["a_value"]) == pytest.approx(ours, rel=1e-9)
    assert float(row["b_value"]) == pytest.approx(theirs, rel=1e-9)
    assert float(row["difference"]) == pytest.approx(ours - theirs, rel=1e-9)
    if theirs:
        assert float(row["ratio"]) == pytest.approx(ours / theirs, rel=1e-9)
        assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    else:  # nothing waits and this profile's prefill is free
        assert (row["ratio"], row["ratio_low"]) == ("nan", "")
    assert (row["a"], row["b"], row["prompts"]) == ("chain4", "chain1", "9")


def test_a_run_against_itself_is_a_tie(runs, capsys):
    a = one_run(runs, "chain4", 2)
    (row,) = paired(capsys, a, a)
    assert [float(row[key]) for key in ("ratio", "ratio_low", "ratio_high")] == [1.0, 1.0, 1.0]
    assert row["faster_prompts"] == "0"


def test_folders_are_matched_by_load_and_seed(runs, capsys):
    rows = paired(capsys, runs / "chain4/closed", runs / "chain1/closed", "--resamples", "500")
    assert [(row["max_concurrency"], row["seeds"]) for row in rows] == [("2", "2"), ("5", "2")]
    single = [
        paired(capsys, *(one_run(runs, n, 2, s) for n in ("chain4", "chain1")))
        for s in (0, 1)
    ]  # fmt: skip
    ratios = [float(found["ratio"]) for (found,) in single]
    assert min(ratios) <= float(rows[0]["ratio"]) <= max(ratios)
    said = printed(capsys, "paired", runs / "chain4/closed", runs / "chain1/closed")
    mean = np.sqrt(float(rows[0]["ratio"]) * float(rows[1]["ratio"]))
    assert f"geometric mean of A / B: {mean:.4f}" in said
    assert "of 9 prompts" in said


def test_markdown_and_open_loop(runs, capsys):
    words = [runs / "chain4/open", runs / "chain1/open", "--metric", "tpot"]
    said = printed(capsys, "paired", *words, "--format", "markdown")
    assert "| request rate 300/s, burstiness 1, at most" in said
    assert "throughput of an open loop" in refused(capsys, "paired", *words[:2])


def test_ratio_by_hand(runs, capsys, tmp_path):
    """Three prompts, the second served twice; B takes 1.5 times as long on two of them."""
    model = one_run(runs, "chain4", 2, 0)
    a = by_hand(tmp_path / "a", model, [1.0, 1.0, 2.0, 2.0])
    b = by_hand(tmp_path / "b", model, [1.5, 1.5, 3.0, 1.0])
    (row,) = paired(capsys, a, b, "--metric", "e2el")
    assert float(row["a_value"]) == pytest.approx(1500.0)  # (1 + 1 + 2 + 2) / 4 seconds
    assert float(row["b_value"]) == pytest.approx(1750.0)  # (1.5 + 1.5 + 3 + 1) / 4
    assert float(row["ratio"]) == pytest.approx(6 / 7)
    assert (row["prompts"], row["faster_prompts"], row["compared_prompts"]) == ("3", "2", "3")
    # Prompt 5 alone, drawn three times, is the fastest for A, and prompt 8 the slowest.
    assert float(row["ratio_low"]) == pytest.approx(2 / 3)
    assert float(row["ratio_high"]) == pytest.approx(2.0)


def test_what_differs_is_refused(runs, capsys, tmp_path):
    a, model = one_run(runs, "chain4", 2, 0), one_run(runs, "chain1", 2, 0)
    for load, seed, said in ((2, 1, "seed: 0 and 1"), (5, 0, "max_concurrency: 2 and 5")):
        other = one_run(runs, "chain1", load, seed)
        assert f"differ in {said}" in refused(capsys, "paired", a, other)
    for node, key, value in (
        ("trace", "content_hash", "0" * 64),
        ("trace", "domains", ["code"]),
        ("latency", "profile", "other"),
        ("latency", "content_hash", "0" * 64),
        ("latency", "host", {"round_s": 0.5}),
        ("server", "replicas", 2),
    ):
        folder = changed(tmp_path / f"{node}.{key}", model, **{node: {key: value}})
        assert f"differ in {node}.{key}" in refused(capsys, "paired", a, folder)
    file = {"file": "w.csv", "sha256": "a" * 64}
    a = changed(tmp_path / "a", a, workload=file)
    for at, (work, ramp, said) in enumerate((
        (file | {"sha256": "b" * 64}, 0, "differ in workload.sha256: 'aaaa"),
        ({"file": "w.csv"}, 0, f"differ in workload.sha256: '{'a' * 64}' and not known"),
        (file, 5, "differ in ramp: 0 and 5"),
    )):  # fmt: skip
        b = changed(tmp_path / f"b{at}", model, workload=work, ramp=ramp)
        assert said in refused(capsys, "paired", a, b)


def test_settings_have_means_of_their_own_and_rows_their_names(runs, capsys, tmp_path):
    """Two splits and two servers, at two loads each: four blocks, whose means are of their own."""
    for side, name in (("a", "chain4"), ("b", "chain1")):
        for split in ("report", "tuning"):
            for replicas in (1, 2):
                for load in (2, 5):
                    more = {"trace": {"split": split}, "server": {"replicas": replicas}}
                    folder = tmp_path / side / f"{split}{replicas}{load}"
                    changed(folder, one_run(runs, name, load), **more)
    words = (tmp_path / "a", tmp_path / "b", "--resamples", "100")
    rows = paired(capsys, *words)
    keys = {(row["setting"], row["split"], row["max_concurrency"]) for row in rows}
    assert len(keys) == len(rows) == 8
    setting = "server.replicas=2, trace.split=tuning"
    assert (setting, "tuning", "5") in keys
    said = printed(capsys, "paired", *words)
    assert f"(tuning split) on b300; {setting}" in said
    mean = np.sqrt(np.prod([float(row["ratio"]) for row in rows[:2]]))
    assert said.count(f"geometric mean of A / B: {mean:.4f}") == 4


def test_other_settings_and_sources_of_a_policy_are_no_seeds(runs, capsys, tmp_path):
    for side, name in (("a", "chain4"), ("b", "chain1")):
        for seed in (0, 1):
            more = {"policy_code": {"sha256": f"{seed}" * 64}} if side == "a" else {}
            changed(tmp_path / side / str(seed), one_run(runs, name, 2, seed), **more)
    rows = paired(capsys, tmp_path / "a", tmp_path / "b", "--resamples", "100")
    assert [(row["a"], row["b"], row["seeds"]) for row in rows] == [
        ("chain4(source=00000000)", "chain1", "1"),
        ("chain4(source=11111111)", "chain1", "1"),
    ]


def test_rows_of_one_load_say_how_many_requests_they_are_of(runs, capsys, tmp_path):
    for side, name in (("a", "chain4"), ("b", "chain1")):
        model = one_run(runs, name, 2)
        changed(tmp_path / side / "whole", model)
        short = changed(tmp_path / side / "short", model, num_prompts=30, completed=30)
        table = parquet.read_table(short / "requests.parquet")
        parquet.write_table(table.slice(0, 30), short / "requests.parquet")
    words = (tmp_path / "a", tmp_path / "b", "--metric", "tpot", "--resamples", "100")
    assert [row["num_prompts"] for row in paired(capsys, *words)] == ["30", "40"]
    said = printed(capsys, "paired", *words, "--format", "markdown")
    assert "| concurrency 2, 30 requests | 1 |" in said
    assert "| concurrency 2, 40 requests | 1 |" in said


def test_requests_that_differ_are_refused(runs, capsys, tmp_path):
    a, b = one_run(runs, "chain4", 2, 0), changed(tmp_path / "b", one_run(runs, "chain1", 2, 0))
    table = parquet.read_table(b / "requests.parquet")
    index = table.column_names.index("sequence")
    swapped = table.set_column(index, "sequence", [table["sequence"].to_numpy()[::-1]])
    parquet.write_table(swapped, b / "requests.parquet")
    assert "differ in sequence of their requests" in refused(capsys, "paired", a, b)
    parquet.write_table(table.drop_columns(["window_tokens"]), b / "requests.parquet")
    assert "no column window_tokens" in refused(capsys, "paired", a, b)
    (b / "requests.parquet").write_bytes(b"PAR1")
    assert "unreadable" in refused(capsys, "paired", a, b)


def test_sets_that_do_not_match_are_refused(runs, recorded, capsys, here):
    closed, lone = runs / "chain1/closed", one_run(runs, "chain4", 2, 0)
    words = [f"trace={recorded}", "max_concurrency=8", "num_prompts=16", "hydra.run.dir=few"]
    assert simulate(words) == 0
    for said, *words in (
        ("no run of", lone, closed),
        ("accepted: one policy", runs, runs / "chain1"),
        ("--resamples is 5", lone, lone, "--resamples", 5),
        ("not a folder", lone, runs / "nothing"),
        ("too few requests for a full batch", "few", "few"),
    ):
        assert said in refused(capsys, "paired", *words)


# ---------------------------------------------------------------- rejected requests


def test_only_requests_that_both_served_are_compared(runs, capsys, tmp_path):
    model = one_run(runs, "chain4", 2, 0)
    a = by_hand(tmp_path / "a", model, [1.0, 1.0, 2.0, 2.0], [False, False, False, True])
    b = by_hand(tmp_path / "b", model, [1.5, 1.5, 3.0, 1.0], [True, False, False, False])
    (row,) = paired(capsys, a, b, "--metric", "e2el")
    # The two requests of prompt 5 are left: 1 and 2 s against 1.5 and 3 s.
    assert float(row["a_value"]) == pytest.approx(1500.0)
    assert float(row["b_value"]) == pytest.approx(2250.0)
    assert (row["prompts"], row["requests_left_out"]) == ("1", "2")
    (row,) = paired(capsys, a, b)
    # 32 tokens of two clients in 3 s of A, in 1.5 + 2 of B's (its window ends at 3 s).
    assert float(row["a_value"]) == pytest.approx(2 * 32 / 3)
    assert float(row["b_value"]) == pytest.approx(2 * 32 / 3.5)
    said = "concurrency 2: without 2 of 4 requests, which A or B rejected"
    assert said in printed(capsys, "paired", a, b)


def test_rejected_requests_that_do_not_add_up_are_refused(runs, capsys, tmp_path):
    model = one_run(runs, "chain4", 2, 0)
    a = by_hand(tmp_path / "a", model, [1.0, 1.0, 2.0, 2.0], [False, False, False, True])
    other = [True, True, True, False]
    b = by_hand(tmp_path / "b", model, [1.5, 1.5, 3.0, 1.0], other)
    assert "no request was served by both" in refused(capsys, "paired", a, b)
    table = parquet.read_table(a / "requests.parquet")
    for name, column, says in (
        ("rejected", [False] * 4, "0 rejected requests, expected the summary's 1"),
        ("finish_s", [1.0, 1.0, 3.0, 3.0], "row 3, column finish_s: 3.0, expected that of a rej"),
        ("finish_s", [np.nan, 1.0, 3.0, np.nan], "row 0, column finish_s: nan, expected that of"),
        ("measured", [True] * 4, "row 3, column measured: True"),
    ):
        changed = table.set_column(table.column_names.index(name), name, [column])
        parquet.write_table(changed, a / "requests.parquet")
        assert says in refused(capsys, "paired", a, b)
    data = summary(a) | {"rejected": 0, "completed": 4}
    (a / "summary.json").write_text(json.dumps(data))
    parquet.write_table(table, a / "requests.parquet")  # an end is missing, and none was rejected
    assert "row 3, column finish_s: nan, expected finite" in refused(capsys, "paired", a, a)


def test_runs_of_a_cache_that_is_too_small_pair_over_what_fits(recorded, capsys, here):
    words = [f"trace={recorded}", "num_prompts=40", "max_concurrency=2", "server=vllm"]
    words += ["workload=file", "workload.path=w.csv"]
    rows = ["40,8", "4000,8", "60,9", "50,9"] * 10
    Path("w.csv").write_text("\n".join(["prompt_tokens,output_tokens", *rows]) + "\n")
    for length in (1, 4):
        more = ["policy=fixed_chain", f"policy.length={length}", f"hydra.run.dir=c{length}"]
        assert simulate([*words, *more, "server.kv_tokens=2048"]) == 0
        assert summary(Path(f"c{length}"))["rejected"] == 10
    for metric in ("tpot", "e2el", "output_throughput"):
        (row,) = paired(capsys, "c4", "c1", "--metric", metric)
        assert row["requests_left_out"] == "10"
        key = metric if metric == "output_throughput" else f"mean_{metric}_ms"
        assert float(row["a_value"]) == pytest.approx(summary(Path("c4"))[key])
