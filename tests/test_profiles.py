"""Latency profiles: what is read, what is refused, and how regimes stay apart."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from simulator.cost import Source, StepCost, find_profile, known_profiles, read_profile
from traces.errors import InputError

HEADER = {
    "hardware": "bench",
    "num_gpus": 1,
    "model": "toy",
    "model_shape": {},
    "dtype": "float32",
    "attention": "causal",
    "engine": "eager",
    "graph_sizes": [],
    "timing": "median of 25",
    "source": "this test",
    "kind": "measured",
    "license": "none",
    "fixed": {"kv_prefix_tokens": 512},
}
VERIFY = """batch,packed_tokens_per_request,verify_ms,regime
1,1,10,eager
1,4,11,eager
2,1,12,eager
2,4,16,eager
"""
DRAFT = "batch,draft_ms\n1,1.0\n2,1.5\n"


@pytest.fixture
def write(tmp_path):
    """Write a profile, its parts replaced by keyword, and give the path of its CSV."""

    def _write(verify=VERIFY, draft=DRAFT, drop=None, **header):
        fields = {**HEADER, **header}
        fields.pop(drop, None)
        (tmp_path / "toy.yaml").write_text(yaml.safe_dump(fields))
        (tmp_path / "toy.csv").write_text(verify)
        (tmp_path / "toy.draft.csv").write_text(draft)
        return tmp_path / "toy.csv"

    return _write


def test_a_profile_reads_back(write):
    profile = read_profile(write())
    assert profile.name == "toy"
    assert [row.packed_tokens_total for row in profile.verify] == [1, 4, 2, 8]
    assert {row.kv_prefix_tokens for row in profile.verify} == {512}
    assert [row.draft_ms for row in profile.draft] == [1.0, 1.5]
    assert not profile.modelled


def swap(old, new, text=VERIFY):
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"verify": swap("verify_ms", "ms")}, r"toy.csv: column verify_ms is missing; found batch"),
        ({"verify": swap("regime", "mode")}, "column regime is missing"),
        ({"verify": swap("packed_tokens_per_request", "tokens")}, "accepted: exactly one of"),
        ({"fixed": {}}, "column kv_prefix_tokens is missing"),
        ({"verify": swap("1,4,11", "1,4,-11")}, "row 2, column verify_ms: value '-11'; accepted"),
        ({"verify": swap("1,4,11", "1,4,nan")}, "row 2, column verify_ms: value 'nan'"),
        ({"verify": swap("1,4,11", "1,4,inf")}, "row 2, column verify_ms: value 'inf'"),
        ({"verify": swap("1,4,11", "1,4,fast")}, "row 2, column verify_ms: value 'fast'"),
        ({"verify": swap("1,4,11", "1,0,11")}, "column packed_tokens_per_request: value '0'"),
        ({"verify": swap("1,4,11", "1,-4,11")}, "column packed_tokens_per_request: value '-4'"),
        ({"verify": swap("1,4,11", "1.5,4,11")}, "row 2, column batch: value '1.5'"),
        ({"verify": swap("1,4,11", "1,1,11")}, "row 2, .*each size once"),
        ({"verify": swap("1,1,10", "1,5,10")}, "row 2, .*value '4'; accepted: rows sorted"),
        ({"verify": swap("11,eager", "11,warm")}, "value 'warm'; accepted: cuda_graph, eager"),
        ({"verify": swap("11,eager", "11")}, "row 2 has 3 values; accepted: 4"),
        ({"verify": swap("11,eager", "11,cuda_graph")}, "row 2, column regime: .*cuda_graph"),
        ({"verify": "batch\n"}, "accepted: a header line and at least one row"),
        ({"draft": swap("draft_ms", "ms", DRAFT)}, "toy.draft.csv: column draft_ms is missing"),
        ({"draft": swap("1.5", "-1.5", DRAFT)}, "toy.draft.csv: row 2, column draft_ms"),
        ({"draft": swap("2,1.5", "1,1.5", DRAFT)}, "toy.draft.csv: row 2, .*each size once"),
        ({"drop": "hardware"}, "toy.yaml: header field 'hardware' is missing; accepted: hardware"),
        ({"drop": "fixed"}, "header field 'fixed' is missing"),
        ({"colour": "red"}, "unknown header field 'colour'"),
        ({"kind": "guessed"}, "kind is 'guessed'; accepted: measured, modelled"),
        ({"engine": "fast"}, "engine is 'fast'; accepted: eager"),
        ({"num_gpus": 0}, "num_gpus is 0; accepted: a whole number of at least 1"),
        ({"source": ""}, "source is ''; accepted: a line of text"),
        ({"model_shape": {"layers": -2}}, "model_shape.layers is -2; accepted: above 0, or null"),
        ({"model_shape": {"depth": 2}}, "accepted: a mapping of layers"),
        ({"fixed": {"kv_prefix_tokens": "any"}}, "fixed.kv_prefix_tokens is 'any'"),
        ({"graph_sizes": [4, 2]}, "accepted: strictly increasing sizes"),
        (
            {"graph_sizes": [2, 4]},
            "graph_sizes and the cuda_graph rows of toy.csv differ at size 2",
        ),
    ],
)
def test_bad_profiles_are_refused_in_one_line(write, parts, message):
    with pytest.raises(InputError, match=message) as caught:
        read_profile(write(**parts))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["toy.csv", "toy.yaml", "toy.draft.csv"])
def test_a_missing_file_is_named(write, missing):
    path = write()
    path.with_name(missing).unlink()
    with pytest.raises(InputError, match=missing):
        read_profile(path)


def test_broken_yaml_is_one_line(write):
    path = write()
    path.with_suffix(".yaml").write_text("hardware: [")
    with pytest.raises(InputError, match="not valid YAML") as caught:
        read_profile(path)
    assert "\n" not in str(caught.value)


def test_any_batch_needs_totals_and_a_draft_batch(write):
    fixed = {"batch": "any", "kv_prefix_tokens": 512}
    per_request = "packed_tokens_per_request,verify_ms,regime\n1,10,eager\n"
    with pytest.raises(InputError, match="packed_tokens_total, as the header says batch: any"):
        read_profile(write(verify=per_request, fixed=fixed))
    total = per_request.replace("per_request", "total")
    with pytest.raises(InputError, match="column batch is missing"):
        read_profile(write(verify=total, draft="draft_ms\n1\n", fixed=fixed))
    assert read_profile(write(verify=total, fixed=fixed)).verify[0].batch is None


def test_a_modelled_profile_says_so_in_every_step(write):
    cost = StepCost(read_profile(write(kind="modelled")), strict=True)
    answer = cost.step(np.array([1]), np.array([512]), drafted=True, tree=False)
    assert answer.source == Source.MODELLED
    assert answer.total_s == pytest.approx(11e-3)


def test_a_path_is_found_and_an_unknown_name_lists_the_known(write):
    assert find_profile(write()).name == "toy"
    with pytest.raises(InputError, match=r"accepted: a path to a \.csv, or one of .*mi355x"):
        find_profile("toy")


def test_batches_are_never_averaged_across_regimes(write):
    """Batch 1 captured up to 4 tokens, batch 3 up to 6: at 5 tokens only one runs a graph."""
    verify = (
        "batch,packed_tokens_total,verify_ms,regime\n"
        "1,1,1,cuda_graph\n1,4,2,cuda_graph\n1,8,50,eager\n"
        "3,3,3,cuda_graph\n3,6,4,cuda_graph\n3,8,60,eager\n"
    )
    graphs = {"engine": "cuda_graph + eager tail", "graph_sizes": [1, 3, 4, 6]}
    cost = StepCost(read_profile(write(verify=verify, **graphs)))
    assert cost.verify_s(2, 4, 512) == pytest.approx(3e-3)  # both captured: (2 + 4) / 2
    assert cost.verify_s(2, 5, 512) == pytest.approx(50e-3)  # eager against captured: the larger
    assert cost.verify_s(2, 7, 512) == pytest.approx(55e-3)  # both eager: (50 + 60) / 2
    np.testing.assert_allclose(
        cost.verify_curve_s(2, np.array([4, 5, 7]), 512), [3e-3, 50e-3, 55e-3]
    )


def test_fewer_requests_than_measured_are_modelled(write):
    verify = VERIFY.replace("1,1,10,eager\n1,4,11,eager\n", "")
    cost = StepCost(read_profile(write(verify=verify)))
    answer = cost.step(np.array([4]), np.array([512]), drafted=False, tree=False)
    assert answer.verify_s == pytest.approx((12 + 16 * 2 / 6 - 12 * 2 / 6) * 1e-3)
    assert answer.source == Source.MODELLED
    with pytest.raises(InputError, match="smallest batch 2"):
        cost.width_probe()


def test_shipped_profiles_are_complete():
    assert len(known_profiles()) == 15
    tables = {name: find_profile(name) for name in known_profiles()}
    assert sum(len(profile.verify) for profile in tables.values()) == (
        # 17 probes of 10 sizes, the B300 sizes, the MI355X grid, two of 5 batches x 2 x 7 sizes
        17 * 10 + 56 + 36 + 2 * 5 * 2 * 7
    )
    assert all(profile.header.source for profile in tables.values())
    assert len(tables["b300"].header.graph_sizes) == 51


@pytest.mark.parametrize(
    ("name", "packed", "context", "verify_ms", "draft_ms"),
    [
        ("h100_sxm_qwen3_8b_table5", 48, 1024, 31.20871, 3.79793),
        ("h100_sxm_qwen3_8b_table6", 48, 8192, 37.09336, 3.54128),
        ("h100_sxm_qwen3_8b_table6", 4, 16384, 55.25742, 3.54578),
        ("h100_sxm_qwen3_4b_table5", 128, 1024, 27.12196, 3.58867),
        ("h100_sxm_qwen3_4b_table6", 96, 4096, 24.68993, 3.50203),
        ("h100_sxm_llama31_8b", 16, 1024, 17.7672, 3.59197),
        ("h100_sxm_qwen3_coder_30b_a3b", 64, 1024, 58.46559, 5.56336),
        ("h100_nvl_qwen3_8b", 32, 1024, 20.82021, 2.35411),
        ("a100_qwen3_8b", 32, 1024, 39.41707, 4.83048),
        ("a6000_qwen3_8b", 1, 1024, 116.97287, 17.98054),
        ("blackwell_qwen3_8b", 128, 1024, 30.2501, 2.7517),
        ("blackwell_qwen3_4b", 24, 1024, 19.58081, 2.63701),
    ],
)
def test_published_points_come_back(name, packed, context, verify_ms, draft_ms):
    cost = StepCost(find_profile(name), strict=True)
    answer = cost.step(np.array([packed]), np.array([context]), drafted=True, tree=True)
    assert answer.verify_s == pytest.approx(verify_ms * 1e-3)
    assert answer.draft_s == pytest.approx(draft_ms * 1e-3)
    assert answer.source == Source.MEASURED
