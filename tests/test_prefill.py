"""Prefill: its table, from a shape, prompts read in chunks, and what a run reports of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from pyarrow import parquet

from simulator.cli.main import main
from simulator.cost import (
    HostOverhead,
    PrefillRow,
    Source,
    StepCost,
    StepTime,
    find_profile,
    read_profile,
)
from tests.test_profiles import DRAFT, HEADER, VERIFY
from traces.common.errors import InputError
from traces.recordings.files import read_recording

H100 = "h100_sxm_qwen3_8b_table5"
# Qwen3-8B on an H100 (header: 8.2e9 parameters, 36 layers, 4096 wide, 989.4 TFLOP/s, 3350 GB/s).
WEIGHTS = 2 * 8.2e9 / 3350e9 * 1e3  # ms
LINEAR = 2 * 8.2e9 / (989.4e12 / 2) * 1e3
ATTENTION = 4 * 36 * 4096 / (989.4e12 / 2) * 1e3
ROWS = (PrefillRow(10, 3.0), PrefillRow(30, 5.0), PrefillRow(50, 9.0))


def table(rows=ROWS, **given) -> StepCost:
    return StepCost(replace(find_profile("b300"), prefill=rows), **given)


def plain(cost: StepCost, *chunks: tuple[int, int], drafted=False) -> StepTime:
    """A step of one request beside chunks."""
    one = np.ones(1, int)
    return cost.step(one, 8192 * one, drafted=drafted, tree=False, chunks=chunks)


def modelled(**given) -> StepCost:
    return StepCost(find_profile(H100), prefill="modelled", **given)


@pytest.mark.parametrize(
    ("tokens", "ms"),
    [(1, 3), (10, 3), (15, 3.5), (30, 5), (40, 7), (50, 9), (55, 10), (150, 29)],  # 0.2 ms beyond
)
def test_linear_between_sizes_flat_below_and_the_last_secant_beyond(tokens, ms):
    assert table().prefill_s(tokens) == pytest.approx(ms * 1e-3)


def test_prefill_never_falls_and_one_size_goes_on_in_proportion():
    falling, single = table((PrefillRow(10, 3.0), PrefillRow(20, 2.0))), table(ROWS[:1])
    assert falling.prefill_s(500) == pytest.approx(2e-3)
    assert single.prefill_s(4) == pytest.approx(3e-3)
    assert single.prefill_s(20) == pytest.approx(6e-3)


@pytest.mark.parametrize("tokens", [1, 100, 147, 148, 149, 4000])
def test_a_modelled_prefill_by_hand(tokens):
    """Bound by its weights up to 147.7 tokens, by compute above."""
    linear = WEIGHTS if tokens <= 147 else LINEAR * tokens
    expected = linear + ATTENTION * tokens * (tokens + 1) / 2
    assert modelled().prefill_s(tokens) == pytest.approx(expected * 1e-3, rel=1e-12)


def test_a_higher_efficiency_computes_faster_and_reads_the_same():
    full, half = modelled(prefill_efficiency=1.0), modelled()
    assert full.prefill_s(10_000) == pytest.approx(half.prefill_s(10_000) / 2)
    assert full.prefill_s(1) == pytest.approx(half.prefill_s(1), rel=1e-4)


def test_prefill_is_what_is_asked_for():
    assert (table().prefill, table().prefill_s(10)) == ("table", 3e-3)
    free = table(prefill="none")
    assert (free.prefill, free.prefill_s(10), free.chunks_s([(10, 10)])) == ("none", 0, 0)
    assert StepCost(find_profile(H100)).prefill == "none"
    assert modelled().prefill == "modelled"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("b300", {"prefill": "modelled"}, "DeepSeek-V4-Flash-0731 does not know model_shape.layer"),
        ("b300", {"prefill": "table"}, "b300 has no prefill table; accepted there: modelled, none"),
        (H100, {"prefill": "modelled", "strict": True}, r"\(strict\): latency.prefill is 'mod"),
    ],
)
def test_bad_prefills_are_refused(name, given, message):
    with pytest.raises(InputError, match=message) as caught:
        StepCost(find_profile(name), **given)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize(
    ("start", "tokens", "alone", "mixed"),
    [
        (0, 30, 5, 2),  # 5 alone; in a step without the 3 of the shortest pass
        (0, 4, 3, 0),
        (4, 6, 3, 0),  # up to 10 tokens all passes take 3
        (10, 20, 2 + 3, 2),
        (30, 10, 2 + 3, 2),
        (40, 20, 4 + 3, 4),  # 60 tokens take 11: 0.2 ms a token beyond the table
    ],
)
def test_chunks_by_hand(start, tokens, alone, mixed):
    cost = table()
    assert cost.chunks_s([(start, tokens)]) == pytest.approx(alone * 1e-3)
    bare, with_chunk = (
        cost.step(np.array([4]), np.array([8192]), drafted=True, tree=False, chunks=chunks)
        for chunks in ((), ((start, tokens),))
    )
    assert with_chunk.chunk_s == pytest.approx(mixed * 1e-3)
    assert with_chunk.total_s == pytest.approx(bare.total_s + mixed * 1e-3)
    assert (bare.chunk_s, bare.source) == (0.0, Source.MEASURED)


def test_chunks_of_a_step_add_up_and_say_where_they_come_from():
    cost = table()
    both = plain(cost, (0, 30), (10, 20))
    assert both.chunk_s == pytest.approx(6e-3)  # 50 tokens of one prompt: 9 - 3; apart 2 + 2
    assert both.source == Source.MEASURED
    assert plain(cost, (0, 20)).source == Source.INTERPOLATED
    assert plain(cost, (0, 30), (0, 51)).source == Source.MODELLED


def test_short_prompts_together_are_no_free_ride():
    """20 prompts of 50 tokens are 1,000 tokens, alone or beside a step that waits for weights."""
    cost, chunks = modelled(), [(0, 50)] * 20
    assert cost.chunks_s(chunks) == pytest.approx(cost.prefill_s(1000))
    # The root beside them is one token more.
    added = plain(cost, *chunks).chunk_s
    assert added == pytest.approx(cost.prefill_s(1001) - cost.prefill_s(1))
    # A step that is bound by compute leaves no slack: 150 tokens more cost what they compute.
    many = np.full(256, 8)
    full = cost.step(many, many, drafted=False, tree=False, chunks=[(0, 150)]).chunk_s
    assert full >= cost.prefill_s(2198) - cost.prefill_s(2048)


def test_a_falling_table_gives_no_negative_chunk():
    cost = table((PrefillRow(10, 4.0), PrefillRow(20, 3.0), PrefillRow(30, 3.5)))
    assert cost.chunks_s([(10, 10)]) == pytest.approx(4e-3)  # the fixed part alone
    assert plain(cost, (10, 10)).chunk_s == 0


def test_a_prompt_in_chunks_takes_its_fixed_part_again():
    cost = modelled()
    whole, fixed = cost.prefill_s(4096), cost.prefill_s(1)
    parts = sum(cost.chunks_s([(start, 512)]) for start in range(0, 4096, 512))
    assert parts == pytest.approx(whole + 7 * fixed)
    assert cost.chunks_s([(0, 512)]) == cost.prefill_s(512)
    # A later chunk attends to more.
    assert cost.chunks_s([(3584, 512)]) > cost.chunks_s([(512, 512)])


def test_overlapped_host_work_hides_under_chunks_too():
    time = plain(table(host=HostOverhead(round_s=8e-3, overlap=True)), (10, 20), drafted=True)
    assert time.host_s == pytest.approx(8e-3 - 5.109e-3 - 0.883e-3 - 2e-3, abs=1e-12)
    assert time.total_s == pytest.approx(8e-3)


def test_strict_refuses_chunks_beyond_the_table():
    cost = table(strict=True)
    with pytest.raises(InputError, match=r"\(strict\): prefill of 51 tokens; measured: up to 50"):
        cost.chunks_s([(40, 11)])
    with pytest.raises(InputError, match="prefill of 51 tokens"):
        plain(cost, (1, 50))


def test_the_parts_are_added_in_order():
    assert StepTime(0.1, 0.2, 0.3, Source.MEASURED, 0.4, 7).total_s == 0.1 + 0.2 + 0.3 + 0.4


# ---------------------------------------------------------------- files, and whole runs


TABLE = "prompt_tokens,prefill_ms\n10,3\n30,5\n50,9\n"


@pytest.fixture
def profile(tmp_path):
    """Write a profile with a prefill table (None: without), give the path of its CSV."""

    def write(prefill: str | None = TABLE, **header):
        (tmp_path / "toy.yaml").write_text(yaml.safe_dump({**HEADER, **header}))
        (tmp_path / "toy.csv").write_text(VERIFY)
        (tmp_path / "toy.draft.csv").write_text(DRAFT)
        (tmp_path / "toy.prefill.csv").unlink(missing_ok=True)
        if prefill is not None:
            (tmp_path / "toy.prefill.csv").write_text(prefill)
        return tmp_path / "toy.csv"

    return write


def test_the_table_is_read(profile):
    assert read_profile(profile()).prefill == ROWS
    noisy = read_profile(profile("prompt_tokens,prefill_ms,noise_ms\n10,3,0.5\n30,5,\n")).prefill
    assert [row.noise_ms for row in noisy] == [0.5, None]
    assert StepCost(read_profile(profile(None)), strict=True).prefill_s(10**6) == 0.0


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


def test_strict_refuses_long_prompts_before_a_run(here, recorded, profile, capsys):
    path = profile("prompt_tokens,prefill_ms\n1,2\n2,3\n")
    words = [f"trace={recorded}", f"latency={path}", "latency.strict=true", "hydra.run.dir=out"]
    assert main(words) == 2
    recording = read_recording(recorded)
    longest = recording["prompt_len"][recording.sequences_of("report")].max()
    refused = f"(strict): prefill of {longest} tokens; measured: up to 2"
    assert refused in capsys.readouterr().err
    assert not (here / "out").exists()
