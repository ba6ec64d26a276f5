"""Latency profiles: what is read, what is refused, and how regimes stay apart."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from simulator.cost import Source, StepCost, find_profile, known_profiles, read_profile
from traces.common.errors import InputError
from traces.profiles.devices import suspicious

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
        ({"verify": swap("verify_ms", "ms")}, "toy.csv: column verify_ms is missing"),
        ({"verify": swap("regime", "mode")}, "column regime is missing"),
        ({"verify": swap("packed_tokens_per_request", "tokens")}, "accepted: exactly one of"),
        ({"fixed": {}}, "column kv_prefix_tokens is missing"),
        ({"verify": swap("1,4,11", "1,4,-11")}, "line 3, column verify_ms: value '-11'; accepted"),
        ({"verify": swap("1,4,11", "1,4,nan")}, "verify_ms: value 'nan'"),
        ({"verify": swap("1,4,11", "1,4,inf")}, "verify_ms: value 'inf'"),
        ({"verify": swap("1,4,11", "1,4,fast")}, "verify_ms: value 'fast'"),
        ({"verify": swap("1,4,11", "1,0,11")}, "packed_tokens_per_request: value '0'"),
        ({"verify": swap("1,4,11", "1,-4,11")}, "packed_tokens_per_request: value '-4'"),
        ({"verify": swap("1,4,11", "1.5,4,11")}, "batch: value '1.5'"),
        ({"verify": swap("1,4,11", "1,1,11")}, "line 3, .*each size once"),
        ({"verify": swap("1,1,10", "1,5,10")}, "line 3, .*value '4'; accepted: rows sorted"),
        ({"verify": swap("11,eager", "11,warm")}, "value 'warm'; accepted: cuda_graph, eager"),
        ({"verify": swap("11,eager", "11")}, "line 3 has 3 values; accepted: 4"),
        ({"verify": swap("11,eager", "11,cuda_graph")}, "column regime: .*cuda_graph"),
        ({"verify": "batch\n"}, "accepted: a header line and at least one row"),
        # A quoted cell that runs over two lines moves those below: the fourth row is in line 6.
        ({"verify": swap("10,", '"10\n",', swap("4,16,", "4,x,"))}, "line 6, .*value 'x'"),
        ({"verify": swap("regime\n", "regime,note\n")}, "line 2 has 4 values; accepted: 5"),
        ({"draft": swap("draft_ms", "ms", DRAFT)}, "toy.draft.csv: column draft_ms is missing"),
        ({"draft": swap("1.5", "-1.5", DRAFT)}, "toy.draft.csv: line 3, column draft_ms"),
        ({"draft": swap("2,1.5", "1,1.5", DRAFT)}, "toy.draft.csv: line 3, .*each size once"),
        (
            {"draft": "batch,draft_ms,noise,when\n1,1,0.1,\n"},
            "columns noise, when; .*it: noise_ms$",
        ),
        ({"drop": "hardware"}, "toy.yaml: hardware is missing; accepted: text"),
        ({"drop": "fixed"}, "fixed is missing"),
        ({"colour": "red"}, "unknown key colour"),
        ({"drop": "num_gpus", "num_gpu": 1}, "unknown key num_gpu; .*near it: num_gpus$"),
        ({"model_shape": 8}, "model_shape is 8; accepted: a mapping"),
        ({"model_shape": {"layers": -2}}, "layers is -2; accepted: a number above 0"),
        ({"model_shape": {"depth": 2}}, "unknown key model_shape.depth; .*model_shape.layers"),
        ({"device": {"bandwith": 1}}, "unknown key device.bandwith; accepted: device.peak_tflops"),
        ({"fixed": {"batches": 1}}, "fixed is {'batches': 1}; accepted: a mapping of batch"),
        ({"fixed": {"kv_prefix_tokens": "any"}}, "fixed is {'kv_prefix_tokens': 'any'}"),
        ({"kind": "guessed"}, "kind is 'guessed'; accepted: measured, modelled"),
        ({"engine": "fast"}, "engine is 'fast'; accepted: eager"),
        ({"num_gpus": 0}, "num_gpus is 0; accepted: a whole number from 1"),
        ({"source": ""}, "source is ''; accepted: text"),
        ({"command": ""}, "command is ''; accepted: text"),
        ({"measured_on": 3}, "measured_on is 3; accepted: text"),
        ({"noise": 3}, "noise is 3; accepted: a mapping"),
        ({"noise": {"mad": "low"}}, "noise is {'mad': 'low'}; accepted: a mapping of names"),
        ({"noise": {"mad": -1}}, "noise is {'mad': -1}"),
        ({"noise": {"mad": float("nan")}}, "noise is {'mad': nan}"),
        ({"graph_sizes": [4, 2]}, r"graph_sizes is \[4, 2\]; accepted: .*strictly increasing"),
        ({"graph_sizes": [2, 4]}, "graph_sizes and the cuda_graph rows of toy.csv differ"),
    ],
)
def test_bad_profiles_are_refused_in_one_line(write, parts, message):
    with pytest.raises(InputError, match=message) as caught:
        read_profile(write(**parts))
    assert "\n" not in str(caught.value)


def test_a_table_as_excel_writes_it_reads_the_same(write):
    """A byte-order mark before every file, lines that end with \\r\\n, a space after a comma."""
    good = read_profile(write())
    path = write()
    path.with_suffix(".prefill.csv").write_text("prompt_tokens,prefill_ms\n64,10\n")
    for ending in (".csv", ".draft.csv", ".prefill.csv", ".yaml"):
        file = path.with_suffix(ending)
        text = file.read_text().replace("1,1.0", "1, 1.0").replace("\n", "\r\n")
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = read_profile(path)
    assert (found.header, found.verify, found.draft) == (good.header, good.verify, good.draft)
    assert [(row.prompt_tokens, row.prefill_ms) for row in found.prefill] == [(64, 10.0)]


@pytest.mark.parametrize("kind", ["verify", "draft", "prefill"])
def test_columns_that_nobody_reads_are_named(write, kind):
    """With its own column beside it, so that none is missing."""
    path = write()
    path.with_suffix(".prefill.csv").write_text("prompt_tokens,prefill_ms\n64,10\n")
    file = path.with_suffix(".csv" if kind == "verify" else f".{kind}.csv")
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{line},{kind}_s\n" for line in lines))
    with pytest.raises(InputError, match=rf"no table has column {kind}_s; accepted: .*{kind}_ms"):
        read_profile(path)


def test_a_missing_file_is_named(write):
    for missing in ("toy.csv", "toy.yaml", "toy.draft.csv"):
        path = write()
        path.with_name(missing).unlink()
        with pytest.raises(InputError, match=missing):
            read_profile(path)


def test_broken_yaml_is_one_line(write):
    path = write()
    header = path.with_suffix(".yaml")
    good = header.read_text()
    for text, said in (
        ("hardware: [", "line 2 column 1: "),  # where the text ends
        ("model: toy\n\tdtype: x\n", "line 2 column 1: "),
        ("model: toy\nmodel: tiny\n", "line 2: a mapping has the key 'model' twice"),
        ("model: toy\nmeasured_on: 2026-13-01\n", "line 2: month must be in 1..12"),
        ("model: toy\n\nnotes: \x07\n", "line 3: a character that YAML does not take"),
        (good.replace("model: toy", "model: !!int toy"), "invalid literal for int"),
    ):
        header.write_text(text)
        with pytest.raises(InputError, match="toy.yaml: not valid YAML") as caught:
            read_profile(path)
        assert said in str(caught.value)
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
    for name, profile in tables.items():
        assert profile.header.source, name
        assert suspicious(profile) is None, name
    assert len(tables["b300"].header.graph_sizes) == 51
    # what finished runs have kept of it since version 0.1
    assert tables["b300"].content_hash.startswith("f77ba0eb506c503211565b9f84bf3132bb0a77cd")


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


BIG = {
    "model_shape": {"active_params_b": 8},
    "dtype": "bfloat16",
    "device": {"bandwidth_gb_s": 2000},
}


@pytest.mark.parametrize(
    ("ms", "change", "said"),
    [
        (10, {}, None),
        (0.01, {}, "0.01 ms would read 16 GB of weights, which takes 8 ms at 2000 GB/s; are the"),
        (2.7, {}, None),  # a third of 8 ms is 2.67
        (2.6, {}, "which takes 8 ms at 2000"),
        (2.6, {"num_gpus": 2}, None),  # 4 ms
        (1.3, {"num_gpus": 2}, "which takes 4 ms at 2 x 2000 GB/s"),
        (1e-3, {"dtype": "int4"}, None),
        (1e-3, {"model_shape": {"params_b": 8}}, None),  # active ones may be few
        (1e-3, {"device": {}}, None),
        # 16 GB at the 3,350 GB/s of its data sheet are 4.78 ms
        (1.5, {"device": {}, "hardware": "NVIDIA H100 80GB (SXM)"}, "takes 4.78 ms at 3350"),
        (1.7, {"device": {}, "hardware": "NVIDIA H100 80GB (SXM)"}, None),
    ],
)
def test_what_makes_a_step_suspicious(write, ms, change, said):
    """8 billion parameters of 2 bytes at 2,000 GB/s: 16 GB take 8 ms."""
    profile = read_profile(write(verify=swap("10", f"{ms}"), **{**BIG, **change}))
    found = suspicious(profile)
    assert found is None if said is None else said in found


def test_drafts_and_prefill_are_held_against_their_weights(write):
    """A drafter of 1 billion: 2 GB take 1 ms, and the fastest draft is 1 ms."""
    drafter = {"drafter": {"params_b": 1.0}}
    assert suspicious(read_profile(write(**BIG, **drafter))) is None
    fast = write(draft=DRAFT.replace("1,1.0", "1,0.001"), **BIG, **drafter)
    assert "a draft of 0.001 ms would read 2 GB" in suspicious(read_profile(fast))
    path = write(**BIG)
    path.with_suffix(".prefill.csv").write_text("prompt_tokens,prefill_ms\n64,0.01\n")
    assert "a prefill of 0.01 ms would read 16 GB" in suspicious(read_profile(path))
