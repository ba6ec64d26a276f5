"""Validations by hand: errors, noise, ranks, inversions, the report, the figure, refusals."""

from __future__ import annotations

import json
from math import exp, inf, log, nan, sqrt
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from analysis.figures.draw import Inputs, draw
from analysis.look import KNOWN
from analysis.read.validations import read_validation
from analysis.text.validation import ahead
from real_runner.validating.agreement import (
    errors_of,
    inversions,
    noise_of,
    rank_correlation,
    summarise_cells,
)
from real_runner.validating.report import WIDTH, lines, markdown
from tests.figure_cases import printed, refused, rows_of
from traces.common.intervals import t_quantile

LOGS = (0.2, 0.3, 0.4)  # mean 0.3, deviation 0.1
ROOT = Path(__file__).resolve().parents[1]
FIRST = "request 3, round 7: replayed width 3, live width 2; smallest margin 1.2e-05"


def cell(policy: str, measured: list[float], predicted: float, concurrency: int = 4) -> dict:
    """TPOT measured 10 ms, predicted 9; a round measured 1 + 3 + 1 ms, predicted 1.5 + 3 + 1."""
    every = [1.0] * len(measured)
    step = {
        "draft": every,
        "verify": [3.0] * len(every),
        "host": every,
        "total": [5.0] * len(every),
    }
    live = {"output_throughput": measured, "median_tpot_ms": [10.0] * len(every), "step_ms": step}
    ours = {
        "output_throughput": predicted,
        "median_tpot_ms": 9.0,
        "step_ms": {"draft": 1.5, "verify": 3.0, "host": 1.0, "total": 5.5},
    }
    return {
        "policy": policy,
        "concurrency": concurrency,
        "commits": {"rounds": 50, "differing": 0, "first": None},
        "measured": live,
        "predicted": ours,
        "error": errors_of(live, ours),
        "noise": noise_of(measured),
    }


def validation(*cells: dict) -> dict:
    return {
        "format": "specdec-validation",
        "version": 1,
        "pair": "small",
        "drafter": "block",
        "hardware": "Card A",
        "device": "cuda",
        "dtype": "bfloat16",
        "packing": "ragged",
        "temperature": 0.5,
        "profile": "card_a",
        "host": {"round_s": 1.5e-4, "node_s": 0.0},
        "fitted_on": {"prompts": 8, "runs": 12},
        "prompts": 48,
        "repeats": len(cells[0]["measured"]["output_throughput"]),
        "seed": 7,
        "cells": list(cells),
        "summary": summarise_cells(cells),
    }


def usual(sizes=(1, 8), policies=("autoregressive", "cast", "treespark")) -> dict:
    """Measured 98, 100, 102 times a factor, each predicted 3 % high but cast, 2 % low."""
    found = []
    for size in sizes:
        for at, policy in enumerate(policies):
            middle = 100.0 * size * (1 + at)
            measured = [0.98 * middle, middle, 1.02 * middle]
            error = -0.02 if policy == "cast" else 0.03
            found.append(cell(policy, measured, middle * (1 + error), size))
    return validation(*found)


@pytest.fixture
def write(tmp_path: Path):
    def write_one(data: object) -> Path:
        folder = tmp_path / "validation"
        folder.mkdir(exist_ok=True)
        (folder / "validation.json").write_text(data if isinstance(data, str) else json.dumps(data))
        return folder

    return write_one


def test_noise_by_hand():
    # 9, 10, 11: deviation 1; 100, 104: deviation sqrt(8).
    assert noise_of([9.0, 10.0, 11.0]) == pytest.approx(4.303 / sqrt(3) / 10)
    assert noise_of([100.0, 104.0]) == pytest.approx(12.706 * 2 / 102)
    assert noise_of([5.0]) is None
    # Their median is the floor of a validation.
    cells = [cell("a", [9.0, 10.0, 11.0], 1.0), cell("b", [8.0, 10.0, 12.0], 1.0)]
    assert summarise_cells(cells)["noise_floor"] == pytest.approx(1.5 * 4.303 / sqrt(3) / 10)
    assert summarise_cells([cell("a", [9.0], 1.0)])["noise_floor"] is None


