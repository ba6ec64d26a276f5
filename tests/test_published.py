"""The cost model against published decoding times."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

import traces
from simulator.studies.options import read_option
from simulator.studies.published.decoding import (
    PROFILES,
    evaluate,
    evaluate_all,
    fitted_terms,
    read_cells,
)
from traces.common.errors import InputError

FOLDER = Path(traces.__file__).parent / "published"
CONF = Path(__file__).parent.parent / "conf" / "latency"


def test_the_transcribed_cells_are_whole():
    cells = read_cells()
    assert len(cells) == 6 * 5 * 2 + 8 * 3  # widths x domains, two Qwen3 settings and Llama
    assert {cell.setting for cell in cells} == set(PROFILES)
    # relative gain of the tree at 127 nodes over the chain, gsm8k, Qwen3-8B: 5.47818 / 4.28045
    by_nodes = {c.nonroot_nodes: c for c in cells[:6]}
    assert by_nodes[15].ms_per_token / by_nodes[127].ms_per_token == pytest.approx(
        1.27981, abs=1e-5
    )


def test_mass_curves_are_non_increasing_probabilities():
    with (FOLDER / "cast_mass_curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    curves = {}
    for row in rows:
        curves.setdefault(row["domain"], []).append(float(row["mean_prefix_mass"]))
    assert {domain: len(curve) for domain, curve in curves.items()} == {
        "gsm8k": 128,
        "mtbench": 128,
        "humaneval": 128,
    }
    for curve in curves.values():
        assert (np.diff(curve) <= 0).all()
        assert 0 < curve[-1] < curve[0] < 1
    assert (curves["gsm8k"][14], curves["gsm8k"][63]) == (0.127618, 0.011189)
    assert yaml.safe_load((FOLDER / "cast_mass_curves.yaml").read_text())["source"]


def test_the_constant_is_what_the_fitted_chain_leaves_over():
    report = evaluate("h100sxm_qwen3-4b", "h100_sxm_qwen3_4b_table5")
    # 5.42012 ms x 6.12714 tokens, less the probe at 16 tokens and the drafter
    assert report.host_ms == pytest.approx(5.42012 * 6.12714 - 25.26403 - 3.58867)
    fitted = [p for p in report.predictions if p.fitted]
    assert [(p.cell.domain, p.cell.method) for p in fitted] == [("gsm8k", "chain")]
    assert fitted[0].error == pytest.approx(0, abs=1e-12)
    assert fitted[0] not in report.judged()


def test_a_judged_cell_by_hand():
    report = evaluate("h100sxm_qwen3-8b", "h100_sxm_qwen3_8b_table5")
    host_ms = 5.47818 * 6.23077 - 30.55591 - 3.79793
    cell = next(p for p in report.judged() if (p.cell.domain, p.cell.nonroot_nodes) == ("mbpp", 63))
    predicted = (31.46328 + 3.79793 + host_ms) / 8.66039
    assert cell.ms_per_token == pytest.approx(predicted)
    assert cell.error == pytest.approx(predicted / 4.13733 - 1)
    chain = (30.55591 + 3.79793 + host_ms) / 6.56174
    assert report.gains(cell) == pytest.approx((5.26696 / 4.13733, chain / predicted))


def test_plain_decoding_pays_neither_draft_nor_host():
    report = evaluate("h100sxm_llama3.1-8b", "h100_sxm_llama31_8b")
    assert len(report.plain()) == 3
    for item in report.plain():
        assert item.ms_per_token == pytest.approx(16.69865)


def test_every_setting_is_judged_and_table_5_fits_the_qwen3_runs():
    reports = evaluate_all()
    assert reports["h100sxm_qwen3-8b"][0].profile == "h100_sxm_qwen3_8b_table5"
    assert reports["h100sxm_qwen3-4b"][0].profile == "h100_sxm_qwen3_4b_table5"
    for candidates in reports.values():
        for report in candidates:
            errors = [p.error for p in report.judged()]
            assert len(errors) == len([p for p in report.predictions if p.cell.drafted]) - 1
            assert all(math.isfinite(error) for error in errors)
        # a bound a broken profile or a wrong pairing would exceed, away from the averaging caveat
        judged = [abs(p.error) for p in candidates[0].judged() if p.cell.domain != "mtbench"]
        assert np.median(judged) < 0.06


def test_another_domain_can_be_fitted_and_an_unknown_one_is_refused():
    report = evaluate("h100sxm_qwen3-8b", "h100_sxm_qwen3_8b_table5", "humaneval")
    fitted = next(p for p in report.predictions if p.fitted)
    assert fitted.cell.domain == "humaneval"
    assert fitted.error == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="fit_domain is 'poems'; accepted for"):
        evaluate("h100sxm_qwen3-8b", "h100_sxm_qwen3_8b_table5", "poems")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("h100_sxm_qwen3_8b_host", "h100sxm_qwen3-8b"),
        ("h100_sxm_qwen3_4b_host", "h100sxm_qwen3-4b"),
        ("h100_sxm_llama31_8b_host", "h100sxm_llama3.1-8b"),
    ],
)
def test_the_fitted_configurations_are_the_fit(name, setting):
    node = read_option("latency", name, "latency")
    host = fitted_terms(evaluate(setting, node["profile"]))
    assert node["host"]["round_s"] == pytest.approx(host.round_s, abs=1e-6)
    assert node["host"]["node_s"] == pytest.approx(host.node_s, abs=1e-7)
    assert node["host"]["tree_step_s"] == pytest.approx(host.tree_step_s, abs=1e-6)
