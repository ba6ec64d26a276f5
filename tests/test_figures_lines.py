"""Lines that lie on one another are both seen, and said to be the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.curves import order_curves
from analysis.look import KNOWN, looks
from analysis.overlaps import covered, equal_lines, equal_words
from analysis.sweeps import sweeps
from tests.figure_cases import comparison, summary, write_run


def _runs(folder: Path, *runs: dict) -> Path:
    for run in runs:
        write_run(folder, run)
    return folder


def test_lines_that_are_the_same_are_both_seen_and_named(tmp_path):
    """fixed_chain under tuned_chain: wider, its marks larger, and said in the figure."""
    from analysis.plots import STYLE, draw_throughput, style

    rates = {"autoregressive": (10, 40), "fixed_chain": (20, 70), "tuned_chain": (20, 70),
             "cast": (20, 90)}  # fmt: skip
    folder = _runs(
        tmp_path,
        *(
            summary(policy, float(rate), max_concurrency=load)
            for policy, both in rates.items()
            for load, rate in zip((1, 4), both)
        ),
    )
    found = comparison(folder)
    with style(STYLE):
        figure = draw_throughput(sweeps(found)[0], looks(found.labels))
    assert figure.get_supxlabel() == "same line: fixed_chain = tuned_chain"
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    widths = {name: line.get_linewidth() for name, line in lines.items()}
    assert widths["fixed_chain"] > widths["tuned_chain"] == widths["cast"]
    below = [line for line in figure.axes[0].get_lines() if line.get_label() == "_below"]
    size = lines["cast"].get_markersize()
    steps = [
        (line.get_color(), *line.get_xdata(), (line.get_markersize() - size) / 1.7)
        for line in below
    ]
    sky, blue = (KNOWN[name].colour for name in ("fixed_chain", "tuned_chain"))
    # At 1 both chains lie below cast, at 4 one below the other.
    assert steps == [
        (sky, 1, pytest.approx(2)),
        (sky, 4, pytest.approx(1)),
        (blue, 1, pytest.approx(1)),
    ]


def test_points_under_later_lines_by_hand():
    lines = {"a": [(1, 10.0), (2, 20.0)], "b": [(1, 10.01), (2, 21.0)], "c": [(1, 10.0)]}
    assert covered(lines) == {"a": (2, 0), "b": (1, 0), "c": (0,)}
    other = {"a": [(1, 5.0)], "b": [(1, 5.0)], "d": [(1, 5.0)]}
    assert equal_lines([other]) == [["a", "b", "d"]]
    assert equal_lines([lines, other]) == []  # the same in one panel, not in both
    assert equal_words([{name: [(1, 1.0)] for name in "abc"}]) == ["same line: a = b = c"]
    pairs = {f"{name}{at}": [(1, float(at + 1))] for at in range(5) for name in "ab"}
    assert equal_words([pairs]) == ["same line: a0 = b0, a1 = b1, a2 = b2, 2 more"]


def test_variants_whose_curve_is_another_ones_beginning_share_its_line(tmp_path):
    def tree(nodes: int, curve: dict) -> dict:
        settings = {"policy_config": {"nodes": nodes}, "acceptance_length_by_budget": curve}
        return summary("fixed_tree", 1.0) | settings

    ends = {"1": 1.5, "4": 2.25}
    folder = _runs(
        tmp_path,
        tree(4, ends),
        tree(16, ends | {"16": 3.0}),
        tree(8, {"1": 1.5, "8": 2.4}),  # another tree, not how the largest begins
        summary("cast", 1.0, acceptance_length_by_budget=ends),  # another policy
    )
    lines = order_curves(comparison(folder)).lines
    assert {line.name: line.budgets for line in lines} == {
        "fixed_tree(nodes=4), fixed_tree(nodes=16)": (1, 4, 16),
        "fixed_tree(nodes=8)": (1, 8),
        "cast": (1, 4),
    }
