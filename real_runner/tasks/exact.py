"""task=exact: every policy's rounds against the simulator's replay, and its texts against plain
decoding, on the shipped corpus.

Above temperature 0, policies that sample their drafts take fixed candidate sets here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from real_runner.models.loading import load_live
from real_runner.recording.record import EXACT
from real_runner.serving.arena import Arena, plain_workload, recorded_arena
from real_runner.settings import LiveSettings, policy_nodes, with_fixed_sets
from real_runner.validating.compare import Comparison, compare_rounds
from simulator.engine.inputs import load_cost
from traces.recordings.schema import NEAR_TIE

DIFFERENT = 1  # exit status
BFLOAT16_TIE = 0.1  # logits near 16 are a sixteenth apart in bfloat16


def run_exact(config: Mapping[str, Any], live: LiveSettings, log: Callable[[str], None]) -> int:
    """Print rounds compared and differences; status 1 if one is no near tie."""
    asked, cost = live.exact, load_cost(live.latency)
    policies = with_fixed_sets(policy_nodes("exact.policies", asked.policies), live.temperature)
    pair = load_live(config)
    arena = recorded_arena(config, live, asked, pair, asked.prompts_per_domain, cost)
    sequences = arena.recording.sequences_of("report")
    log(
        f"{pair.name}, {arena.drafter.kind} drafter, {live.dtype}, temperature "
        f"{live.temperature:g}, {live.packing} packing: {len(sequences)} held-out prompts"
    )
    plain = plain_texts(arena, sequences)
    log(
        f"{'policy':22}{'requests in flight':>19}{'rounds':>8}{'differences':>12}"
        f"{'texts':>7}{'other':>7}"
    )
    rounds = real = ties = other_texts = unexplained = 0
    for size in asked.concurrency:
        for policy in policies:
            found, other = one_cell(arena, policy, sequences, size, plain)
            rounds, other_texts = rounds + found.rounds, other_texts + other
            tied = found.first is not None and found.first.near_tie
            ties += tied
            real += found.first is not None and not tied
            unexplained += other > 0 and not tied
            log(
                f"{policy['name']:22}{size:19}{found.rounds:8}{found.differing:12}"
                f"{len(sequences):7}{other:7}"
            )
            if found.first is not None:
                log(f"    {found.first}")
    log(
        f"{rounds} rounds compared; runs that differ: {real}, runs that differ from a near tie on: "
        f"{ties}; texts other than plain decoding's: {other_texts}"
    )
    return DIFFERENT if real or unexplained else 0


def plain_texts(arena: Arena, sequences: np.ndarray) -> list[list[int]]:
    """What plain decoding writes, one request at a time."""
    (node,) = policy_nodes("policy", ["autoregressive"])
    return arena.serve(node, plain_workload(sequences, 1), 1).outputs


def one_cell(
    arena: Arena, node: dict[str, Any], sequences: np.ndarray, size: int, plain: list[list[int]]
) -> tuple[Comparison, int]:
    """Comparison of rounds, and texts that differ from plain decoding's, of one policy."""
    work = plain_workload(sequences, size)
    replayed, served = arena.replay(node, work, size), arena.serve(node, work, size)
    tables = arena.cut_tables(node, size)
    limit = BFLOAT16_TIE if arena.pair.target.dtype not in EXACT else NEAR_TIE
    found = compare_rounds(replayed, served.facts, arena.recording, tables, served.outputs, limit)
    return found, sum(a != b for a, b in zip(served.outputs, plain, strict=True))
