"""Host time of a live round on real blocks: building the order, allocating, both together.

    python tests/benchmarks/bench_live_host.py [blocks]

Blocks are drawn from the shipped recordings: float32 logits of the semi-autoregressive drafter
(2,048 tokens, 7 depths, Markov rank 64), pools of the block drafter (15 depths, 16 tokens). One
thread; microseconds per request and round, medians over rounds: wall time, and for both steps
together the processor time that other processes cannot stretch by taking the core. `nodes` is the
mean number put in order: TreeSpark's orders end at their threshold. The reference is the plain
Python heap on a few anchors, over all nodes, as a multiple of the order's time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from simulator.cost import StepCost, find_profile
from simulator.orders import BlockScores, DraftHead, build_block, order_table
from simulator.orders.build import resolve_for
from simulator.policies.cast import Cast
from simulator.policies.fixed_tree import FixedTree
from simulator.policies.treespark import TreeSpark
from simulator.policy import Draft, Lab, Load, Policy, Step
from tests.reference import RawScores
from tests.reference_orders import drafted
from traces.recordings.catalog import known_recordings
from traces.recordings.files import read_recording
from traces.recordings.recording import Recording

BATCHES = (1, 4, 16)
NODES, LIMIT_US = 127, 100.0
REPEATS = 3
REFERENCE_ANCHORS = 3
POLICIES = {
    "cast": lambda: Cast(width=NODES),
    "treespark": lambda: TreeSpark(nodes=NODES),
    "fixed_tree": lambda: FixedTree(nodes=NODES),
}


class Blocks:
    """`count` random anchors of a recording as the model hands them over."""

    def __init__(self, recording: Recording, count: int) -> None:
        rng = np.random.default_rng(0)
        self.recording = recording
        self.anchors = rng.choice(recording.num_anchors, count, replace=False)
        self.pooled = recording.encoding == "pool"
        if not self.pooled:
            self.head = DraftHead.of(recording)
            self.head.fill()
            hidden = recording["hidden"][self.anchors]
            self.logits = self.head.logits(hidden).astype(np.float32)  # (count, D, V)
            self.anchor_token = recording.anchor_tokens(self.anchors)

    def scores(self, rows: slice) -> BlockScores:
        if self.pooled:
            anchors = self.anchors[rows]
            pools = self.recording
            return BlockScores(pools["pool_token"][anchors], pools["pool_logprob"][anchors])
        anchor_token = self.anchor_token[rows]
        return BlockScores(logits=self.logits[rows], head=self.head, anchor_token=anchor_token)


def fitted(make: Callable[[], Policy], recording: Recording, cost: StepCost) -> Policy:
    """The policy, fitted on the recording as before a run."""
    policy = make()
    policy.prepare(Lab(recording, cost, 16, 1024, lambda spec: order_table(spec, recording)))
    return policy


def round_s(blocks: Blocks, policy: Policy, cost: StepCost, batch: int) -> np.ndarray:
    """(4, rounds) per request: nodes, seconds ordering, allocating, processor time of both.

    The first pass over the blocks is warm-up.
    """
    counts = np.full(batch, 512)
    load = Load(0.0, batch, 0, batch, counts, counts)
    spent = []
    for repeat in range(1 + REPEATS):
        for first in range(0, len(blocks.anchors) - batch + 1, batch):
            scores = blocks.scores(slice(first, first + batch))
            order = policy.plan(load)
            used, start = time.thread_time(), time.perf_counter()
            table = build_block(order, scores)
            built = time.perf_counter()
            draft = Draft(table.score, table.depth, table.parent, table.size)
            policy.allocate(Step(load, draft, order, cost))
            end, used = time.perf_counter(), time.thread_time() - used
            if repeat:
                spent.append((int(table.size.sum()), built - start, end - built, used))
    return np.array(spent).T / batch


def reference_us(blocks: Blocks, policy: Policy) -> float:
    """Microseconds per anchor of the explicit heap over the same tree."""
    spec = resolve_for(policy.order, blocks.recording)
    raw = RawScores(blocks.recording.arrays, blocks.recording.meta)
    start = time.perf_counter()
    for anchor in blocks.anchors[:REFERENCE_ANCHORS]:
        drafted(spec, raw, int(anchor))
    return (time.perf_counter() - start) / REFERENCE_ANCHORS * 1e6


def report(name: str, blocks: Blocks, policy: Policy, cost: StepCost) -> None:
    """Print one policy's rows, one per batch."""
    slow = reference_us(blocks, policy)
    for batch in BATCHES:
        nodes, *spent = round_s(blocks, policy, cost, batch)
        order, allocate, processor = np.median(spent, axis=1) * 1e6
        total = np.median(spent[0] + spent[1]) * 1e6
        verdict = "ok" if total < LIMIT_US else "missed"
        print(
            f"{name:22s} {batch:5d} {nodes.mean():6.0f} {order:9.1f} {allocate:9.1f} {total:9.1f}"
            f" {processor:10.1f} {slow / order:10.0f}  {verdict}",
            flush=True,
        )


def main() -> None:
    """Print microseconds per request of every policy on both drafters."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    cost = StepCost(find_profile("b300"))
    print(f"{NODES} nodes; us per request and round; limit {LIMIT_US:.0f} us for order + allocate")
    print(
        f"{'drafter, policy':22s} {'batch':>5s} {'nodes':>6s} {'order':>9s} {'allocate':>9s}"
        f" {'together':>9s} {'processor':>10s} {'reference':>10s}"
    )
    for name in ("small_semi_t0", "small_block_t0"):
        recording = read_recording(known_recordings()[name])
        blocks = Blocks(recording, count)
        for policy_name, make in POLICIES.items():
            policy = fitted(make, recording, cost)
            report(f"{name.split('_')[1]}, {policy_name}", blocks, policy, cost)


if __name__ == "__main__":
    main()
