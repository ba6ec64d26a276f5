"""Profiles computed from data sheets: by hand, and fitted to points whose law is known."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from simulator.cost import Source, StepCost, build_step_cost, find_profile, kv_tokens_of
from simulator.cost.roofline import Roofline, profile_of, read_roofline
from traces.common.errors import InputError, bare
from traces.profiles.devices import find_gpu, find_model, known

# A device of 1 TFLOP/s and 100 GB/s at full efficiency, and a model of 10 layers, 64 wide.
GPU = {"peak_tflops": 1, "bandwidth_gb_s": 100}
MODEL = {
    "layers": 10, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "params_b": 0.5,
}  # fmt: skip
FULL = {"bandwidth_efficiency": 1, "compute_efficiency": 1}
TINY = {"gpu": GPU, "model": MODEL, **FULL}
KV = 2 * 10 * 2 * 16 * 2  # bytes of a token
READ_MS = 1e9 / 100e9 * 1e3  # 0.5e9 parameters of two bytes
TOKEN_MS = 2 * 0.5e9 / 1e12 * 1e3


def latency(**roofline) -> dict:
    return {"profile": "roofline", "roofline": {**TINY, **roofline}}


def test_a_short_step_reads_its_weights_and_caches():
    """10 ms of weights; each token computes 1 ms, so 5 of them are bound by reading."""
    one = read_roofline(TINY)
    cache = KV * 3 * 1000 / 100e9 * 1e3
    wrote = KV * 5 / 100e9 * 1e3
    assert one.verify_ms(3, 5, 1000) == pytest.approx(READ_MS + wrote + cache)


def test_a_long_step_computes():
    """50 tokens compute 50 ms; 20 tokens of each request outweigh reading the cache."""
    one = read_roofline(TINY)
    attention = 4 * 10 * 4 * 16 * 50 * 1000 / 1e12 * 1e3
    read = KV * 1000 / 100e9 * 1e3
    assert attention > read
    assert one.verify_ms(1, 50, 1000) == pytest.approx(50 * TOKEN_MS + attention)
    half = read_roofline({**TINY, "compute_efficiency": 0.5, "overhead_ms": 3})
    assert half.verify_ms(1, 50, 1000) == pytest.approx(2 * (50 * TOKEN_MS + attention) + 3)


def test_two_gpus_share_the_work_and_wait_for_each_other():
    """Two key-value heads on two GPUs: half of all; 2 all-reduces x 10 layers x 5 us."""
    two = read_roofline({**TINY, "tensor_parallel": 2, "allreduce_us": 5})
    alone = read_roofline(TINY)
    assert two.verify_ms(3, 5, 1000) == pytest.approx(alone.verify_ms(3, 5, 1000) / 2 + 0.1)
    four = read_roofline({**TINY, "tensor_parallel": 4, "allreduce_us": 0})
    assert four.kv_bytes == two.kv_bytes  # heads are repeated
    assert four.verify_ms(1, 50, 0) == pytest.approx(50 * TOKEN_MS / 4)


def test_experts_are_met_as_tokens_come():
    """0.5e9 parameters, 0.2e9 active, 2 of 8 experts: 0.4e9 routed, 0.1e9 shared."""
    routed = {**MODEL, "active_params_b": 0.2, "experts": 8, "experts_per_token": 2}
    one = read_roofline({**TINY, "model": routed})
    for total, met in ((1, 0.25), (2, 1 - 0.75**2), (30, 1 - 0.75**30)):
        read, compute = one.matrices_ms(total)
        wrote = KV * total / 100e9 * 1e3
        assert read == pytest.approx((0.1e9 + 0.4e9 * met) * 2 / 100e9 * 1e3 + wrote)
        assert compute == pytest.approx(2 * 0.2e9 * total / 1e12 * 1e3)


def test_the_drafter_is_some_layers_of_the_target():
    """2 of 10 layers: 0.1e9 parameters, read in 2 ms; 3 x 16 tokens compute 9.6 ms."""
    one = read_roofline({**TINY, "draft_layers": 2})
    assert one.draft_ms(1, 0) == pytest.approx(16 * 0.2)
    assert one.draft_ms(3, 0) == pytest.approx(9.6)
    read = read_roofline({**TINY, "draft_layers": 2, "draft_tokens": 4})
    attention = max(KV * 1000 / 100e9, 4 * 10 * 4 * 16 * 4 * 1000 / 1e12) * 1e3 / 5
    assert read.draft_ms(1, 1000) == pytest.approx(2 + attention)


@pytest.mark.parametrize(
    "node",
    [
        {"gpu": "H100 SXM", "model": "Qwen3-8B"},
        {"gpu": "b200", "model": "qwen3-30b-a3b", "tensor_parallel": 2},
        {"gpu": "L40S", "model": "Qwen3-4B", "dtype": "float8"},
    ],
)
def test_the_tables_hold_the_roofline(node):
    """Between its sizes a table of straight lines lies above, by 7 % at most between batches."""
    one = read_roofline(node)
    cost, rng = StepCost(profile_of(one)), np.random.default_rng(3)
    for _ in range(300):
        batch = int(rng.integers(1, 512))
        total = min(int(batch * rng.integers(1, 64)), 16384)
        context = float(np.exp(rng.uniform(0, np.log(1e5))))
        ratio = cost.verify_s(batch, total, context) * 1e3 / one.verify_ms(batch, total, context)
        assert 0.995 < ratio < 1.07
        drafted = cost.draft_s(batch, context) * 1e3 / one.draft_ms(batch, context)
        assert 1 - 1e-9 < drafted < 1.05
    for context in (1, 3000, 100_000):
        expected = float(one.verify_ms(1, 1, context))
        assert cost.verify_s(1, 1, context) * 1e3 == pytest.approx(expected)


def test_every_step_is_modelled_and_may_be_padded():
    cost = build_step_cost({**latency(), "graph_sizes": [1, 8, 64], "prefill": "modelled"})
    answer = cost.step(np.array([3, 2]), np.array([100, 100]), drafted=True, tree=True)
    assert (answer.executed, answer.source) == (8, Source.MODELLED)
    assert answer.verify_s == pytest.approx(cost.verify_s(2, 8, 100))
    assert (cost.profile.name, cost.profile.header.kind) == ("roofline", "modelled")
    assert cost.prefill == "modelled"
    assert cost.num_gpus == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": "H300"}, "latency.roofline.gpu is 'H300'; accepted: A100 PCIe 80GB, .*MI355X"),
        ({"gpu": 3}, "latency.roofline.gpu is 3; accepted: .*, or a mapping of name, peak"),
        ({"gpu": {"peak_tflops": 1}}, "latency.roofline.gpu.bandwidth_gb_s is missing"),
        ({"gpu": {**GPU, "cores": 4}}, "unknown key latency.roofline.gpu.cores"),
        ({"gpu": {**GPU, "peak_tflops": -1}}, "gpu.peak_tflops is -1; accepted: a number above 0"),
        ({"model": "Qwen9"}, "latency.roofline.model is 'Qwen9'; accepted: Qwen3-4B"),
        ({"model": {**MODEL, "layers": 1.5}}, "model.layers is 1.5; accepted: a whole number"),
        ({"model": {**MODEL, "experts": 8}}, "active_params_b, experts and experts_per_token tog"),
        ({"draft_layers": 11}, "draft_layers is 11; accepted: up to 10, the layers of unnamed"),
        ({"gpu": None}, "latency.roofline.gpu is missing"),
        ({"calibrate": 3}, "latency.roofline.calibrate is 3; accepted: a path"),
        ({"gpu": "H100"}, "latency.roofline.gpu is .*; near it: H100 SXM, H100 NVL$"),
        ({"gpu": "NVIDIA H200"}, "latency.roofline.gpu is .*; near it: H200$"),
        ({"model": "Qwen/Qwen3-4B"}, "latency.roofline.model is .*; near it: Qwen3-4B$"),
        ({"model": "Lama 3.1 8b"}, "latency.roofline.model is .*; near it: Llama-3.1-8B$"),
        ({"gpu": "!"}, "latency.roofline.gpu is '!'; (?!.*near)"),
    ],
)
def test_bad_rooflines_are_refused(change, message):
    with pytest.raises(InputError, match=message) as caught:
        build_step_cost(latency(**change))
    assert "\n" not in str(caught.value)


def test_a_table_and_a_roofline_are_not_both():
    with pytest.raises(InputError, match="latency.profile is 'b300' beside latency.roofline"):
        build_step_cost({**latency(), "profile": "b300"})
    with pytest.raises(InputError, match="latency.roofline is 3; accepted: a mapping"):
        build_step_cost({"profile": "roofline", "roofline": 3})


# ---------------------------------------------------------------- the shipped numbers


def test_shipped_devices_and_models():
    gpus = {name: find_gpu(name) for name in known("gpus.yaml")}
    assert all(gpu.source and gpu.memory_gb for gpu in gpus.values())
    assert (gpus["H100 SXM"].bandwidth_gb_s, gpus["H100 SXM"].peak_tflops) == (3350, 989.4)
    assert len(gpus) >= 11
    models = {name: find_model(name) for name in known("models.yaml")}
    # Parameters of the attention and of embeddings twice are fewer than all of them.
    for model in models.values():
        query = 2 * model.hidden * model.heads * model.head_dim
        attention = model.layers * (query + 2 * model.hidden * model.kv_heads * model.head_dim)
        assert attention < model.params_b * 1e9
        assert model.heads % model.kv_heads == 0
    assert models["Qwen3-30B-A3B"].active_b == 3.3
    assert find_gpu("h100 sxm") == gpus["H100 SXM"]


@pytest.mark.parametrize(
    "name", ["h100_sxm_qwen3_8b_table5", "a6000_qwen3_8b", "h100_nvl_qwen3_8b"]
)
def test_shipped_profiles_and_tables_agree(name):
    header = find_profile(name).header
    gpu = find_gpu({"h100_s": "H100 SXM", "a6000_": "RTX A6000", "h100_n": "H100 NVL"}[name[:6]])
    known = {"peak_tflops": gpu.peak_tflops, "bandwidth_gb_s": gpu.bandwidth_gb_s}
    assert header.device.model_dump() == known
    model = find_model("Qwen3-8B")
    assert header.model_shape.params_b == model.params_b
    assert header.model_shape.layers == model.layers


# ---------------------------------------------------------------- calibration


def points(path, roofline: Roofline, noise=0.0, cells=None):
    """A CSV of the roofline's own times, with log-normal noise."""
    rng = np.random.default_rng(1)
    cells = cells or [
        (batch, batch * width, context)
        for batch in (1, 4, 16, 64)
        for width in (1, 4, 16, 64)
        for context in (100, 4000, 30_000)
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["batch", "packed_tokens_total", "kv_prefix_tokens", "verify_ms"])
        for batch, total, context in cells:
            ms = float(roofline.verify_ms(batch, total, context)) * np.exp(noise * rng.normal())
            writer.writerow([batch, total, context, ms])
    return path


