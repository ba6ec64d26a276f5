"""The cost model against published decoding times."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.studies.options import read_option
from simulator.studies.published.decoding import (
    PROFILES,
    evaluate,
    evaluate_all,
    fitted_terms,
    read_cells,
)
from traces.common.errors import InputError


def test_the_transcribed_cells_are_whole():
    cells = read_cells()
    assert len(cells) == 6 * 5 * 2 + 8 * 3  # widths x domains, two Qwen3 settings and Llama
    assert set(cells.setting) == set(PROFILES)
    # relative gain of the tree at 127 nodes over the chain, gsm8k, Qwen3-8B: 5.47818 / 4.28045
    ms = cells[:6].set_index("nonroot_nodes").ms_per_token
    assert ms[15] / ms[127] == pytest.approx(1.27981, abs=1e-5)


@pytest.mark.parametrize(
    ("setting", "domain", "left_ms"),
    [  # ms x R of the chain, less the probe at 16 tokens and the drafter
        ("h100sxm_qwen3-4b", "gsm8k", 5.42012 * 6.12714 - 25.26403 - 3.58867),
        ("h100sxm_qwen3-8b", "gsm8k", 5.47818 * 6.23077 - 30.55591 - 3.79793),
        ("h100sxm_qwen3-8b", "humaneval", None),
    ],
)
def test_the_constant_is_what_the_fitted_chain_leaves_over(setting, domain, left_ms):
    report = evaluate(setting, PROFILES[setting][0], domain)
    assert left_ms is None or report.host_ms == pytest.approx(left_ms)
    fitted = report.cells[report.cells.fitted]
    assert [*zip(fitted.domain, fitted.method, strict=True)] == [(domain, "chain")]
    assert fitted.error.item() == pytest.approx(0, abs=1e-12)
    assert not set(fitted.index) & set(report.judged.index)


def test_a_judged_cell_by_hand():
    report = evaluate("h100sxm_qwen3-8b", "h100_sxm_qwen3_8b_table5")
    host_ms = 5.47818 * 6.23077 - 30.55591 - 3.79793
    cell = report.judged.set_index(["domain", "nonroot_nodes"]).loc["mbpp", 63]
    predicted = (31.46328 + 3.79793 + host_ms) / 8.66039
    assert cell.predicted == pytest.approx(predicted)
    assert cell.error == pytest.approx(predicted / 4.13733 - 1)
    chain = (30.55591 + 3.79793 + host_ms) / 6.56174
    assert cell.gain == pytest.approx(5.26696 / 4.13733)
    assert cell.predicted_gain == pytest.approx(chain / predicted)


def test_plain_decoding_pays_neither_draft_nor_host():
    cells = evaluate("h100sxm_llama3.1-8b", "h100_sxm_llama31_8b").cells
    assert cells.predicted[~cells.drafted].tolist() == pytest.approx([16.69865] * 3)


def test_every_setting_is_judged_and_table_5_fits_the_qwen3_runs():
    reports = evaluate_all()
    assert reports["h100sxm_qwen3-8b"][0].profile == "h100_sxm_qwen3_8b_table5"
    assert reports["h100sxm_qwen3-4b"][0].profile == "h100_sxm_qwen3_4b_table5"
    for candidates in reports.values():
        for report in candidates:
            assert len(report.judged) == report.cells.drafted.sum() - 1
            assert np.isfinite(report.errors()).all()
        # a bound a broken profile or a wrong pairing would exceed, away from the averaging caveat
        assert candidates[0].errors("mtbench").abs().median() < 0.06


def test_an_unknown_domain_is_refused():
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
