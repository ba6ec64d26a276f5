"""What a policy may see before a run."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine.run import load, prepare, simulate
from simulator.orders.build import build_order
from simulator.orders.specs import ChainOrder
from simulator.policy import Policy
from tests.composing import composed_jobs
from tests.policy_lab import make_lab, make_recording
from tests.synthetic import make_pool
from traces.common.errors import InputError
from traces.recordings.files import build_recording, write_recording
from traces.recordings.part import part_of


def test_a_run_shows_a_policy_no_hit_of_the_report_split(tmp_path):
    """A policy that looks up the answers in `prepare` finds none of those it is judged on."""
    recording = make_pool(np.random.default_rng(5), sequences=9, depths=4)
    seen = {}

    class Peeking(Policy):
        order = ChainOrder()

        def prepare(self, lab):
            seen["lab"] = lab

        def allocate(self, step):
            return step.draft.size

    path = tmp_path / "tiny.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    words = [f"trace.recording={path}", "policy=fixed_chain", "policy.length=4"]
    (config,) = composed_jobs(words)
    prepare(replace(load(config), policy=Peeking()))
    lab, whole = seen["lab"], build_order(ChainOrder(), recording)
    assert not len(lab.recording.anchors_of("report"))
    assert len(lab.recording.anchor_sequence) == len(lab.table(ChainOrder()).anchors)
    for split in ("calibration", "tuning"):
        anchors, own = recording.anchors_of(split), lab.anchors(split)
        assert np.array_equal(lab.recording.realised(own), recording.realised(anchors))
        assert np.array_equal(lab.table(ChainOrder()).hit_rank[own], whole.hit_rank[anchors])


def test_the_report_split_may_not_be_fitted_on():
    lab = make_lab(make_recording("pool"))
    with pytest.raises(ValueError, match="accepted: calibration, tuning"):
        lab.anchors("report")


class Honest(Policy):
    """Verifies the whole chain, in every second step."""

    order = ChainOrder()
    steps = 0

    def plan(self, load):
        self.steps += 1
        return self.order if self.steps % 2 else None

    def allocate(self, step):
        return step.draft.size.copy()


class Reprices(Honest):
    """Makes its steps cheap, in every place that it is shown."""

    def prepare(self, lab):
        self.spoil(lab.cost)

    def allocate(self, step):
        width = super().allocate(step)
        self.spoil(step.cost)
        return width

    def spoil(self, cost):
        cost.draft_steps = 0
        free = (1e-3,) * len(cost.prices.target.ms)
        cost.prices = cost.prices._replace(target=cost.prices.target._replace(ms=free))
        cost.profile.header.fixed.clear()
        object.__setattr__(cost.host, "round_s", 0.0)


class Writes(Honest):
    """Writes into all that it is shown, once it has decided."""

    def plan(self, load):
        load.context[:], load.remaining[:], load.request[:] = 0, 1, 0
        return super().plan(load)

    def allocate(self, step):
        width = super().allocate(step)
        for array in (step.load.context, step.draft.size, step.draft.score, step.draft.parent):
            array[:] = 0
        self.kept = width
        return width

    def observe(self, outcome):
        for array in (self.kept, outcome.width, outcome.accepted, outcome.committed):
            array[:] = 99


class Denies(Honest):
    """Says after the start that it never drafts, so that nobody charges it for the drafter."""

    def allocate(self, step):
        self.drafts = False
        return super().allocate(step)


class DraftsUnsaid(Honest):
    drafts = False


@pytest.fixture
def job(recorded):
    """Of a policy, loaded anew each time: what is cached is shared as in a sweep."""

    def of(policy):
        words = [f"trace.recording={recorded}", "policy=fixed_chain", "policy.length=4"]
        words += ["num_prompts=12", "max_concurrency=4", "+latency.host.catch_up_token_s=0.001"]
        (config,) = composed_jobs(words)
        return prepare(replace(load(config), policy=policy))

    return of


@pytest.mark.parametrize("attack", [Reprices, Writes, Denies])
def test_nothing_a_policy_does_changes_the_engine(job, attack):
    honest, attacked, after = (simulate(job(one())) for one in (Honest, attack, Honest))
    for found in (attacked, after):
        for kind in ("requests", "steps", "rounds"):
            ours, theirs = getattr(honest, kind), getattr(found, kind)
            for name, values in ours.items():
                np.testing.assert_array_equal(values, theirs[name], name)


def test_who_says_that_it_never_drafts_may_not(job):
    with pytest.raises(InputError, match="policy DraftsUnsaid: drafts is False"):
        simulate(job(DraftsUnsaid()))


def test_a_part_is_the_recording_of_its_sequences_alone():
    """Every array against the sequences taken one by one."""
    for kind in ("pool", "hidden"):
        whole = make_recording(kind)
        part = part_of(whole, ("calibration", "tuning"))
        kept = np.flatnonzero(np.isin(whole["split"], (0, 1)))
        assert part.num_sequences == len(kept) < whole.num_sequences
        assert part.depths == whole.depths
        for own, sequence in enumerate(kept):
            assert np.array_equal(part.prompt_tokens(own), whole.prompt_tokens(sequence))
            assert np.array_equal(part.committed_tokens(own), whole.committed_tokens(sequence))
            ours = np.flatnonzero(part.anchor_sequence == own)
            theirs = np.flatnonzero(whole.anchor_sequence == sequence)
            assert np.array_equal(part.anchor_tokens(ours), whole.anchor_tokens(theirs))
            assert np.array_equal(part.realised(ours), whole.realised(theirs))
            assert np.array_equal(part.path_logq(ours), whole.path_logq(theirs))
        build = ChainOrder()
        ours, theirs = build_order(build, part), build_order(build, whole)
        anchors = np.flatnonzero(np.isin(whole.anchor_sequence, kept))
        assert np.array_equal(ours.hit_rank, theirs.hit_rank[anchors])
        build_recording(part.meta, dict(part.arrays))  # which validates