@pytest.mark.parametrize("repeats", range(2, 31))
def test_t_table_against_its_integral(repeats):
    values = [1.0, *[3.0] * (repeats - 1)]
    mean, variance = 3 - 2 / repeats, 4 / repeats
    expected = t_quantile(repeats - 1) * sqrt(variance / repeats) / mean
    assert noise_of(values) == pytest.approx(expected, rel=3e-4)


def test_errors_by_hand():
    found = cell("cast", [80.0, 120.0], 103.0)["error"]
    assert found == pytest.approx(
        {"output_throughput": 0.03, "median_tpot_ms": -0.1, "step_ms": 0.1}
    )


def test_summary_takes_sizes_of_errors():
    cells = [cell(name, [100.0] * 2, value) for name, value in zip("abc", (103.0, 92.0, 101.0))]
    summary = summarise_cells([cells[0], cells[1], cells[2] | {"concurrency": 9}])
    assert summary["output_throughput"] == pytest.approx(
        {"median_abs_error": 0.03, "worst_abs_error": 0.08}
    )
    assert summary["step_ms"]["median_abs_error"] == pytest.approx(0.1)
    assert summary["rank_correlation"] == {"4": None, "9": None}  # too few policies
    assert summary["noise_floor"] == 0.0


def test_spearman_by_hand():
    assert rank_correlation([10, 20, 30, 40], [2, 1, 4, 3]) == pytest.approx(0.6)  # 1 - 6 * 4 / 60
    # Ranks 1, 2.5, 2.5, 4 with 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    assert rank_correlation([1, 5, 5, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / sqrt(22.5))
    assert rank_correlation([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 2, 3], [4, 4, 4]) is None


def test_ranks_and_inversions_stay_within_a_concurrency():
    rates = dict(zip("abc", (1.0, 2.0, 3.0)))
    cells = [cell(name, [rate] * 2, rate, 1) for name, rate in rates.items()]
    cells += [cell(name, [rate] * 2, 4 - rate, 8) for name, rate in rates.items()]
    found = summarise_cells(cells)["rank_correlation"]
    assert found == {"1": pytest.approx(1), "8": pytest.approx(-1)}
    fast = cell("fast", [200.0] * 3, 90.0, 1)
    assert summarise_cells([fast, cell("slow", [100.0] * 3, 100.0, 8)])["inversions"] == []


def test_inversion_is_paired_by_repeat():
    # Each alone varies fourfold; their ratio does not.
    slow = cell("slow", [100.0, 200.0, 400.0], 100.0)
    fast = cell("fast", [100 * exp(0.2), 200 * exp(0.3), 400 * exp(0.4)], 90.0)
    (found,) = inversions([slow, fast])
    half = 4.303 * 0.1 / sqrt(3)
    assert (found["pair"], found["concurrency"]) == (["fast", "slow"], 4)
    assert found["measured_ratio"] == pytest.approx(exp(0.3))
    assert found["interval"] == pytest.approx([exp(0.3 - half), exp(0.3 + half)])
    assert found["predicted_ratio"] == pytest.approx(0.9)
    assert summarise_cells([slow, fast])["inversions"] == [found]


@pytest.mark.parametrize(
    ("logs", "predicted", "found"),
    [
        (LOGS, 90.0, 1),
        (LOGS, 100.0, 0),  # predicted equal: not the other way
        (LOGS, 101.0, 0),
        ((0.1, 0.2, 0.3), 90.0, 0),  # 0.2 - 0.248 < 0: within noise
        ((-0.2, -0.3, -0.4), 110.0, 1),
        ((0.3,), 90.0, 0),  # one repeat knows no noise
    ],
)
def test_inversions_beyond_noise(logs, predicted, found):
    fast = cell("fast", [100 * exp(one) for one in logs], predicted)
    assert len(inversions([fast, cell("slow", [100.0] * len(logs), 100.0)])) == found


