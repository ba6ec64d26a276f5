"""task=distribution: three tokens under every policy against plain sampling, independent draws.

They follow a prompt and the first outputs of its recorded text, up to where the target's next token
is least certain.

A policy that differs is drawn again, and plain sampling with it: chance does not come twice. A
verifier that is known to be wrong goes through the same test, so that one sees what it can find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from real_runner.settings import CORPUS_LICENSE, live_settings, policy_nodes
from traces.common.errors import InputError

DIFFERENT = 1  # exit status
TOKENS = 3  # compared
FALSE_ALARM = 0.01  # over all policies together
BATCH = 125  # requests in flight
AGAIN = 500  # streams of the second samples, where the first ones differ


def run(config: dict[str, Any], log: Callable[[str], None]) -> int:
    """Print p-values, and how often the wrong verifier is found; status 1 if a policy fails."""
    from real_runner.engine.draws import IndependentDraws
    from real_runner.engine.engine import Settings
    from real_runner.engine.residual import Rejection
    from real_runner.engine.shared_prefix import SharedPrefixEngine
    from real_runner.engine.wrong import TopKWithFullResiduals
    from real_runner.models.loading import chosen_drafter, load_live
    from real_runner.recording.record import RecordPlan, corpus_prompts, record_in_memory
    from real_runner.validating.arena import Arena
    from real_runner.validating.distribution import most_open, prefix_tests
    from simulator.engine.inputs import load_cost

    live = live_settings(config)
    asked, temperature = live.distribution, live.temperature
    policies = policy_nodes("distribution.policies", asked.policies)
    samples, trials, seed, domains = asked.samples, asked.trials, asked.seed, asked.domains
    if not temperature:
        raise InputError("temperature is 0; accepted for task=distribution: above 0, such as 1")
    settings = Settings(packing=live.packing, graphs=live.graphs)
    cost = load_cost(live.latency)
    plan = RecordPlan(domains, 40, (temperature,), 1, CORPUS_LICENSE, settings.pool, seed, "live")
    pair = load_live(config)
    drafter = chosen_drafter(pair, config)
    prompts = corpus_prompts(pair, domains, 4, seed)
    recording = record_in_memory(pair, drafter, plan, prompts, temperature)
    each = -(-samples // len(domains))
    starts = [most_open(recording, recording.anchors_of("report", name), each) for name in domains]
    log(
        f"{pair.name}, {drafter.kind} drafter, temperature {temperature:g}: {TOKENS} tokens behind "
        f"{len(starts)} texts, {each} samples of each and side"
    )

    def drawn(policy: dict[str, Any], stream: int, verifier=Rejection) -> list[list[tuple]]:
        draws = IndependentDraws(temperature, np.random.default_rng([seed, stream]))
        verify = verifier(draws)
        arena = Arena(pair, drafter, recording, cost, verify, settings, SharedPrefixEngine)
        return sample(arena, policy, starts, each)

    (plain,) = policy_nodes("policy", ["autoregressive"])
    base = drawn(plain, 0)
    limit, failed = FALSE_ALARM / len(policies), 0
    for index, policy in enumerate(policies, start=1):
        result = prefix_tests(list(zip(drawn(policy, index), base, strict=True)))
        log(f"{policy['name']:22} {result}")
        if result.p_value < limit:
            sides = drawn(policy, AGAIN + index), drawn(plain, AGAIN)
            again = prefix_tests(list(zip(*sides, strict=True)))
            log(f"{'  both sides drawn again':22} {again}")
            failed += again.p_value < limit
    log(
        f"policies that differ, below {limit:.2g} twice (false alarms of one test {FALSE_ALARM:g} "
        f"over all policies): {failed}"
    )
    (tree,) = policy_nodes("policy", ["fixed_tree"])
    tree = tree | {"nodes": 8, "branch": 8}  # the root's top 8 mostly
    found = 0
    for trial in range(trials):
        stream = 1000 + trial
        wrong = prefix_tests(
            list(zip(drawn(tree, stream, TopKWithFullResiduals), base, strict=True))
        )
        found += wrong.p_value < limit
        log(f"top-k set, full-vocabulary residuals (wrong) {wrong}")
    log(f"wrong verifier found in {found} of {trials} trials")
    return DIFFERENT if failed or not found else 0


def sample(arena, policy: dict[str, Any], starts: list[int], each: int) -> list[list[tuple]]:
    """`TOKENS` tokens of `each` requests behind every start (an anchor); a list per start.

    Starts are of different texts.
    """
    from dataclasses import replace

    from real_runner.validating.arena import plain_workload

    recording, anchors = arena.recording, np.array(starts)
    sequences, output = recording.anchor_sequence[anchors], recording.anchor_output[anchors]
    cap = np.ones(len(arena.requests), np.int64)
    cap[sequences] = output + 1 + TOKENS
    requests = replace(arena.requests, max_new_tokens=cap)
    asked = np.tile(np.arange(len(starts)), each)
    # As warm-up requests, they start behind recorded outputs.
    work = replace(
        plain_workload(sequences[asked], BATCH),
        first_output=output[asked],
        warmup=np.ones(len(asked), bool),
    )
    served = arena.serve(policy, work, BATCH, requests)
    groups: list[list[tuple]] = [[] for _ in starts]
    for start, tokens in zip(asked.tolist(), served.outputs, strict=True):
        groups[start].append(tuple(tokens[output[start] + 1 :]))
    return groups
