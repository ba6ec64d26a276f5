"""What the tests of bounds share: small options, orders by hand, and schedules by enumeration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.cost import StepCost, find_profile
from simulator.orders import ABSENT, ChainOrder, OrderTable
from simulator.studies.bounds.lone import BoundedTexts, Options
from tests.synthetic import make_hidden, make_pool
from traces.profiles.tables import DraftRow, VerifyRow
from traces.recordings.recording import Recording

IMPOSSIBLE = np.inf


def options_of(accepted: list[int], round_s, plain_s: float, cuts: tuple[int, ...] = ()) -> Options:
    """A single request that can accept 0..accepted[s] at anchor s, at round_s(a) seconds."""
    depths = max(accepted)
    depth = np.arange(depths + 1)
    inside = depth <= np.array(accepted)[:, None]
    seconds = np.where(inside, [round_s(a) for a in depth], IMPOSSIBLE)
    start = np.array([0, *cuts, len(accepted)])
    return Options(start, np.full(len(accepted), plain_s), seconds, np.where(inside, depth, -1))


def enumerated(plain_s: np.ndarray, rounds: list[list[tuple[float, int]]]) -> float:
    """Least seconds over every schedule of one sequence, by trying all of them.

    rounds: per anchor, (seconds, accepted) of every width.
    """
    count = len(plain_s)

    def least(s: int) -> float:
        if s >= count:
            return 0.0
        tried = [seconds + least(s + accepted + 1) for seconds, accepted in rounds[s]]
        return min([plain_s[s] + least(s + 1), *tried])

    return least(0)


def every_width(table: OrderTable, anchor: int, cost: StepCost, context: int, tree: bool):
    """(seconds, accepted) of every width at one anchor, priced as the server does it."""
    found, one = [], np.ones(1, np.int64)
    size = int(table.size[anchor])
    for width in range(size + 1):
        time = cost.step(
            one * (width + 1),
            one * context,
            drafted=True,
            tree=tree and width > 0,
            ordered=size,
        )
        found.append((time.total_s, int((table.hit_rank[anchor] <= width).sum())))
    return found


def hand_table(hit_rank: list[list[int]], nodes: int) -> OrderTable:
    """A nested order of `nodes` nodes at every anchor that hits these ranks, 0 = absent."""
    ranks = np.array(hit_rank)
    count = len(ranks)
    return OrderTable(
        spec=ChainOrder(),
        anchors=np.arange(count),
        score=np.zeros((count, nodes)),
        depth=np.ones((count, nodes), np.uint8),
        parent=np.full((count, nodes), -1, np.int16),
        token=np.zeros((count, nodes), np.int32),
        size=np.full(count, nodes, np.int32),
        hit_rank=np.where(ranks == 0, ABSENT, ranks).astype(np.int16),
        ties=np.zeros(count, np.int32),
    )


def random_profile(rng: np.random.Generator, batches=(1, 3), contexts=(4, 12, 30)) -> StepCost:
    """A cost with jumps, dips and contexts: what a noisy probe of a small machine looks like."""
    sizes = (1, 2, 3, 5, 8, 13, 24)
    verify = tuple(
        VerifyRow(batch, context, batch * size, float(ms), captured=False)
        for batch in batches
        for context in contexts
        for size, ms in zip(
            sizes,
            3 + batch * context / 40 + np.cumsum(rng.normal(0.2, 0.4, len(sizes))).clip(-0.5),
            strict=True,
        )
    )
    draft = tuple(
        DraftRow(batch, context, 0.2 + 0.05 * batch + context / 100)
        for batch in batches
        for context in contexts
    )
    eager = replace(find_profile("small_pair_semi_cpu"), name="random", prefill=())
    return StepCost(replace(eager, verify=verify, draft=draft))


def drawn(
    kind: str,
    lengths: tuple[int, ...] = (6, 4, 2),
    depths: int = 3,
    temperature: float = 0.0,
    seed: int = 1,
) -> Recording:
    """A noisy recording of texts of these lengths."""
    make = {"pool": make_pool, "hidden": make_hidden}[kind]
    size = {"sequences": len(lengths), "depths": depths, "lengths": list(lengths)}
    return make(np.random.default_rng(seed), temperature=temperature, noise=0.4, **size)


def all_texts(recording: Recording) -> BoundedTexts:
    return BoundedTexts.of(recording, np.arange(recording.num_sequences))


def least_per_step(facts, recording, left: np.ndarray) -> np.ndarray:
    """Sum of V(s) - V(s') over the rounds of every step; left (A,) is V at every anchor."""
    rounds = facts.rounds
    sequence = recording.anchor_sequence[rounds["anchor"]]
    after = rounds["anchor"] + rounds["committed"]
    over = after == recording.anchor_offset[sequence + 1]
    least = left[rounds["anchor"]] - np.where(over, 0.0, np.append(left, 0.0)[after])
    return np.bincount(rounds["step"], least, len(facts.steps["step"]))


def assert_steps_cover(facts, recording, left: np.ndarray, full: np.ndarray) -> None:
    """Every step of `full` takes what its rounds must, and no trivial part of that."""
    per_step = least_per_step(facts, recording, left)
    step_s = facts.steps["step_s"]
    assert (per_step[full] <= step_s[full] * (1 + 1e-9) + 1e-15).all()
    assert per_step[full].sum() > 0.1 * step_s[full].sum()