def test_report_by_hand():
    data = validation(
        cell("slow", [100.0] * 3, 100.0), cell("fast|er", [200.0, 202.0, 204.0], 90.0)
    )
    data["cells"][1]["commits"] |= {"differing": 2, "first": FIRST}
    text = markdown(data)
    numbers = "10.0 | 9.00 | -10.0 | 1.00/3.00/1.00 | 1.50/3.00/1.00 | +10.0 |"
    for fact in (
        "host terms round_s 150 us, fitted on 8 prompts in 12 runs",
        f"| slow | yes | 100.0 ±0.0 | 100.0 | +0.0 | {numbers}",
        # Deviation 2: 4.303 * 2 / sqrt(3) = 4.97; 90 / 202 - 1 = -55.4 %.
        f"| fast\\|er | no (2) | 202.0 ±5.0 | 90.0 | -55.4 | {numbers}",
        "median 27.7 %, worst 55.4 % (fast|er at concurrency 4)",
        "inversions beyond noise: 1\n",
        "fast|er over slow measured 2.020 (1.971 to 2.070), predicted 0.900",
        f"- fast|er at concurrency 4: {FIRST}",
        "identical to the replay's in 1 of 2 cells",
    ):
        assert fact in text
    text = markdown(validation(cell("cast", [100.0], 90.0), cell("slow", [50.0], 95.0)))
    assert "| cast | yes | 100.0 | 90.0 | -10.0 |" in text
    assert text.count("unknown from one repeat") == 2  # inversions and noise


def test_lines_hold_the_same_within_their_width():
    data = usual(sizes=(1, 256), policies=("a", "cast", "adaptive_verification"))
    data["cells"][0]["commits"] |= {"differing": 1, "first": FIRST * 3}
    found = lines(data)
    assert max(map(len, found)) <= WIDTH
    joined = " ".join(" ".join(found).split())
    for text in ("256 requests in flight", "100.0 ±5.0", "+3.0", "smallest margin 1.2e-05"):
        assert text in joined
    row = next(line.split() for line in found if line.split()[:1] == ["cast"])
    assert row[:6] == ["cast", "yes", "200.0", "±9.9", "196.0", "-2.0"]


def test_command_writes_figure_and_prints_errors(write, tmp_path, capsys):
    folder, out = write(usual()), tmp_path / "out"
    rows = [line.split() for line in printed(capsys, folder, "--out", out).splitlines()]
    # Deviation 2 % of 100: 4.303 * 2 / sqrt(3) = 5.0 %.
    expected = ["8", "cast", "yes", "1600.0", "1568.0", "-2.0", "5.0", "-10.0", "+10.0"]
    assert expected in rows
    names = [f"predicted_vs_live.{kind}" for kind in ("pdf", "png", "svg", "txt")]
    assert sorted(path.name for path in out.iterdir()) == names
    caption = (out / names[3]).read_text()
    for fact in (
        "pair: small",
        "Card A (cuda, bfloat16)",
        "48 prompts, 3 repeats",
        "profile card_a",
        "host terms round_s 150 us, fitted on 8 prompts (12 runs)",
        f"command: python -m analysis {folder} --out",
    ):
        assert fact in caption
    words = [folder / "validation.json", "--no-figures"]
    line = f"| {' | '.join(expected)} |"
    assert line in printed(capsys, *words, "--format", "markdown")
    first = rows_of(capsys, *words)[0]
    assert (first["policy"], first["output_throughput"]) == ("autoregressive", "100.0")
    assert float(first["output_throughput_error"]) == pytest.approx(0.03)
    assert (first["draft_ms"], first["draft_ms_predicted"]) == ("1.0", "1.5")


def drawn(folder: Path):
    found = read_validation(folder / "validation.json")
    (one,) = draw(Inputs(validations=[found]), ["live"], strict=True)
    return one.figure


def test_a_validation_of_one_repeat_is_drawn(write):
    live, *_ = drawn(write(validation(cell("cast", [100.0], 90.0)))).axes
    assert [(*line.get_xdata(), *line.get_ydata()) for line in live.get_lines()][-1] == (
        100.0,
        90.0,
    )


