"""Step costs against values worked out by hand from the published tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.cost import (
    HostOverhead,
    LatencyProfile,
    Source,
    StepCost,
    VerifyRow,
    build_step_cost,
    find_profile,
    known_profiles,
    shares,
)
from simulator.studies.options import read_option
from tests.fast_cases import cost_of
from traces.common.errors import InputError

CONF = Path(__file__).parent.parent / "conf" / "latency"
H100 = "h100_sxm_qwen3_8b_table5"
# Qwen3-8B: 2 x 36 layers x 8 heads x 128 x 2 bytes per context token, read at 3350 GB/s.
H100_KV_MS = 147456 / 3350e9 * 1e3


def step(cost: StepCost, packed, context, drafted=False, tree=False):
    batch = len(packed)
    return cost.step(np.array(packed), np.full(batch, context), drafted=drafted, tree=tree)


@pytest.mark.parametrize(
    ("total", "verify_ms", "source"),
    [
        (1, 5.109, Source.MEASURED),
        (2, 5.162, Source.MEASURED),
        (3, 5.162, Source.MEASURED),
        (4, 5.162, Source.MEASURED),
        (161, 11.39, Source.MEASURED),
        (1009, 20.634, Source.MEASURED),
        (1024, 20.634, Source.MEASURED),
        (1025, 104.49, Source.INTERPOLATED),
        (1536, 104.49, Source.MEASURED),
        (1664, 104.275, Source.INTERPOLATED),  # a quarter of the way from 104.49 to 103.63
        (1792, 104.06, Source.INTERPOLATED),
        (2048, 103.63, Source.MEASURED),
        (16384, 234.89, Source.MEASURED),
    ],
)
def test_b300_staircase_then_eager_tail(total, verify_ms, source):
    answer = step(cost_of("b300"), [total], 8192)
    assert answer.verify_s == pytest.approx(verify_ms * 1e-3, rel=1e-12)
    assert answer.source == source
    assert answer.draft_s == answer.host_s == 0.0


def test_b300_cliff_after_128_requests_of_8_tokens():
    cost = cost_of("b300")
    assert step(cost, [8] * 128, 8192).verify_s == pytest.approx(20.634e-3)
    assert step(cost, [8] * 129, 8192).verify_s == pytest.approx(104.49e-3)
    assert (cost.num_gpus, cost.graph_sizes[-1]) == (4, 1024)
    beyond = step(cost, [20000], 8192)  # follows the last octave
    assert beyond.verify_s == pytest.approx((234.89 + 3616 * (234.89 - 135.66) / 8192) * 1e-3)
    assert beyond.source == Source.MODELLED


@pytest.mark.parametrize(
    ("batch", "draft_ms", "source"),
    [
        (8, 1.071, Source.MEASURED),
        (12, (1.071 + 1.317) / 2, Source.INTERPOLATED),
        (256, 5.38, Source.MEASURED),
        (300, 5.38 + 44 * (5.38 - 3.143) / 128, Source.MODELLED),
    ],
)
def test_b300_draft_cost_by_requests(batch, draft_ms, source):
    answer = step(cost_of("b300"), [1] * batch, 8192, drafted=True)
    assert answer.draft_s == pytest.approx(draft_ms * 1e-3)
    assert answer.source & source
    assert (Source.MODELLED in answer.source) == (source == Source.MODELLED)


@pytest.mark.parametrize(
    ("batch", "total", "context", "verify_ms", "source"),
    [
        (1, 8, 1024, 15.0791, Source.MEASURED),
        (8, 64, 1024, 15.9171, Source.MEASURED),
        (32, 1024, 1024, 76.1296, Source.MEASURED),
        (1, 8, 768, (14.333 + 15.0791) / 2, Source.INTERPOLATED),
        (1, 12, 1024, (15.0791 + 16.1169) / 2, Source.INTERPOLATED),
        # equal totals on batches 8 and 32, half-way between them
        (20, 256, 1024, (28.6482 + 29.0902) / 2, Source.INTERPOLATED),
        # batch 1 was measured at 32; batch 8 between 8 and 64: 24/56 of the way
        (4, 32, 1024, (4 * 17.4982 + 3 * (12.6705 + 24 / 56 * 3.2466)) / 7, Source.INTERPOLATED),
        # one token each: batch 32 starts at 32 tokens, so batch 8 is read at 8
        (20, 20, 1024, (12.6705 + 15.5202) / 2, Source.INTERPOLATED),
        # 32 tokens each: batch 1 ends at 32 tokens, so batch 8 is read at 256
        (4, 128, 1024, (4 * 17.4982 + 3 * 28.6482) / 7, Source.INTERPOLATED),
        (8, 64, 3000, 15.9171, Source.CLAMPED),
        (1, 8, 9000, 17.9355, Source.CLAMPED),
        (1, 8, 100, 14.333, Source.CLAMPED),
    ],
)
def test_mi355x_inside_the_table(batch, total, context, verify_ms, source):
    cost = cost_of("mi355x")
    packed = np.full(batch, total // batch)
    packed[: total - int(packed.sum())] += 1
    answer = step(cost, packed, context)
    assert answer.verify_s == pytest.approx(verify_ms * 1e-3, rel=1e-12)
    assert answer.source == source


def test_mi355x_beyond_the_largest_batch_adds_measured_kv_reads():
    kv_ms = (12.2439 - 11.9886) / 3072  # batch one, one token, prefix 512 to 3584
    answer = step(cost_of("mi355x"), [16] * 64, 1024)
    assert answer.verify_s == pytest.approx((76.1296 + 32 * 1024 * kv_ms) * 1e-3)
    assert answer.source == Source.MODELLED


def test_a_chained_drafter_pays_every_step():
    one = step(cost_of("mi355x"), [8], 1024, drafted=True).draft_s
    seven = step(cost_of("mi355x", draft_steps=7), [8], 1024, drafted=True).draft_s
    assert one == pytest.approx(0.3513e-3)
    assert seven == pytest.approx(7 * 0.3513e-3)
    assert cost_of("mi355x").draft_s(20, 1024) == pytest.approx((0.4765 + 1.1715) / 2 * 1e-3)


def test_probe_is_linear_between_sizes_and_prefixes():
    answer = step(cost_of(H100), [20], 1024, drafted=True)
    assert answer.verify_s == pytest.approx((30.55591 + 30.19036) / 2 * 1e-3)
    assert answer.draft_s == pytest.approx(3.79793e-3)
    assert answer.source == Source.INTERPOLATED
    answer = step(cost_of("h100_sxm_qwen3_8b_table6"), [16], 2560, drafted=True)
    assert answer.verify_s == pytest.approx((26.57087 + 25.53252) / 2 * 1e-3)
    assert answer.draft_s == pytest.approx((3.68136 + 3.48142) / 2 * 1e-3)


def test_more_requests_than_probed_same_total_plus_kv_reads():
    answer = step(cost_of(H100), [16] * 4, 1024)
    assert answer.verify_s == pytest.approx((31.46328 + 3 * 1024 * H100_KV_MS) * 1e-3)
    assert answer.source == Source.MODELLED
    # the KV reads follow the real context, the table the nearest prefix
    answer = step(cost_of(H100), [16] * 4, 5000)
    assert answer.verify_s == pytest.approx((31.46328 + 3 * 5000 * H100_KV_MS) * 1e-3)
    assert answer.source == Source.MODELLED | Source.CLAMPED


@pytest.mark.parametrize(
    ("name", "last_ms", "slope_ms"),
    [
        (H100, 32.61304, (32.61304 - 31.46328) / 64),  # secant 0.0180 over compute 0.0166
        ("a100_qwen3_8b", 35.63607, 2 * 8.2e9 / 312e12 * 1e3),  # compute over secant 0.0057
    ],
)
def test_more_tokens_than_probed_takes_the_larger_slope(name, last_ms, slope_ms):
    answer = step(cost_of(name), [228], 1024)
    assert answer.verify_s == pytest.approx((last_ms + 100 * slope_ms) * 1e-3)
    assert answer.source == Source.MODELLED


@pytest.mark.parametrize("name", known_profiles())
def test_the_extension_never_falls_and_starts_at_the_last_point(name):
    cost = cost_of(name)
    packed, probe_ms = cost.width_probe()
    last = int(packed[-1])
    for context in (1024, 4000):
        for batch in (1, 2, 33, 64, 300):
            top = max(last, 32 * min(batch, 32)) if name == "mi355x" else last
            curve = cost.verify_curve_s(batch, np.arange(top, 3 * top), context)
            assert (np.diff(curve) >= 0).all()
    context = cost.profile.verify[0].kv_prefix_tokens
    assert cost.verify_s(1, int(cost.width_probe(context)[0][-1]), context) * 1e3 == pytest.approx(
        cost.width_probe(context)[1][-1]
    )
    assert len(packed) == len(probe_ms)


@pytest.mark.parametrize(("packed", "context"), [([200], 1024), ([4, 4], 1024), ([4], 1000)])
def test_strict_refuses_what_was_not_measured(packed, context):
    with pytest.raises(InputError, match=rf"{H100} \(strict\): a step of .*up to 128 packed"):
        step(cost_of(H100, strict=True), packed, context)
    assert step(cost_of(H100), packed, context).source & (Source.MODELLED | Source.CLAMPED)


def test_strict_answers_inside_the_table_and_checks_curves_and_drafts():
    cost = cost_of(H100, strict=True)
    assert step(cost, [128], 1024, drafted=True).source == Source.MEASURED
    with pytest.raises(InputError, match="129 packed tokens"):
        cost.verify_curve_s(1, np.array([1, 129]), 1024)
    cost = cost_of("b300", strict=True)
    step(cost, [1] * 300, 8192)  # 300 tokens were timed, no drafts for 300 requests
    with pytest.raises(InputError, match="b300"):
        step(cost, [1] * 300, 8192, drafted=True)


def test_dense_packing_pads_to_the_largest_tree():
    packed = [1, 3, 8, 4]
    ragged = step(cost_of("b300"), packed, 8192)
    dense = step(cost_of("b300", packing="dense"), packed, 8192)
    assert ragged.verify_s == pytest.approx(5.592e-3)  # 16 tokens
    assert dense.verify_s == pytest.approx(6.262e-3)  # 4 x 8 = 32 tokens


def test_host_terms_add_up_per_round_node_and_tree():
    host = HostOverhead(round_s=1e-3, node_s=1e-5, tree_step_s=2e-3, plain_s=4e-3)
    cost = cost_of("b300", host=host, packing="dense")
    packed = [1, 3, 8, 4]  # 12 draft nodes, whatever the padding
    assert step(cost, packed, 8192, drafted=True).host_s == pytest.approx(1.12e-3)
    assert step(cost, packed, 8192, drafted=True, tree=True).host_s == pytest.approx(3.12e-3)
    plain = step(cost, [1, 1], 8192)
    assert plain.host_s == pytest.approx(4e-3)
    assert plain.total_s == pytest.approx(plain.verify_s + 4e-3)


def test_overlapped_host_work_shows_only_what_sticks_out():
    hidden = cost_of("b300", host=HostOverhead(round_s=6e-3, overlap=True))
    seen = cost_of("b300", host=HostOverhead(round_s=9e-3, overlap=True))
    device_s = 5.109e-3 + 0.883e-3
    assert step(hidden, [1], 8192, drafted=True).host_s == pytest.approx(6e-3 - device_s)
    assert step(seen, [1], 8192, drafted=True).total_s == pytest.approx(9e-3)
    under = cost_of("b300", host=HostOverhead(round_s=5e-3, overlap=True))
    assert step(under, [1], 8192, drafted=True).host_s == 0.0


def test_width_probe_gives_the_measured_points():
    packed, ms = cost_of("h100_sxm_qwen3_8b_table6").width_probe(context=5000)
    assert packed.tolist() == [1, 4, 8, 16, 24, 32, 48, 64, 96, 128]
    assert (ms[0], ms[-1]) == (22.72836, 26.60847)  # prefix 4096 is the nearest


def test_shares_of_steps_and_time():
    both = Source.MODELLED | Source.CLAMPED
    steps = {Source.MEASURED: 1, Source.INTERPOLATED: 1, both: 1, Source.CLAMPED: 1}
    seconds = {Source.MEASURED: 1.0, Source.INTERPOLATED: 1.0, both: 2.0, Source.CLAMPED: 4.0}
    found = shares(steps, seconds)
    assert list(found["steps"].values()) == [0.25, 0.25, 0.25, 0.5]
    assert list(found["time"].values()) == [0.125, 0.125, 0.25, 0.75]
    assert list(found["time"]) == ["measured", "interpolated", "modelled", "clamped"]
    assert shares({}, {})["steps"]["measured"] == 0.0


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_builds(path):
    node = read_option("latency", path.stem, "latency")
    cost = build_step_cost(node)
    assert node["name"] == path.stem
    assert cost.profile.name == node["profile"]
    assert step(cost, [4], 1024, drafted=True, tree=True).total_s > 0


def test_every_profile_has_a_configuration():
    assert {path.stem for path in CONF.glob("*.yaml")} >= set(known_profiles())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": "h200"}, "latency.profile is 'h200'; accepted: .*b300"),
        ({"profile": "no/such.csv"}, "no such file"),
        ({"host": 3}, "latency.host is 3; accepted: a mapping"),
        ({"cliffs": [{"factor": 2}]}, "accepted: null, or a list of mappings of above"),
        ({"graph_sizes": [4, 4]}, "accepted: null, or rising"),
        ({"graph_sizes": [4], "mode": "eager"}, "accepted: null with latency.mode eager"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(InputError, match=message) as caught:
        build_step_cost({"name": "b300", "profile": "b300", **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [[], [0, 2]])
def test_a_step_without_roots_is_refused(packed):
    with pytest.raises(InputError, match="at least 1 for each request"):
        cost_of("b300").step(np.array(packed, int), np.array([8192]), drafted=True, tree=False)


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
    # Of 2 requests, eager; 4 for 8, captured.
    assert step(cost, [25] * 4, 512).verify_s * 1e3 == pytest.approx(8)
    # A third of the way to 8.
    assert step(cost, [16] * 4, 512).verify_s * 1e3 == pytest.approx(2 + (3 - 2) / 3)
