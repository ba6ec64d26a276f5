"""Results that are kept apart, found again, and not taken for what they are not."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.cli.main import main
from simulator.cli.sweep.job import folder_name
from simulator.cost import LatencyProfile, StepCost, VerifyRow, find_profile
from simulator.orders import ChainOrder, build_order, cache, order_table
from simulator.results.latency import meets
from simulator.results.window import FULL_BATCH, Window
from tests.synthetic import make_pool
from traces.common.errors import InputError
from traces.recordings.files import write_recording


def test_no_two_jobs_share_a_folder():
    names = ["latency=x/p.csv", "latency=x_p.csv", "latency=x p.csv", "a" * 300, "a" * 301]
    assert len({folder_name(name) for name in names}) == len(names)
    assert folder_name("max_concurrency=1,policy=cast") == "max_concurrency=1,policy=cast"
    assert folder_name("") == "default"


@pytest.fixture
def words(tmp_path):
    recording = make_pool(np.random.default_rng(0), sequences=9, depths=7)
    path = tmp_path / "tiny.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    return [
        "policy=fixed_chain", "num_prompts=8", f"trace.recording={path}",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet", "summary.json"])
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_damaged_run_is_run_again(tmp_path, words, capsys, name, damage):
    assert main(words) == 0
    file = tmp_path / "run" / name
    before = file.read_bytes()
    file.unlink()
    if damage == "empty":
        file.touch()
    assert main(words) == 0
    assert file.read_bytes() == before
    capsys.readouterr()
    assert main(words) == 0
    assert "skipped" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/none"])
def test_a_folder_that_cannot_be_made_is_refused_in_one_line(words, capsys, place):
    assert main([*words[:-1], f"hydra.run.dir={place}"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {place}: ")
    assert message.count("\n") == 1


def test_strict_is_refused_before_a_sweep_begins(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    sweep = ["-m", *words[1:3], "policy=fixed_chain,autoregressive", "latency.strict=true"]
    assert main(sweep) == 2
    assert not (tmp_path / "multirun").exists()


@pytest.mark.parametrize("content", ["array", "short"])
def test_a_cached_table_of_another_shape_is_built_again(tmp_path, monkeypatch, content):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    cache.forget()
    recording = make_pool(np.random.default_rng(1))
    expected = order_table(ChainOrder(), recording)
    (path,) = tmp_path.iterdir()
    with np.load(path) as file:
        arrays = dict(file)
    with path.open("wb") as file:
        if content == "array":
            np.save(file, np.zeros(3))
        else:
            np.savez(file, **arrays | {"size": arrays["size"][:-1]})
    cache.forget()
    again = order_table(ChainOrder(), recording)
    assert np.array_equal(again.hit_rank, expected.hit_rank)
    assert np.array_equal(again.hit_rank, build_order(ChainOrder(), recording).hit_rank)


def test_an_objective_is_met_at_its_limit():
    # 0.25 s and 250 ms are exact in binary
    assert meets({"ttft": 250.0}, {"ttft": np.array([0.25, 0.2501])}).tolist() == [True, False]


def test_a_slot_refilled_at_the_last_instant_is_outside_the_window():
    times_s = np.array([1.0, 1.5, 2.0])
    requests = {"admitted_s": times_s, "first_token_s": times_s, "warmup": times_s == 1.5}
    facts = SimpleNamespace(requests=requests)
    assert Window(FULL_BATCH, 1.0, 2.0).admitted(facts).tolist() == [True, False, False]


def test_strict_refuses_a_draft_for_more_requests_than_were_timed():
    cost = StepCost(find_profile("b300"), strict=True)
    context = np.full(300, 8192)
    cost.step(np.ones(300, int), context, drafted=False, tree=False)  # 300 tokens were timed
    with pytest.raises(InputError, match="b300"):
        cost.step(np.ones(300, int), context, drafted=True, tree=False)


def test_a_graph_and_an_eager_step_are_never_averaged():
    """100 tokens: past the graphs of 2 requests, inside those of 8; 4 requests pay the dearer."""
    rows = [
        VerifyRow(batch, 512, total, ms, captured=total <= last)
        for batch, last, times in ((2, 64, (1, 2, 8, 9)), (8, 128, (2, 3, 4, 20)))
        for total, ms in zip((32, 64, 128, 256), map(float, times), strict=True)
    ]
    known = find_profile("b300")
    fixed = known.header.with_(graph_sizes=(32, 64, 128), fixed={})
    draft = tuple(replace(row, batch=2) for row in known.draft[:1])
    cost = StepCost(LatencyProfile("two", fixed, tuple(rows), draft))
    step = cost.step(np.full(4, 25), np.full(4, 512), drafted=False, tree=False)
    assert step.verify_s * 1e3 == pytest.approx(8)  # of 2 requests, eager; 4 for 8, captured
    inside = cost.step(np.full(4, 16), np.full(4, 512), drafted=False, tree=False)
    assert inside.verify_s * 1e3 == pytest.approx(2 + (3 - 2) / 3)  # a third of the way to 8


def test_split_names_in_another_order_are_refused():
    recording = make_pool(np.random.default_rng(2))
    meta = json.loads(json.dumps(dict(recording.meta)))
    meta["splits"] = ["report", "tuning", "calibration"]
    with pytest.raises(InputError, match="splits"):
        write_recording("never-written.safetensors", meta, recording.arrays)
