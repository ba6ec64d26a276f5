"""Tables in narrow terminals, and numbers in tables of measured points."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from analysis.intervals import Estimate
from analysis.metrics import choose_metrics
from analysis.points_text import _predicted
from analysis.tables import _fitting, _rich_table
from tests.figure_cases import comparison, summary, write_run

NAMES = ("autoregressive", "priced_survival")


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_word_of_a_table_is_broken(tmp_path, width):
    for name in NAMES:
        for seed in range(3):
            write_run(tmp_path, summary(name, 30104.1 + seed, seed=seed))
    found = comparison(tmp_path)
    (block,) = found.blocks
    runs = [run for row in block.rows for run in row.runs]
    metrics = choose_metrics([], runs, "autoregressive")
    console = Console(width=width, file=io.StringIO())
    shown = _fitting(block, metrics, console)
    assert list(metrics[: len(shown)]) == list(shown)
    assert len(shown) == len(metrics) if width == 160 else 1 <= len(shown) <= len(metrics)
    with console.capture() as capture:
        console.print(_rich_table(block, shown, console))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).replace("*", " ").split())
    for word in ("tokens/s", *NAMES, "policy", "seeds"):
        assert word in text


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (1.7764e-15, 0.0, "0 ±0"),
        (11.2212, 5.4e-15, "11.221 ±0"),
        (4905.34, 383.2, "4905.3 ±380"),
        (30104.1, None, "30104"),
        (1234567.0, 2.5, "1.2346e+06 ±2.5"),
        (0.4, 0.1234, "0.4 ±0.12"),
    ],
)
def test_predictions_without_what_rounding_left(mean, half, text):
    assert _predicted(Estimate(mean, half, 3)) == text
