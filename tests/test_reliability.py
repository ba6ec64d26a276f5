"""Calibration errors by hand, and the diagram drawn from a file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from analysis.figures.draw import Inputs, draw
from analysis.look import KNOWN
from analysis.read.calibrations import read_reliability
from simulator.calibration.file import write_calibration
from simulator.calibration.fit import Calibration, Fit, fit_calibration, measure
from simulator.calibration.maps import EdgeMap, IsotonicMap, Platt
from simulator.orders import BestFirstOrder, OrderTable, build_order
from tests.figure_cases import printed, refused
from tests.synthetic import make_hidden

EVEN = EdgeMap(a=1.0, b=0.0, depth=(0.0, 0.0), rank=0.0)
HALVED = IsotonicMap(sigma=(0.0, 1.0), survival=(1e-9, 0.5))


def _two_trees() -> OrderTable:
    """Both: .8 and .3 below the anchor, .5 below the .8. One accepts .8 and .5, the other .3."""
    edges = np.array([0.8, 0.8 * 0.5, 0.3])
    return OrderTable(
        spec=BestFirstOrder(nodes=3, branch=2, platt=(1.0, 0.0)),
        anchors=np.arange(2),
        score=np.log([edges, edges]),
        depth=np.array([[1, 2, 1]] * 2, np.uint8),
        parent=np.array([[-1, 0, -1]] * 2, np.int16),
        token=np.array([[5, 6, 7]] * 2, np.int32),
        size=np.array([3, 3], np.int32),
        hit_rank=np.array([[1, 2], [3, 32767]], np.int16),
        ties=np.zeros(2, np.int32),
    )


def _calibration(platt=(1.0, 0.0), edge_map=EVEN, path=HALVED) -> Calibration:
    return Calibration(Fit("hand", "0" * 64, 0.0, 3, 2), Platt(*platt), edge_map, path, "hand")


def test_errors_by_hand():
    found = measure(_calibration(), _two_trees(), np.arange(2))
    edge, path = found["edge"], found["path"]
    # edges: .8 hit, .5 hit, .3 miss of the first; .8 miss, .3 hit of the second, .5 below a miss
    assert (edge["count"], edge["accepted"], edge["count_by_depth"]) == (5, 3, [4, 1])
    # fifteenths: .8 is in bin 12 (gap 1 - 1.6), .5 in 7 (1 - .5), .3 in 4 (1 - .6)
    assert edge["ece"]["q"] == pytest.approx((0.6 + 0.5 + 0.4) / 5)
    assert edge["ece_by_depth"]["q"] == pytest.approx([(0.6 + 0.4) / 4, 0.5])
    assert edge["sum_ratio"]["q"] == pytest.approx(2.7 / 3)
    assert edge["ece"]["platt"] == pytest.approx(edge["ece"]["q"])
    bins = edge["bins"]["q"]
    assert bins == {"count": [2, 1, 2], "accepted": [1, 1, 1], "mean": [0.3, 0.5, 0.8]}
    # paths: every node; survivals .8, .4, .3 twice, 3 accepted of 6
    assert (path["count"], path["accepted"], path["count_by_depth"]) == (6, 3, [4, 2])
    # .3 is in bin 4 (gap 1 - .6), .4 in 6 (1 - .8), .8 in 12 (1 - 1.6)
    assert path["ece"]["q"] == pytest.approx((0.4 + 0.2 + 0.6) / 6)
    assert path["sum_ratio"]["q"] == pytest.approx(3.0 / 3)
    assert path["sum_ratio"]["isotonic"] == pytest.approx(1.5 / 3)  # every survival halved
    # halved: .15 in bin 2 (1 - .3), .2 in 3 (1 - .4), .4 in 6 (1 - .8)
    assert path["ece"]["isotonic"] == pytest.approx((0.7 + 0.6 + 0.2) / 6)
    # quarter decades: .8 in 10^-.25..1, .4 and .3 in the next two
    logged = path["log_bins"]["q"]
    assert (logged["count"], logged["mean"]) == ([2, 2, 2], [0.3, 0.4, 0.8])


def test_the_tree_of_platts_order_gives_q_back():
    """Where edges are a logit q + b, q, Platt and the edge map are three readings of one edge."""
    recording = make_hidden(np.random.default_rng(1), lengths=[8] * 6)
    raw = BestFirstOrder(nodes=12, branch=3, ties="tick")
    a, b = 0.6, -0.3
    twin = EdgeMap(a=a, b=b, depth=(0.0,) * recording.depths, rank=0.0)
    one = _calibration((a, b), twin, IsotonicMap(sigma=(0.0, 1.0), survival=(1e-9, 1.0)))
    table = build_order(BestFirstOrder(nodes=12, branch=3, ties="tick", platt=(a, b)), recording)
    found = measure(one, table, np.arange(recording.num_anchors))
    for level in ("edge", "path"):
        errors = found[level]["ece"]
        assert errors["platt"] == pytest.approx(errors["edge_map"], abs=1e-9)
        assert errors["platt"] != pytest.approx(errors["q"], abs=1e-4)
    assert found["path"]["ece"]["isotonic"] == pytest.approx(found["path"]["ece"]["platt"])
    score = build_order(raw, recording).score[
        :, 0
    ]  # the likeliest child of the anchor is in both trees
    first = math.exp(score.max())
    assert max(found["edge"]["bins"]["q"]["mean"]) <= first + 1e-9


def test_a_depth_without_nodes_has_no_error():
    one = _two_trees()
    none = {"depth": np.ones_like(one.depth), "parent": np.full_like(one.parent, -1)}
    shallow = replace(one, **none, hit_rank=np.full_like(one.hit_rank, 32767))
    found = measure(_calibration(), shallow, np.arange(2))
    assert found["path"]["ece_by_depth"]["q"][1] is None
    assert found["path"]["sum_ratio"]["q"] is None  # nothing accepted
    assert json.loads(json.dumps(found)) == found


# The diagram


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    recording = make_hidden(np.random.default_rng(2), lengths=[25] * 9, sequences=9)
    table = cache(lambda spec: build_order(spec, recording))
    fitted = fit_calibration(recording, table, nodes=15, branch=4)
    path = tmp_path_factory.mktemp("calibration") / "x.calibration.json"
    found = {
        split: measure(fitted, table(fitted.order), recording.anchors_of(split))
        for split in ("calibration", "tuning")
    }
    write_calibration(path, fitted, found)
    return path


def test_the_file_keeps_every_bin(measured):
    data = json.loads(measured.read_text())
    one = read_reliability(measured)
    assert one.split == "tuning"  # the honest one
    assert read_reliability(measured, "calibration").split == "calibration"
    for level, maps in one.curves.items():
        node = data["measured"]["tuning"][level]
        for name, curve in maps.items():
            assert curve.bins["count"].sum() == node["count"]
            assert curve.log_bins["accepted"].sum() == node["accepted"]
            # the ECE is that of the bins drawn
            expected = curve.bins["count"] * curve.bins["mean"]
            gaps = (curve.bins["accepted"] - expected).abs()
            assert curve.ece == pytest.approx(gaps.sum() / node["count"], abs=1e-7)
            total = expected.sum()
            assert total / node["accepted"] == pytest.approx(node["sum_ratio"][name], rel=1e-6)


def test_the_figure_says_the_errors_in_colours_of_no_policy(measured, tmp_path, capsys):
    words = ["reliability", measured, "--out", tmp_path]
    assert printed(capsys, *words) == ""
    stem = "reliability.synthetic_hidden"
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{stem}.{kind}" for kind in ("pdf", "png", "svg", "txt")
    }
    text = (tmp_path / f"{stem}.txt").read_text()
    assert "tuning split (held out" in text
    assert text.endswith(f"command: python -m analysis {' '.join(map(str, words))}\n")
    one = read_reliability(measured)
    (drawing,) = draw(Inputs(calibrations=[one]), ["reliability"], strict=True)
    for axes, level in zip(drawing.figure.axes, ("edge", "path"), strict=True):
        said = [text.get_text().strip() for text in axes.get_legend().get_texts()]
        errors = [f"(ECE {curve.ece:.4f})" for curve in one.curves[level].values()]
        assert [text[text.index("(") :] for text in said if text] == errors
        (line,) = [line for line in axes.lines if line.get_label() == "_platt"]
        curve = one.curves[level]["platt"]
        logged = curve.log_bins[curve.log_bins["accepted"] > 0]
        drawn = curve.bins if level == "edge" else logged
        assert line.get_xdata() == pytest.approx(list(drawn["mean"]))
        assert line.get_ydata() == pytest.approx(list(drawn["accepted"] / drawn["count"]))
    colours = {to_hex(line.get_color()) for axes in drawing.figure.axes for line in axes.lines}
    assert not colours & {to_hex(look.colour) for look in KNOWN.values()}
    assert len(colours) >= 4


_TUNING = ("measured", "tuning")
BROKEN = {  # what the message says: where, and the new value; None: nothing there
    "format is 'x'": (("format",), "x"),
    "version is 9": (("version",), 9),
    "incomplete: order is missing": (("order",), None),
    "has none": (("measured",), {}),
    "incomplete: measured.tuning.edge is missing": ((*_TUNING, "edge"), None),
    "tuning.path.ece.platt is 1.5": ((*_TUNING, "path", "ece", "platt"), 1.5),
    "tuning.edge.bins.q has not as many": ((*_TUNING, "edge", "bins", "q", "count"), [1]),
    "tuning.path.log_bins.q has 5 accepted of 1": (
        (*_TUNING, "path", "log_bins", "q"), {"mean": [0.5], "count": [1], "accepted": [5]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("says", BROKEN)
def test_broken_files_draw_nothing(measured, tmp_path, capsys, says):
    (*keys, last), value = BROKEN[says]
    data = node = json.loads(measured.read_text())
    for key in keys:
        node = node[key]
    node[last] = value
    if value is None:
        del node[last]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    error = refused(capsys, "reliability", measured, path, "--out", tmp_path / "out")
    assert error.startswith(f"error: {path}: ")
    assert says in error
    assert not (tmp_path / "out").exists()


def test_other_refusals(measured, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for files, out, says in (
        ([tmp_path / "none.json"], "out", "unreadable"),
        ([measured, measured], "out", "two files are of synthetic hidden"),
        ([measured], "file", "cannot write figures here"),
    ):
        assert says in refused(capsys, "reliability", *files, "--out", tmp_path / out)
    assert not (tmp_path / "out").exists()