NAMED = {"gpu": "H100 SXM", "model": "Qwen3-8B", "tensor_parallel": 2}


@pytest.mark.parametrize("truth", [(0.7, 0.45, 0.8), (0.9, 0.3, 0.0), (0.35, 0.8, 2.5)])
def test_known_efficiencies_are_found(tmp_path, truth):
    bandwidth, compute, overhead = truth
    given = {"bandwidth_efficiency": bandwidth, "compute_efficiency": compute}
    law = read_roofline({**NAMED, **given, "overhead_ms": overhead})
    found = read_roofline({**NAMED, "calibrate": str(points(tmp_path / "p.csv", law))})
    assert found.bandwidth_efficiency == pytest.approx(bandwidth, rel=1e-4)
    assert found.compute_efficiency == pytest.approx(compute, rel=1e-4)
    assert found.overhead_ms == pytest.approx(overhead, abs=1e-4)
    assert "Fitted to 48 points" in profile_of(found).header.notes


def test_noise_is_what_the_notes_say(tmp_path):
    """3 % of noise on 48 points leaves a median error of 0.6745 x 3 %, give or take."""
    law = read_roofline({**NAMED, "bandwidth_efficiency": 0.6})
    found = read_roofline({**NAMED, "calibrate": points(tmp_path / "p.csv", law, 0.03)})
    assert found.bandwidth_efficiency == pytest.approx(0.6, rel=0.03)
    words = profile_of(found).header.notes.split("off by ")[1]
    assert 0.01 < float(words.split("%")[0]) / 100 < 0.035
    with_profile = build_step_cost({"profile": "roofline", "roofline": {**NAMED}})
    assert "fitted to nothing" in with_profile.profile.header.notes


