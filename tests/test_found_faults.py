"""Faults that were found by trying to break the command line, and their siblings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli.main import main
from traces.recordings.catalog import recording_path

HUGE = "1" + "0" * 400
CALIBRATION = recording_path("small_block_t0").with_name("small_block_t0.calibration.json")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("request_rate=" + HUGE, "request_rate is 1000"),
        ("request_rate=4 burstiness=" + HUGE, "burstiness is 1000"),
        ("policy=priced_survival policy.max_step_ms=" + HUGE, "policy.max_step_ms is 1000"),
        ("policy=batch_schedule policy.table=null", "policy.table is None; accepted: a list of ["),
        ("policy=sglang_adaptive policy.tiers=3", "policy.tiers is 3; accepted: a list of {"),
        ("policy=treespark policy.ladder=5", "policy.ladder is 5; accepted: a list of {"),
        ("task=bounds bounds.batches=[100000000]", "bounds.batches is [100000000]; accepted:"),
        ("task=tournament tournament.rivals=[nope]", "tournament.rivals[0].policy is 'nope'"),
        ("+trace.at_temperature.hot=x temperature=3", "the key 'hot'; accepted: temperatures"),
    ],
)
def test_one_line_that_names_the_key(words, says, capsys, tmp_path):
    assert main([*words.split(), f"hydra.run.dir={tmp_path / 'run'}"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert says in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_recording_of_another_temperature_is_not_taken(capsys):
    words = ["temperature=1", "trace.at_temperature={0: small_semi_t0, 1: small_block_t0}"]
    assert main(words) == 2
    assert (
        "trace.at_temperature.1 is small_block_t0; accepted: a recording" in capsys.readouterr().err
    )


def test_another_calibration_in_the_same_file_is_another_run(tmp_path, capsys):
    own = tmp_path / "own.json"
    own.write_bytes(Path(CALIBRATION).read_bytes())
    words = ["policy=treespark", "trace=small_block", "num_prompts=4", "max_concurrency=2"]
    words += [f"policy.calibration={own}", f"hydra.run.dir={tmp_path / 'run'}"]
    assert main(words) == 0
    assert main(words) == 0
    assert "skipped" in capsys.readouterr().out
    changed = json.loads(own.read_text())
    changed["platt"] = {"a": 0.2, "b": -2.0}
    own.write_text(json.dumps(changed))
    assert main(words) == 0
    assert "skipped" not in capsys.readouterr().out


def test_results_of_a_tournament_must_be_numbers(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    bad = dict.fromkeys(("tokens_s", "nodes_per_request", "modelled", "clamped"))
    bad |= dict.fromkeys(("requests", "prompts", "tokens", "seconds"))
    (folder / "tournament.jsonl").write_text(json.dumps({"key": "a", "result": bad}) + "\n")
    words = "task=tournament policy=fixed_chain tournament.rivals=[autoregressive]"
    assert main([*words.split(), f"hydra.run.dir={folder}"]) == 2
    assert "line 1 is no result of task=tournament" in capsys.readouterr().err


def test_a_glob_over_policies_is_a_sweep(tmp_path, capsys):
    words = ["-m", "+policy=glob(fixed_*)", "max_concurrency=2", "num_prompts=4"]
    assert main([*words, f"hydra.sweep.dir={tmp_path / 'sweep'}"]) == 0
    runs = {path.parent.name for path in (tmp_path / "sweep").rglob("summary.json")}
    names = ("fixed_chain", "fixed_tree", "fixed_tree_binary", "fixed_tree_static")
    assert len(runs) == len(names)
    assert all(any(f"policy={name}" in run for run in runs) for name in names)


def test_a_starting_length_that_no_tier_has_is_refused(capsys):
    assert main(["policy=sglang_adaptive", "policy.initial=99"]) == 2
    assert "policy.initial is 99; accepted: 0, 1, 3, 5, 7" in capsys.readouterr().err
