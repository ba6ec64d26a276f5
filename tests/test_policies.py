"""Every shipped policy's widths, and chains and fixed trees against explicit slow versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from simulator.cost import Source, StepCost, find_profile
from simulator.orders.specs import BestFirstOrder
from simulator.policies.cast import Cast
from simulator.policies.fixed_tree import FixedTree
from simulator.policies.loading import make_policy
from simulator.policies.treespark import TreeSpark
from simulator.policies.tuned_chain import TunedChain
from simulator.policy import Lab
from tests.confidence import with_confidence
from tests.policy_lab import DEPTHS, make_lab, make_load, make_recording, make_step, prepared
from tests.reference import RawScores, chain
from tests.reference_orders import walked
from tests.synthetic import make_geometric
from traces.common.errors import InputError
from traces.recordings.recording import Recording

YAMLS = sorted((Path(__file__).parents[1] / "conf" / "policy").glob("*.yaml"))


@pytest.fixture(scope="module", params=["pool", "hidden", "head"])
def lab(request) -> Lab:
    if request.param == "head":
        return make_lab(with_confidence(make_recording("hidden")))
    return make_lab(make_recording(request.param))


def evidence_of(recording: Recording) -> str:
    return "confidence" if "confidence_hidden" in recording.arrays else "margin"


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_every_yaml_gives_valid_widths(path, lab):
    config = OmegaConf.load(path)
    assert config.pop("name") == path.stem
    policy = prepared(instantiate(config), lab)
    report = lab.recording.anchors_of(split="report")
    for batch in (1, 2, 4, 5, 8, 9, 13):
        anchors = np.resize(report, batch)
        order = policy.plan(make_load(batch))
        if order is None:
            continue
        widths = policy.allocate(make_step(lab, order, anchors))
        size = lab.table(order).size[anchors]
        assert widths.shape == (batch,)
        assert widths.dtype.kind in "iu"
        assert np.all((widths >= 0) & (widths <= size))
        if not order.nested:
            assert np.all((widths == 0) | (widths == size))
    fit = json.loads(json.dumps(policy.describe()))
    if path.stem in ("dspark", "adaptive_verification"):
        assert fit["evidence"] == evidence_of(lab.recording)


def test_every_policy_file_has_a_yaml_of_its_name():
    folder = Path(__file__).parents[1] / "simulator" / "policies"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "checks", "loading"}
    assert names <= {path.stem for path in YAMLS}
    targets = {path.stem: OmegaConf.load(path)["_target_"].split(".")[2] for path in YAMLS}
    assert all(targets[name] == name for name in names)


@pytest.mark.parametrize("policy", [TunedChain(), Cast(), TreeSpark()])
def test_fitting_needs_its_split(policy):
    recording = make_recording("pool")
    arrays = dict(recording.arrays)
    arrays["split"] = np.full_like(arrays["split"], 2)  # everything is for the report
    empty = Recording(recording.meta, arrays, "report-only")
    with pytest.raises(InputError, match=r"report-only: split (tuning|calibration) has no"):
        policy.prepare(make_lab(empty))


def slow_rounds(recording: Recording) -> list[int]:
    """Rounds over the tuning split of chains of 0, 1, 2, ... tokens, one position at a time."""
    raw = RawScores(recording.arrays, recording.meta)
    every = range(recording.num_anchors)
    reach = [len(chain(raw, at, DEPTHS).accepted(raw.future(at))) for at in every]
    texts = recording.sequences_of(split="tuning")
    rounds = []
    for length in range(DEPTHS + 1):
        cut = np.minimum(reach, length)
        rounds.append(sum(len([*walked(recording, text, cut.__getitem__)]) for text in texts))
    return rounds


def test_tuned_chain_equals_a_slow_search(lab):
    policy = prepared(TunedChain(), lab)
    rounds = slow_rounds(lab.recording)
    for batch in (1, 3, 16, 100, 128, 129, 256):
        step_s = [lab.cost.verify_s(batch, batch, 8192)] + [
            lab.cost.draft_s(batch, 8192) + lab.cost.verify_s(batch, batch * (length + 1), 8192)
            for length in range(1, DEPTHS + 1)
        ]
        total_s = [r * s for r, s in zip(rounds, step_s, strict=True)]
        best = min(range(DEPTHS + 1), key=lambda length: total_s[length])
        assert policy.length_at(batch) == best, batch
    fitted = policy.describe()["length_by_batch"]
    assert fitted == {str(size): policy.length_at(size) for size in (1, 2, 4, 8, 16)}


@pytest.mark.parametrize(("alpha", "most", "length"), [(0.0, None, 0), (1.0, None, 8), (1.0, 5, 5)])
def test_tuned_chain_at_the_extremes(alpha, most, length):
    lab = make_lab(make_geometric(alpha, np.random.default_rng(1), depths=8), max_batch=1)
    policy = prepared(TunedChain(max_length=most), lab)
    assert policy.length_at(1) == length
    assert (policy.plan(make_load(1)) is None) == (length == 0)
    assert policy.describe() == {"length_by_batch": {"1": length}}


def test_tuned_chain_takes_the_smaller_of_equals():
    class EvenCost:
        """A step of n packed tokens that makes every length as fast as plain decoding."""

        def step(self, packed, context, *, drafted, tree):
            return type("Time", (), {"total_s": float(packed[0])})

    lab = make_lab(make_geometric(1.0, np.random.default_rng(1), sequences=3, length=9, depths=7))
    lab = Lab(lab.recording, EvenCost(), 1, 8192, lab.table)
    # 8 tokens: 8 rounds of 1, 4 of 2, 2 of 4 and 1 of 8 all take 8 s; 3 rounds of 3 take 9 s
    assert prepared(TunedChain(), lab).length_at(1) == 0


def test_default_tree_fills_the_b300_table_at_256_requests():
    order = FixedTree().order
    assert order == BestFirstOrder(scores="auto", nodes=63, branch=8)
    cost = StepCost(find_profile("b300"))
    packed, context = np.full(256, order.nodes + 1), np.full(256, 8192)
    assert cost.step(packed, context, drafted=True, tree=True).source is Source.MEASURED


@pytest.mark.parametrize(
    ("policy", "setting", "value", "accepted"),
    [
        ("adaptive_verification", "draws", 1, "auto, fixed, sampled"),
        ("bastion", "nodes", 1.5, "a whole number from 1"),
        ("caddtree", "batch_term", 1, "False, True"),
        ("caddtree", "quirks", "no", "False, True"),
        ("cast", "width", "line", "a whole number from 1"),
        ("cast", "nodes_per_request", 0, "a whole number from 1"),
        ("cast", "max_nodes_per_request", 1.5, "a whole number from 1"),
        ("cast", "scores", "auto", "auto_marginal, marginal, marginal_biased, parent"),
        ("cast", "mass_curve", "report", "tuning, published"),
        ("cast", "charge_draft", "yes", "False, True"),
        ("ddtree", "scores", "parent", "auto_marginal, marginal, marginal_biased"),
        ("dspark", "draws", "random", "auto, fixed, sampled"),
        ("dspark", "threshold", 1.5, "a number from 0 to 1"),
        ("dspark", "threshold", float("nan"), "a number from 0 to 1"),
        ("eagle2", "depth", 0, "a whole number from 1"),
        ("fixed_chain", "length", 2.0, "a whole number from 1"),
        ("fixed_chain", "length", True, "a whole number from 1"),
        ("fixed_tree", "branching", [2], "null with widths, a list without"),
        ("opt_tree", "min_gain", 2, "a number from 0 to 1"),
        ("pctree", "packed_tokens", 1, "a whole number from 2"),
        ("priced_survival", "draws", "auto", "fixed, sampled"),
        ("priced_survival", "max_step_ms", 0, "a number above 0"),
        ("sglang_adaptive", "initial", 1.5, "None, 0, 1, 3, 5, 7"),
        ("sglang_adaptive", "interval", 0, "a whole number from 1"),
        ("sglang_adaptive", "warmup", -1, "a whole number from 0"),
        ("sglang_adaptive", "weight", 2, "a number from 0 to 1"),
        ("smartspec", "cost", "guess", "affine, measured"),
        ("smartspec", "max_length", 0, "a whole number from 1"),
        ("smartspec", "weight", -0.1, "a number from 0 to 1"),
        ("treespark", "force_calibration", 1, "False, True"),
        ("treespark", "ladder", [], "a list of {max_batch, theta}"),
        ("batch_schedule", "table", [], "a list of [first batch"),
        ("sglang_adaptive", "tiers", [], "a list of {min_batch"),
    ],
)
def test_settings_are_checked(policy, setting, value, accepted):
    changed = {"widths": [2]} if setting == "branching" else {}
    with pytest.raises(InputError) as caught:
        make_policy(settings_of(policy) | changed | {setting: value})
    assert str(caught.value).startswith(f"policy.{setting} is {value!r}; accepted: {accepted}")


def settings_of(policy: str) -> dict:
    return OmegaConf.to_container(OmegaConf.load(YAMLS[0].with_name(f"{policy}.yaml")))


TIER = {"min_batch": 1, "lengths": [1], "down": 0}
LISTS = [
    ("treespark", "ladder", [{"max_batch": 4, "theta": 0.1}], "null in the last entry"),
    ("treespark", "ladder", [{"max_batch": None, "theta": 0.1}] * 2, "that rises"),
    ("treespark", "ladder", [{"max_batch": 0, "theta": 0.1}], "ladder[0].max_batch is 0"),
    ("treespark", "ladder", [{"max_batch": None, "theta": 1.5}], "ladder[0].theta is 1.5"),
    ("treespark", "ladder", [{"max_batch": None, "arm": "tree"}], "ladder[0].arm is 'tree'"),
    ("treespark", "ladder", [{"max_batch": None}], "ladder[0].theta is None; accepted: {max_"),
    ("treespark", "ladder", [{"max_batch": 4, "theta": 0.1, "x": 1}], "unknown key policy.ladder"),
    ("treespark", "ladder", [0.1], "policy.ladder[0] is 0.1"),
    ("batch_schedule", "table", [[2, None, 3]], "table[0].first is 2; accepted: 1, without gap"),
    ("batch_schedule", "table", [[1, 4, 3], [6, None, 1]], "table[1].first is 6; accepted: 5"),
    ("batch_schedule", "table", [[1, 4, 3], [4, None, 1]], "table[1].first is 4; accepted: 5"),
    ("batch_schedule", "table", [[1, None, 3], [5, 6, 1]], "nothing behind a range without limit"),
    ("batch_schedule", "table", [[1, 4]], "table[0] is [1, 4]; accepted: [first batch"),
    ("batch_schedule", "table", [[1, 0, 3]], "table[0].last is 0; accepted: a whole number from 1"),
    ("batch_schedule", "table", [[1, 4, 3], [5, 4, 3]], "table[1].last is 4; accepted: 5 or more"),
    ("batch_schedule", "table", [[1, None, 1.5]], "table[0].length is 1.5"),
    ("batch_schedule", "table", [[1, 8, 3]], "table[0].last is 8; accepted: 16, the largest"),
    ("batch_schedule", "table", [[1, None, 8]], "length is 8; accepted: up to 7, the draft"),
    ("fixed_chain", "length", DEPTHS + 1, f"length is 8; accepted: up to {DEPTHS}, the draft dep"),
    ("sglang_adaptive", "tiers", [TIER | {"min_batch": 2}], "policy.tiers is [2]; acc"),
    ("sglang_adaptive", "tiers", [{"min_batch": 1, "lengths": [1]}], "tiers[0].down is missing"),
    ("sglang_adaptive", "tiers", [TIER | {"lengths": [3, 1]}], "lengths is [3, 1]"),
    ("sglang_adaptive", "tiers", [TIER | {"lengths": [-1]}], "lengths is [-1]"),
    ("sglang_adaptive", "tiers", [TIER | {"down": "x"}], "tiers[0].down is 'x'"),
    ("sglang_adaptive", "tiers", [4], "policy.tiers[0] is 4"),
]


@pytest.mark.parametrize(("policy", "setting", "value", "says"), LISTS)
def test_entries_of_lists_are_checked_and_held_against_the_lab(policy, setting, value, says):
    with pytest.raises(InputError, match=re.escape(says)):
        make_policy(settings_of(policy) | {setting: value}).prepare(
            make_lab(make_recording("pool"))
        )
