"""How much faster the fastest policy was live: by hand, and of the shipped run."""

from __future__ import annotations

import json
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest

from analysis.read.validations import read_validation
from analysis.text.validation import Ahead, ahead
from tests.test_validation_report import cell, validation

ROOT = Path(__file__).resolve().parents[1]


def ahead_of(folder: Path, *cells: dict) -> Ahead | None:
    path = folder / "validation.json"
    path.write_text(json.dumps(validation(*cells)))
    return ahead(read_validation(path))


def test_ratios_of_the_fastest_by_hand(tmp_path):
    """Ahead at 1 by 1 and 1.21 in two repeats, behind at 4 by 0.9 in both; predicted 1.2 and 1."""
    cells = [
        cell("cast", [100.0, 121.0], 120.0, 1),
        cell("autoregressive", [100.0, 100.0], 100.0, 1),
        cell("fixed_tree", [50.0, 50.0], 50.0, 1),
        cell("cast", [180.0, 180.0], 200.0, 4),
        cell("autoregressive", [200.0, 200.0], 200.0, 4),
        cell("fixed_tree", [50.0, 50.0], 50.0, 4),
    ]
    found = ahead_of(tmp_path, *cells)
    assert found.policy == "autoregressive"  # sqrt(1.1 x 0.9) = 0.995 of it
    first, last = found.over_all
    assert (first.over, last.over) == ("cast", "fixed_tree")
    assert first.live == pytest.approx(1 / sqrt(1.1 * 0.9))
    # The log ratios of the repeats are log(1.21) / 2 apart: deviation / sqrt(2) is half of that.
    width = 12.7062 * log(1.21) / 4
    assert log(first.high / first.live) == pytest.approx(width, rel=1e-4)
    assert log(first.live / first.low) == pytest.approx(width, rel=1e-4)
    assert first.predicted == pytest.approx(1 / sqrt(1.2))
    assert last.live == last.low == last.high == pytest.approx(sqrt(8))
    assert found.at[1].over == "cast"
    assert found.at[1].live == pytest.approx(1 / 1.1)
    assert found.at[4].live == pytest.approx(1 / 0.9)


def test_no_ratios_where_loads_differ(tmp_path):
    cells = [cell("cast", [1.0, 1.0], 1.0, 1), cell("treespark", [1.0, 1.0], 1.0, 4)]
    assert ahead_of(tmp_path, *cells) is None


def test_the_shipped_run_says_what_is_written_about_it():
    """docs/RESULTS.md, against numpy on the file."""
    path = ROOT / "real_runner/measured/validation.json"
    cells = json.loads(path.read_text())["cells"]
    live = {
        (one["policy"], one["concurrency"]): np.log(one["measured"]["output_throughput"])
        for one in cells
    }
    found = ahead(read_validation(path))
    assert found.policy == "priced_survival"
    readme = " ".join((ROOT / "docs/RESULTS.md").read_text().split())
    for one in found.over_all[:2]:
        rows = np.mean([live["priced_survival", n] - live[one.over, n] for n in (1, 4, 16)], axis=0)
        assert one.live == pytest.approx(np.exp(rows.mean()))
        assert f"({one.low:.3f} to {one.high:.3f}; " in readme
    assert f"{found.at[16].live:.3f} times plain decoding" in readme
    rates = [
        (one["predicted"]["output_throughput"], np.mean(one["measured"]["output_throughput"]))
        for one in cells
    ]
    error = [abs(predicted / measured - 1) for predicted, measured in rates]
    worst = f"{100 * np.median(error):.1f} % in the median and {100 * max(error):.1f} % at worst"
    assert f"throughput off by {worst}" in readme
