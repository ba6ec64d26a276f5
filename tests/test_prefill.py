"""Prefill that takes time: its table, and what a run reports of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from pyarrow import parquet

from simulator.cli.main import main
from simulator.cost import PrefillRow, StepCost, find_profile, read_profile
from tests.test_profiles import DRAFT, HEADER, VERIFY
from traces.common.errors import InputError
from traces.recordings.files import read_recording

TABLE = "prompt_tokens,prefill_ms\n10,3\n30,5\n50,9\n"


@pytest.fixture
def profile(tmp_path):
    """Write a profile with a prefill table (None: without), give the path of its CSV."""

    def write(prefill: str | None = TABLE, **header):
        (tmp_path / "toy.yaml").write_text(yaml.safe_dump({**HEADER, **header}))
        (tmp_path / "toy.csv").write_text(VERIFY)
        (tmp_path / "toy.draft.csv").write_text(DRAFT)
        if prefill is not None:
            (tmp_path / "toy.prefill.csv").write_text(prefill)
        return tmp_path / "toy.csv"

    return write


# ---------------------------------------------------------------- the table


def test_the_table_is_read(profile):
    rows = read_profile(profile()).prefill
    assert rows == (PrefillRow(10, 3.0), PrefillRow(30, 5.0), PrefillRow(50, 9.0))
    noisy = read_profile(profile("prompt_tokens,prefill_ms,noise_ms\n10,3,0.5\n30,5,\n")).prefill
    assert [row.noise_ms for row in noisy] == [0.5, None]


@pytest.mark.parametrize(
    ("tokens", "ms"),
    [(1, 3), (10, 3), (15, 3.5), (30, 5), (40, 7), (50, 9), (55, 10), (150, 29)],  # 0.2 ms beyond
)
def test_linear_between_sizes_flat_below_and_the_last_secant_beyond(profile, tokens, ms):
    assert StepCost(read_profile(profile())).prefill_s(tokens) == pytest.approx(ms * 1e-3)


def test_prefill_never_falls_and_one_size_goes_on_in_proportion(profile):
    falling = StepCost(read_profile(profile("prompt_tokens,prefill_ms\n10,3\n20,2\n")))
    assert falling.prefill_s(500) == pytest.approx(2e-3)
    single = StepCost(read_profile(profile("prompt_tokens,prefill_ms\n10,3\n")))
    assert single.prefill_s(4) == pytest.approx(3e-3)
    assert single.prefill_s(20) == pytest.approx(6e-3)


def test_without_a_table_prefill_is_free(profile):
    assert StepCost(read_profile(profile(None)), strict=True).prefill_s(10**6) == 0.0
    assert find_profile("b300").prefill == ()


def test_strict_refuses_a_longer_prompt(profile):
    cost = StepCost(read_profile(profile()), strict=True)
    assert cost.prefill_s(50) == pytest.approx(9e-3)
    with pytest.raises(InputError, match=r"toy\.csv \(strict\): prefill of 51 tokens; .* up to 50"):
        cost.prefill_s(51)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("tokens,prefill_ms\n1,1\n", "column prompt_tokens is missing; found tokens, prefill_ms"),
        ("prompt_tokens,ms\n1,1\n", "column prefill_ms is missing"),
        ("prompt_tokens,prefill_ms\n", "accepted: a header line and at least one row"),
        ("prompt_tokens,prefill_ms\n4,1\n0,2\n", "line 3, column prompt_tokens: value '0'"),
        ("prompt_tokens,prefill_ms\n4,1\n5,nan\n", "line 3, column prefill_ms: value 'nan'"),
        ("prompt_tokens,prefill_ms\n4,1\n5,-2\n", "line 3, column prefill_ms: value '-2'"),
        ("prompt_tokens,prefill_ms\n4,1\n4,2\n", "line 3, .*each size once"),
        ("prompt_tokens,prefill_ms\n4,1\n3,2\n", "line 3, .*rows sorted by prompt_tokens"),
        ("prompt_tokens,prefill_ms\n4\n", "line 2 has 1 values; accepted: 2"),
        ("prompt_tokens,prefill_ms,noise_ms\n4,1,-1\n", "line 2, column noise_ms: value '-1'"),
    ],
)
def test_bad_tables_are_refused_in_one_line(profile, table, message):
    with pytest.raises(InputError, match="toy.prefill.csv: .*" + message) as caught:
        read_profile(profile(table))
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- a whole run


def summary_of(words: list[str]) -> dict:
    assert main([*words, "policy=fixed_chain", "hydra.run.dir=out"]) == 0
    with open("out/summary.json") as file:
        return json.load(file)


def test_the_summary_says_what_prefill_took(here, recorded, profile):
    """1 ms and 1 ms more per token, an open loop: the whole run, no warm-up requests."""
    path = profile("prompt_tokens,prefill_ms\n1,2\n5,6\n")
    words = [f"trace={recorded}", f"latency={path}", "request_rate=50", "num_prompts=12"]
    summary = summary_of(words)
    assert summary["ttft_note"] == "queue and prefill"
    assert summary["prefill_ms_total"] == pytest.approx(12 + summary["total_input_tokens"])
    assert summary["mean_ttft_ms"] >= 1 + summary["total_input_tokens"] / 12
    assert set(summary["step_ms"]) == {"draft", "verify", "host", "prefill", "total"}
    prompts = np.array(parquet.read_table("out/requests.parquet")["prompt_tokens"])
    assert 0 < np.mean(prompts > 5) < 1
    assert summary["prefill_modelled_share"] == np.mean(prompts > 5)


def test_without_a_prefill_table_nothing_is_said(here, recorded, profile):
    summary = summary_of([f"trace={recorded}", f"latency={profile(None)}", "num_prompts=12"])
    assert summary["ttft_note"] == "queue only"
    assert not [key for key in summary if "prefill" in key]


def test_strict_refuses_long_prompts_before_a_run(here, recorded, profile, capsys):
    path = profile("prompt_tokens,prefill_ms\n1,2\n2,3\n")
    words = [f"trace={recorded}", f"latency={path}", "latency.strict=true", "hydra.run.dir=out"]
    assert main(words) == 2
    recording = read_recording(recorded)
    longest = recording["prompt_len"][recording.sequences_of("report")].max()
    refused = f"(strict): prefill of {longest} tokens; measured: up to 2"
    assert refused in capsys.readouterr().err
    assert not (here / "out").exists()