def test_what_no_point_depends_on_is_kept(tmp_path):
    cells = [(1, 1, context) for context in (1000, 50_000, 100_000)]
    law = read_roofline({**NAMED, "bandwidth_efficiency": 0.5})
    path = points(tmp_path / "p.csv", law, cells=cells)
    found = read_roofline({**NAMED, "compute_efficiency": 0.37, "calibrate": path})
    assert found.compute_efficiency == 0.37
    assert found.bandwidth_efficiency == pytest.approx(0.5, rel=1e-3)
    assert "compute efficiency kept" in found.calibration


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,1,10,5\n", "1 rows; accepted: at least 3"),
        ("1,1,10,5\n2,1,10,5\n1,1,10,5\n", "line 3, column packed_tokens_total: value '1'; .*2,"),
        ("1,1,10,5\n1,2,10,-5\n1,1,10,5\n", "line 3, column verify_ms: value '-5'"),
        ("1,1,0,5\n", "line 2, column kv_prefix_tokens: value '0'"),
    ],
)
def test_bad_points_are_refused(tmp_path, text, message):
    path = tmp_path / "p.csv"
    path.write_text("batch,packed_tokens_total,kv_prefix_tokens,verify_ms\n" + text)
    with pytest.raises(InputError, match="p.csv: " + message) as caught:
        read_roofline({**NAMED, "calibrate": str(path)})
    assert "\n" not in str(caught.value)
    path.write_text("batch,verify_ms\n1,2\n")
    with pytest.raises(InputError, match="column packed_tokens_total is missing"):
        read_roofline({**NAMED, "calibrate": str(path)})


