"""What a policy may see before a run."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.cli.survey import composed_jobs, parse
from simulator.engine.run import load, prepare
from simulator.orders.specs import ChainOrder
from simulator.orders.table import ABSENT
from simulator.policy import Policy
from tests.policy_lab import make_lab, make_recording
from tests.synthetic import make_pool
from traces.recordings.files import write_recording


def test_a_run_shows_a_policy_no_hit_of_the_report_split(tmp_path):
    """A policy that looks up the answers in `prepare` finds none of those it is judged on."""
    recording = make_pool(np.random.default_rng(5), sequences=9, depths=4)
    seen = {}

    class Peeking(Policy):
        order = ChainOrder()

        def prepare(self, lab):
            seen["hits"] = lab.table(self.order).hit_rank

        def allocate(self, step):
            return step.draft.size

    path = tmp_path / "tiny.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    words = [f"trace.recording={path}", "policy=fixed_chain", "policy.length=4"]
    (config,) = composed_jobs(parse(words))
    prepare(replace(load(config), policy=Peeking()))
    fitting = np.concatenate([recording.anchors_of(split=s) for s in ("calibration", "tuning")])
    judged = recording.anchors_of(split="report")
    assert (seen["hits"][judged] == ABSENT).all()
    assert (seen["hits"][fitting] != ABSENT).any()


def test_the_report_split_may_not_be_fitted_on():
    lab = make_lab(make_recording("pool"))
    with pytest.raises(ValueError, match="accepted: calibration, tuning"):
        lab.anchors("report")
