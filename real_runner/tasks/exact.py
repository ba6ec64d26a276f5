"""task=exact: every policy's rounds against the simulator's replay, and its texts against plain
decoding, on the shipped corpus.

Above temperature 0, policies that sample their drafts take fixed candidate sets here.
The recording replayed is made now, in the live type: rounding could move near ties otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from real_runner.settings import CORPUS_LICENSE, live_settings, policy_nodes, with_fixed_sets

DIFFERENT = 1  # exit status
BFLOAT16_TIE = 0.1  # logits near 16 are a sixteenth apart in bfloat16


def run(config: dict[str, Any], log: Callable[[str], None]) -> int:
    """Print rounds compared and differences; status 1 if one is no near tie."""
    from real_runner.engine.engine import Settings
    from real_runner.engine.residual import make_verifier
    from real_runner.models.loading import chosen_drafter, load_live
    from real_runner.recording.record import RecordPlan, corpus_prompts, record_in_memory
    from real_runner.validating.arena import Arena
    from simulator.engine.inputs import load_cost

    live = live_settings(config)
    asked, temperature = live.exact, live.temperature
    policies = with_fixed_sets(policy_nodes("exact.policies", asked.policies), temperature)
    settings = Settings(packing=live.packing, graphs=live.graphs)
    cost = load_cost(live.latency)
    plan = RecordPlan(
        domains=asked.domains,
        max_new_tokens=live.max_new_tokens,
        temperatures=(temperature,),
        shard_mb=1,
        text_license=CORPUS_LICENSE,
        pool=settings.pool,
        seed=asked.seed,
        name="live",
        stored="float32" if live.dtype == "bfloat16" else live.dtype,
    )
    pair = load_live(config)
    drafter = chosen_drafter(pair, config)
    prompts = corpus_prompts(pair, plan.domains, asked.prompts_per_domain, plan.seed)
    recording = record_in_memory(pair, drafter, plan, prompts, temperature)
    sequences = recording.sequences_of("report")
    log(
        f"{pair.name}, {drafter.kind} drafter, {live.dtype}, temperature {temperature:g}, "
        f"{live.packing} packing: {len(sequences)} held-out prompts"
    )
    arena = Arena(pair, drafter, recording, cost, make_verifier(temperature), settings)
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
            unexplained += other > 0 and (found.first is None or not found.first.near_tie)
            if found.first is not None:
                ties += found.first.near_tie
                real += not found.first.near_tie
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


def plain_texts(arena, sequences: np.ndarray) -> list[list[int]]:
    """What plain decoding writes, one request at a time."""
    from real_runner.validating.arena import plain_workload

    (node,) = policy_nodes("policy", ["autoregressive"])
    return arena.serve(node, plain_workload(sequences, 1), 1).outputs


def one_cell(arena, node: dict[str, Any], sequences: np.ndarray, size: int, plain):
    """Comparison of rounds, and texts that differ from plain decoding's, of one policy."""
    from real_runner.recording.record import EXACT
    from real_runner.validating.arena import plain_workload
    from real_runner.validating.compare import compare_rounds
    from traces.recordings.schema import NEAR_TIE

    work = plain_workload(sequences, size)
    replayed = arena.replay(node, work, size)
    served = arena.serve(node, work, size)
    tables = arena.cut_tables(arena.fitted(node, size).order)
    limit = BFLOAT16_TIE if arena.pair.target.dtype not in EXACT else NEAR_TIE
    found = compare_rounds(replayed, served.facts, arena.recording, tables, served.outputs, limit)
    other = sum(a != b for a, b in zip(served.outputs, plain, strict=True))
    return found, other