@pytest.mark.parametrize("name", ["h100-sxm", "H100_SXM", "h100sxm", " H100  SXM "])
def test_a_device_is_found_however_its_name_is_spelt(name):
    assert read_roofline({"gpu": name, "model": "qwen3 8b"}).gpu.name == "H100 SXM"
    assert read_roofline({"gpu": "H200", "model": "llama_3.1-8B"}).model.name == "Llama-3.1-8B"


def test_names_of_one_table_stay_apart_without_what_sets_them_apart():
    for file in ("gpus.yaml", "models.yaml"):
        assert len({bare(name) for name in known(file)}) == len(known(file))


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("model", "gpus", "dtype", "left", "token_bytes"),
    [
        # 72 - 16.06 GB over 131,072 bytes a token.
        ("Llama-3.1-8B", 1, "bfloat16", 72e9 - 16.06e9, 2 * 32 * 8 * 128 * 2),
        # 70.6e9 x 2 / 4 on each, two of eight heads too.
        ("Llama-3.1-70B", 4, "bfloat16", 72e9 - 35.3e9, 2 * 80 * 2 * 128 * 2),
        ("Llama-3.1-70B", 4, "float8", 72e9 - 17.65e9, 2 * 80 * 2 * 128),
        # On 16 GPUs a head each, two times over.
        ("Llama-3.1-70B", 16, "bfloat16", 72e9 - 8.825e9, 2 * 80 * 128 * 2),
    ],
)
def test_tokens_that_fit_by_hand(model, gpus, dtype, left, token_bytes):
    node = {"gpu": "H100 SXM", "model": model, "tensor_parallel": gpus, "dtype": dtype}
    assert kv_tokens_of(profile_of(read_roofline(node)).header, 80) == int(left // token_bytes)


def test_a_profile_knows_its_model():
    """Qwen3-8B on one H100: 72 - 16.4 GB over 147,456 bytes; B300's profile knows no shape."""
    header = find_profile("h100_sxm_qwen3_8b_table5").header
    assert kv_tokens_of(header, 80) == int((72e9 - 16.4e9) // 147456)
    with pytest.raises(InputError, match="DeepSeek-V4-Flash-0731 does not know layers, .*dtype;"):
        kv_tokens_of(find_profile("b300").header, 80)
    with pytest.raises(InputError, match="accepted: more than 18.22, the weights of Qwen.Qwen3-8B"):
        kv_tokens_of(header, 10)