def test_figure_draws_every_cell(write):
    live, error, rounds = drawn(write(usual())).axes
    points = {
        (line.get_xdata()[0], line.get_ydata()[0]): line.get_color()
        for line in live.get_lines()
        if len(line.get_xdata()) == 1 and line.get_marker() in "os"
    }
    assert points[(200.0, 196.0)] == points[(1600.0, 1568.0)] == KNOWN["cast"].colour
    assert len(points) == 6
    dots = [line.get_ydata()[0] for line in error.get_lines() if line.get_marker() in "os"]
    assert dots == pytest.approx([3, -2, 3] * 2)
    noise = [bar.get_height() for bar in error.patches]
    assert noise == pytest.approx([2 * 4.303 * 2 / sqrt(3)] * 6)
    assert len(rounds.patches) == 6 * 2 * 3
    assert [bar.get_height() for bar in rounds.patches[:6]] == [1.0, 3.0, 1.0, 1.5, 3.0, 1.0]
    assert [text.get_text() for text in rounds.get_xticklabels()] == ["1", "8"]
    # The legend of rounds shows both colours of a part.
    bars = [to_hex(bar.get_facecolor()) for bar in rounds.patches[:6]]
    assert len(set(bars)) == 6  # live and predicted, each in three colours
    legend = rounds.get_legend()
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["live | predicted:", "draft", "verify", "host"]
    patches = [one for one in legend.findobj(Rectangle) if one is not legend.get_frame()]
    assert sorted(to_hex(one.get_facecolor()) for one in patches) == sorted(bars)


REMOVED = object()
BAD = [
    ("format", "specdec-summary", "format is 'specdec-summary', expected \"specdec-validation\""),
    ("version", 2, "version is 2; accepted: 1"),
    ("dtype", REMOVED, "incomplete: dtype is missing"),
    ("cells", [], "cells is []; accepted: more entries"),
    ("cells.0", 3, "cells[0] is 3; accepted: a mapping"),
    ("host.round_s", nan, "host.round_s is nan"),
    ("fitted_on.runs", -1, "fitted_on.runs is -1"),
    ("repeats", 4, "cells[0].measured: 3 values of output_throughput, expected 4, one for each"),
    ("cells.1.measured.median_tpot_ms.0", nan, "cells[1].measured.median_tpot_ms[0] is nan"),
    ("cells.1.predicted.step_ms.host", REMOVED, "cells[1].predicted.step_ms.host is missing"),
    ("cells.1.predicted.output_throughput", inf, "cells[1].predicted.output_throughput is inf"),
    ("cells.2.noise", "low", "cells[2].noise is 'low'"),
    ("cells.2.error.step_ms", 0.2, "cells[2].error.step_ms is 0.2, expected 0.1: predicted"),
    ("cells.2.policy", "cast", "cells[2] is cast at concurrency 1 once more"),
    ("summary.step_ms.worst_abs_error", None, "summary.step_ms.worst_abs_error is None"),
    ("summary.rank_correlation.8", nan, "summary.rank_correlation.8 is nan"),
    ("summary.inversions", [{"concurrency": 1}], "summary.inversions[0].pair is missing"),
]


@pytest.mark.parametrize(("keys", "value", "message"), BAD)
def test_bad_files_are_refused(write, tmp_path, capsys, keys, value, message):
    data = usual()
    *inner, last = [int(key) if key.isdecimal() and "rank" not in keys else key
                    for key in keys.split(".")]  # fmt: skip
    node = data
    for key in inner:
        node = node[key]
    if value is REMOVED:
        del node[last]
    else:
        node[last] = value
    folder = write(data)
    error = refused(capsys, folder, "--out", tmp_path / "out")
    assert error.startswith(f"error: {folder / 'validation.json'}: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_bad_commands_are_refused(write, tmp_path, capsys):
    folder = write(usual())
    assert "a validation is read alone" in refused(capsys, folder, tmp_path)
    assert "--metric speedup is of runs" in refused(capsys, folder, "--metric", "speedup")
    assert "not JSON" in refused(capsys, write("{"))
    assert "format is None" in refused(capsys, write("[]"))


# ---------------------------------------------------------------- who was ahead


def test_ratios_of_the_fastest_by_hand(write):
    """Ahead at 1 by 1 and 1.21 in two repeats, behind at 4 by 0.9 in both; predicted 1.2 and 1."""
    cells = [
        cell("cast", [100.0, 121.0], 120.0, 1),
        cell("autoregressive", [100.0, 100.0], 100.0, 1),
        cell("fixed_tree", [50.0, 50.0], 50.0, 1),
        cell("cast", [180.0, 180.0], 200.0, 4),
        cell("autoregressive", [200.0, 200.0], 200.0, 4),
        cell("fixed_tree", [50.0, 50.0], 50.0, 4),
    ]
    found = ahead(read_validation(write(validation(*cells)) / "validation.json"))
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
    # None where loads differ.
    apart = write(validation(cells[0], cells[4]))
    assert ahead(read_validation(apart / "validation.json")) is None


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
