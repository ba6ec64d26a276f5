"""Replay equals brute force, for every shipped policy on every recording at temperature 0.

The reference (`tests/reference.py`) starts from the raw scores and walks explicit trees; the other
side is what runs use: policy objects, order tables and hit ranks. Policies that weigh costs or
remember what happened decide on both sides, on arrays of explicit trees and on tables
(`tests/reference_rules.py`).
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from safetensors import safe_open

from simulator.cost import StepCost, find_profile
from simulator.engine.run import Job, prepare, simulate
from simulator.engine.settings import Settings
from simulator.orders import ABSENT, BestFirstOrder, OrderTable, build_order
from simulator.orders.build import resolve_for
from simulator.orders.specs import Order
from simulator.policies.loading import make_policy
from simulator.policy import Draft, Load, Outcome, Policy, Step
from simulator.results.facts import Facts
from tests.confidence import with_confidence
from tests.reference import RawScores, Tree
from tests.reference_rules import RULES, Rule, Scheduler, cast_width
from tests.synthetic import make_hidden, make_pool
from traces.recordings.catalog import known_recordings
from traces.recordings.files import build_recording, read_recording
from traces.recordings.manifest import shard_paths
from traces.recordings.recording import Recording
from traces.recordings.schema import HEADER_KEY, KNOWN

POLICIES = {
    path.stem: OmegaConf.to_container(OmegaConf.load(path))
    for path in sorted((Path(__file__).parents[1] / "conf" / "policy").glob("*.yaml"))
}
# 200 anchors; every arm of the ladders (up to 4, up to 8, above) and the shared budget.
BATCHES = (1,) * 20 + (4,) * 8 + (8,) * 5 + (16,) * 2 + (12, 64)
ANCHORS = sum(BATCHES)
# Slow to grow, and the same in every step and batch or nearly so: fewer anchors, not every step.
SLOW = {"bastion", "caddtree", "caddtree_batch", "ddtree", "eagle2", "opt_tree", "pctree"}
FEWER = (1,) * 8 + (4,) * 2 + (8, 16)
EVERY = 5  # steps
CLIENTS, REQUESTS = 12, 16  # of a whole run; the batch shrinks to 1 at its end
LENGTHS = range(20, 50, 2)  # outputs of the synthetic sequences
MOST_BY_ROUNDING = 0.005  # share of rounds that may differ because two scores are equal


# ---------------------------------------------------------------- recordings


def synthetic_pool() -> Recording:
    rng = np.random.default_rng(11)
    return make_pool(rng, depths=9, sequences=15, lengths=LENGTHS, dtype="float16")


def synthetic_hidden() -> Recording:
    """With banned tokens: some that the target never says, and that the drafter likes best.

    And with a confidence head.
    """
    shape = {"depths": 7, "sequences": 15, "lengths": LENGTHS, "vocab": 150}
    free = make_hidden(np.random.default_rng(12), **shape)
    laws = free.conditional_logp(np.arange(ANCHORS), 0, free.anchor_tokens(np.arange(ANCHORS)))
    liked = np.exp(laws).sum(axis=0) * (np.bincount(free["tokens"], minlength=150) == 0)
    banned = np.argsort(-liked)[:8]
    assert (liked[banned] > 0).all()
    meta = {"banned_tokens": banned.tolist()}
    return with_confidence(make_hidden(np.random.default_rng(12), **shape, meta=meta))


def synthetic_ties() -> Recording:
    """Log-probabilities in whole nats: ties between siblings, parents and depths, and q = 1.

    Rounded up they are no law, which a reader would refuse; orders do not mind.
    """
    recording = make_pool(np.random.default_rng(13), depths=7, sequences=9, lengths=[40] * 9)
    scores = {name: np.round(recording[name]) for name in ("pool_logprob", "path_logq")}
    return Recording(recording.meta, recording.arrays | scores, "synthetic ties")


SYNTHETIC = {make.__name__: make for make in (synthetic_pool, synthetic_hidden, synthetic_ties)}


def shipped_at_temperature_0() -> list[str]:
    return [name for name, path in known_recordings().items() if header(path)["temperature"] == 0]


def header(path: Path) -> dict:
    first = shard_paths(path)[0] if path.suffix == ".json" else path
    with safe_open(first, framework="numpy") as file:
        return json.loads(file.metadata()[HEADER_KEY])


def random_sixth(recording: Recording) -> Recording:
    """A random sixth of the sequences of every split: orders of all anchors take minutes."""
    shuffled = np.random.default_rng(17).random(recording.num_sequences)
    by_split = np.lexsort((shuffled, recording["split"]))
    kept = np.isin(np.arange(recording.num_sequences), by_split[::6])  # (S,)
    length = np.diff(recording["seq_offset"])  # (S,) tokens, lookahead included
    owner = {"S": np.arange(len(kept)), "T": np.repeat(np.arange(len(kept)), length)}
    owner |= {"A": recording.anchor_sequence}
    arrays = {}
    for name in recording.arrays.keys() & KNOWN.keys():
        array, dim = recording[name], KNOWN[name].dims[0]
        arrays[name] = array[kept[owner[dim]]] if dim in owner else array
    offset = np.concatenate([[0], np.cumsum(length * kept)])  # (S+1,) where each sequence now is
    moved = (offset - recording["seq_offset"])[recording.anchor_sequence]
    arrays["anchor_pos"] = (recording["anchor_pos"] + moved)[kept[recording.anchor_sequence]]
    arrays["seq_offset"] = np.append(offset[:-1][kept], offset[-1])
    return build_recording(recording.meta, arrays, f"a sixth of {recording.source}")


@dataclass(frozen=True, eq=False)
class Case:
    """A recording, its raw scores, the chosen anchors; tables, policies, runs as asked for."""

    recording: Recording
    anchors: np.ndarray  # (ANCHORS,)
    raw: RawScores
    cost: StepCost = field(default_factory=lambda: StepCost(find_profile("b300")))
    tables: dict = field(default_factory=dict)
    policies: dict = field(default_factory=dict)
    runs: dict = field(default_factory=dict)

    def table(self, spec) -> OrderTable:
        """Built afresh, so that no file of an earlier run is trusted."""
        if spec not in self.tables:
            self.tables[spec] = build_order(spec, self.recording)
        return self.tables[spec]

    def fitted(self, name: str) -> tuple[Policy, dict]:
        """A copy of the prepared policy of that YAML, and what it says it fitted."""
        if name not in self.policies:
            self.policies[name] = self.fit(make_policy(POLICIES[name]))
        policy, fit = self.policies[name]
        return copy.deepcopy(policy, {id(self.cost): self.cost}), fit

    def fit(self, policy: Policy) -> tuple[Policy, dict]:
        prepare(self.job(policy, max(BATCHES)))
        fit = policy.describe()
        if "length_by_batch" in fit:  # describe() names powers of two only
            sizes = range(1, max(BATCHES) + 1)
            fit["length_by_batch"] = {str(size): policy.length_at(size) for size in sizes}
        return policy, fit

    def reference(self, name: str) -> Rule | Scheduler:
        policy, fit = self.fitted(name)
        if name in RULES:
            return Rule(name, POLICIES[name], fit, self.raw)
        return Scheduler(policy, self.raw, self.cost, lambda o: resolve_for(o, self.recording))

    def job(self, policy: Policy, clients: int, requests: int | None = None) -> Job:
        """Requests that all arrive at once and start at output 0."""
        settings = Settings(max_concurrency=clients, num_prompts=requests, request_rate=1e9)
        report = self.recording.sequences_of("report")
        return Job({}, settings, self.recording, report, self.cost, policy, self.table)

    def run(self, name: str) -> tuple[Facts, list[Order | None]]:
        """A whole run, and the order of each of its steps."""
        if name not in self.runs:
            policy, _ = self.fitted(name)
            orders, plan = [], policy.plan
            policy.plan = lambda load: orders.append(plan(load)) or orders[-1]
            self.runs[name] = simulate(self.job(policy, CLIENTS, REQUESTS)), orders
        return self.runs[name]

    def load(self, anchors: np.ndarray, requests: np.ndarray, time_s=0.0, queued=0) -> Load:
        """A server in which `requests` (B,) stand at `anchors` (B,)."""
        recording = self.recording
        first = recording["seq_offset"][recording.anchor_sequence[anchors]]
        context = recording["anchor_pos"][anchors] - first
        longest = recording.meta["generation"]["max_new_tokens"]
        remaining = longest - 1 - recording.anchor_output[anchors]
        return Load(time_s, len(anchors), queued, CLIENTS, context, remaining, requests)


@cache
def open_case(name: str) -> Case:
    if name in SYNTHETIC:
        recording = SYNTHETIC[name]()
    else:
        recording = random_sixth(read_recording(known_recordings()[name]))
    rng = np.random.default_rng(3)
    anchors = rng.choice(recording.num_anchors, ANCHORS, replace=False)
    return Case(recording, anchors, RawScores(recording.arrays, recording.meta))


@pytest.fixture(params=[*SYNTHETIC, *shipped_at_temperature_0()])
def case(request) -> Case:
    return open_case(request.param)


only_synthetic = pytest.mark.parametrize("case", SYNTHETIC, indirect=True)


# ---------------------------------------------------------------- both sides, side by side


def production_step(case: Case, policy: Policy, load: Load, anchors: np.ndarray) -> tuple:
    """What a run would do with a step over `anchors`: (table or None, widths, accepted)."""
    order = policy.plan(load)
    if order is None:
        return None, np.zeros(load.batch, int), np.zeros(load.batch, int)
    table = case.table(order)
    draft = Draft(*(x[anchors] for x in (table.score, table.depth, table.parent, table.size)))
    width = policy.allocate(Step(load, draft, order, case.cost))
    return table, width, table.accepted(anchors, width)


def outcome_of(case: Case, load: Load, step: tuple) -> Outcome:
    table, width, accepted = step
    drafted = table is not None
    step_s = case.cost.step(width + 1, load.context, drafted=drafted, tree=drafted).total_s
    committed = np.minimum(accepted + 1, load.remaining)
    return Outcome(load.time_s, step_s, drafted, load.request, width, accepted, committed)


def table_paths(table: OrderTable | None, anchor: int, width: int) -> frozenset:
    """Token paths of the first `width` nodes."""
    paths: list[tuple] = []
    for node in range(width):
        parent = int(table.parent[anchor, node])
        above = paths[parent] if parent >= 0 else ()
        paths.append((*above, int(table.token[anchor, node])))
    assert len(set(paths)) == width  # no node twice
    return frozenset(paths)


def compare(case: Case, anchors: Sequence[int], step: tuple, trees: list[Tree]) -> tuple:
    """(differences in words, rounds that differ by rounding alone) of one step."""
    table, widths, accepted = step
    different, by_rounding = [], 0
    for anchor, width, count, tree in zip(anchors, widths, accepted, trees, strict=True):
        ours, theirs = table_paths(table, anchor, width), tree.paths()
        walked = len(tree.accepted(case.raw.future(anchor)))
        if (ours, int(count)) == (theirs, walked):
            continue
        within = walked_in(ours, case.raw.future(anchor))
        if count == within and tree.decided_by_rounding(ours ^ theirs):
            by_rounding += 1
            continue
        extra, missing = sorted(ours - theirs)[:3], sorted(theirs - ours)[:3]
        different.append(
            f"anchor {anchor}: {width} nodes accept {count}, reference {len(theirs)} accept "
            f"{walked}; not in the reference {extra}, missing {missing}"
        )
    return different, by_rounding


def walked_in(paths: frozenset, future: list[int]) -> int:
    """How far `paths` follow `future`."""
    return max((len(path) for path in paths if path == tuple(future[: len(path)])), default=0)


def batches(name: str, anchors: np.ndarray) -> list[np.ndarray]:
    sizes = FEWER if name in SLOW else BATCHES
    return np.split(anchors[: sum(sizes)], np.cumsum(sizes)[:-1])


@pytest.mark.parametrize("name", POLICIES)
def test_replay_accepts_what_an_explicit_tree_accepts(case, name):
    policy, reference = case.fitted(name)[0], case.reference(name)
    different, by_rounding, count = [], 0, 0
    for anchors in batches(name, case.anchors):
        load = case.load(anchors, np.arange(len(anchors)))
        step, trees = production_step(case, policy, load, anchors), reference.trees(load, anchors)
        found, ties = compare(case, anchors, step, trees)
        different, by_rounding, count = different + found, by_rounding + ties, count + load.batch
        for side in (policy, reference):
            side.observe(outcome_of(case, load, step))
    assert not different
    assert by_rounding <= MOST_BY_ROUNDING * count, by_rounding


@only_synthetic
def test_cast_width_is_the_rule_on_explicit_trees(case):
    config = POLICIES["cast"] | {"width": None, "mass_curve": "tuning", "charge_draft": False}
    anchors = case.recording.anchors_of("tuning").tolist()
    width = cast_width(config, case.raw, anchors, *case.cost.width_probe(1024))
    assert case.fit(make_policy(config))[1]["width"] == width


# ---------------------------------------------------------------- whole runs


def engine_tokens(case: Case, table: OrderTable | None, anchor: int, width: int) -> list[int]:
    """Tokens of a round: draft tokens that match on the way down the verified nodes, the bonus."""
    future = case.raw.future(anchor, case.raw.depths + 1)
    node, tokens = -1, []
    while width and len(tokens) < case.raw.depths:
        below = np.flatnonzero(table.parent[anchor, :width] == node)
        match = below[table.token[anchor, below] == future[len(tokens)]]
        if not len(match):
            break
        node = int(match[0])
        tokens.append(int(table.token[anchor, node]))
    return [*tokens, future[len(tokens)]]


@pytest.mark.parametrize("name", POLICIES)
def test_runs_commit_the_recorded_continuation(case, name):
    facts, orders = case.run(name)
    rounds, requests = facts.rounds, facts.requests
    assert (facts.steps["batch"].max(), facts.steps["batch"].min()) == (CLIENTS, 1)

    text = [[] for _ in range(REQUESTS)]  # outputs 1 on, prefill emits output 0
    keys = ("step", "request", "anchor", "width", "accepted", "committed")
    for step, request, anchor, width, accepted, committed in zip(*(rounds[k] for k in keys)):
        table = None if orders[step] is None else case.table(orders[step])
        tokens = engine_tokens(case, table, anchor, width)
        assert len(tokens) == accepted + 1
        text[request] += tokens[:committed]
    for sequence, tokens in zip(requests["sequence"], text, strict=True):
        assert tokens == case.recording.committed_tokens(sequence)[1:].tolist()
    total = np.bincount(rounds["request"], rounds["committed"], REQUESTS)
    assert np.array_equal(total, case.recording["output_len"][requests["sequence"]] - 1)


@only_synthetic
@pytest.mark.parametrize("name", POLICIES)
def test_every_round_of_a_run_is_that_of_explicit_trees(case, name):
    (facts, _), reference = case.run(name), case.reference(name)
    for step in range(0, len(facts.steps["step"]), EVERY if name in SLOW else 1):
        rows = facts.rounds["step"] == step
        line = {key: column[step] for key, column in facts.steps.items()}
        anchors, requests = facts.rounds["anchor"][rows], facts.rounds["request"][rows]
        load = case.load(anchors, requests, line["time_s"], line["queued"])
        trees = reference.trees(load, anchors)
        walked = [len(t.accepted(case.raw.future(a))) for a, t in zip(anchors, trees, strict=True)]
        did = [facts.rounds[key][rows] for key in ("width", "accepted", "committed")]
        assert did[0].tolist() == [len(tree.nodes) for tree in trees]
        assert did[1].tolist() == walked
        left = case.recording.remaining_outputs[anchors]
        assert np.array_equal(did[2], np.minimum(np.add(walked, 1), left))
        end_s = line["time_s"] + line["step_s"]
        reference.observe(Outcome(end_s, line["step_s"], line["drafted"], requests, *did))


# ---------------------------------------------------------------- the comparison can fail


def differences(case: Case, name: str, change) -> list[str]:
    """What `compare` says of a step of 64 requests after `change` of its table."""
    anchors = case.anchors[:64]
    load = case.load(anchors, np.arange(64))
    table, widths, _ = production_step(case, case.fitted(name)[0], load, anchors)
    changed = change(case, table)
    step = (changed, widths, changed.accepted(anchors, widths))
    return compare(case, anchors, step, case.reference(name).trees(load, anchors))[0]


def later_by_one(_, table: OrderTable) -> OrderTable:
    rank = table.hit_rank
    later = np.where(rank == ABSENT, rank, rank + (rank != ABSENT))
    return dataclasses.replace(table, hit_rank=later.astype(np.int16))


def never_the_first(_, table: OrderTable) -> OrderTable:
    rank = np.where(table.hit_rank == 1, ABSENT, table.hit_rank)
    return dataclasses.replace(table, hit_rank=rank)


def last_node_elsewhere(_, table: OrderTable) -> OrderTable:
    token = table.token.copy()
    token[:, -1] = 99
    return dataclasses.replace(table, token=token)


def earlier_push_first(case: Case, table: OrderTable) -> OrderTable:
    assert table.spec == BestFirstOrder(nodes=63, branch=8)
    return case.table(dataclasses.replace(table.spec, ties="tick"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fixed_chain", never_the_first),
        ("fixed_tree", later_by_one),
        ("treespark", never_the_first),
        ("fixed_tree_static", never_the_first),
        ("fixed_tree", last_node_elsewhere),
        ("eagle2", last_node_elsewhere),
        ("ddtree", later_by_one),
        ("priced_survival", never_the_first),
        ("fixed_tree", earlier_push_first),
    ],
)
def test_comparison_reports_a_wrong_table_or_the_other_tie_rule(name, change):
    case = open_case("synthetic_ties")
    assert not differences(case, name, lambda _, table: table)
    assert differences(case, name, change)
