"""Which runs compiled rounds can make, with results equal to the ordinary server's."""

from __future__ import annotations

import sys
from dataclasses import fields

from simulator.cost import HostOverhead, StepCost
from simulator.cost.memo import CachedDraft, CachedVerify
from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.engine.compiled.rules import FixedWidth, Plain, Rule, SharedBudget, Threshold
from simulator.engine.settings import Settings
from simulator.policy import Policy
from traces.recordings.recording import Recording

STEPS = 20_000  # of plain decoding, from which a run is worth loading compiled code for

# What `kernel.price` knows: fields and attributes that are not listed must stand at their default.
HOST = {
    "round_s",
    "node_s",
    "tree_step_s",
    "plain_s",
    "request_s",
    "ordered_node_s",
    "plain_request_s",
    "fed_step_s",
    "catch_up_token_s",
    "tree_request_s",
    "kv_move_token_s",
    "bubble_s",
    "launch_s",
    "overlap",
}
ENGINE = {"packing", "draft_steps", "mode", "cliffs", "prefill", "prefill_efficiency"}
COST = {
    "engine",
    "profile",
    "host",
    "packing",
    "strict",
    "mode",
    "draft_steps",
    "cliffs",
    "prefill",
    "_target",
    "_drafter",
    "_prefill",
    "_kind",
    "_padded",
}
# Settings of a load that do not change what a server does, or are looked at below.
LOAD = {
    "max_concurrency",
    "request_rate",
    "burstiness",
    "num_prompts",
    "seed",
    "goodput",
    "max_num_seqs",
    "server",
    "workload",
}


def eligible(
    settings: Settings, workload: Workload | LazyWorkload, policy: Policy, cost: StepCost
) -> bool:
    """Whether `FastServer` may serve a run.

    A closed loop with a slot for every client, one replica that admits first come first served,
    prefills whole prompts and knows no KV limit, a cost model whose every term compiled code
    knows, and a policy with a rule for every batch size.
    """
    return (
        _simple_load(settings, workload) and _known_cost(cost) and ruled(policy, settings.capacity)
    )


def pays(workload: Workload | LazyWorkload, recording: Recording) -> bool:
    """Whether compiled rounds are worth their loading; which server runs changes no result.

    numba and the compiled code take about 0.6 s to load, once in a process (and 13 s to compile,
    once on a machine): as long as an ordinary server's few thousand steps.
    """
    if "simulator.engine.compiled.kernel" in sys.modules:
        return True
    plain_steps = len(workload) * float(recording.anchor_counts.mean()) / (workload.clients or 1)
    return plain_steps >= STEPS


def _simple_load(settings: Settings, workload: Workload | LazyWorkload) -> bool:
    return (
        settings.closed_loop
        and workload.clients is not None
        and workload.clients <= settings.capacity
        and not getattr(workload, "hands_over", False)
        and _at_default(settings, LOAD)
        and settings.server.plain
    )


def _known_cost(cost: StepCost) -> bool:
    if type(cost) is not StepCost or cost.strict or type(cost.host) is not HostOverhead:
        return False
    plain = type(cost._target) is CachedVerify and type(cost._drafter) is CachedDraft
    known = vars(cost).keys() <= COST and plain
    return known and _at_default(cost.engine, ENGINE) and _at_default(cost.host, HOST)


def _at_default(values, known: set[str]) -> bool:
    """Whether every field of a dataclass outside `known` has its default."""
    others = (item for item in fields(values) if item.name not in known)
    return all(getattr(values, item.name) == item.default for item in others)


def ruled(policy: Policy, capacity: int) -> bool:
    """Whether rules say all that the policy does, at batch sizes 1 to `capacity`."""
    if not _speaks_for_itself(policy):
        return False
    return all(_sound(policy.rule(batch)) for batch in range(1, capacity + 1))


def _speaks_for_itself(policy: Policy) -> bool:
    """Whether no verb was overridden below the class that wrote the rule, or learns from steps."""
    verbs = ("plan", "allocate", "observe")
    family = type(policy).__mro__
    if vars(policy).keys() & {*verbs, "rule"}:
        return False
    home = {name: next(c for c in family if name in vars(c)) for name in (*verbs, "rule")}
    latest = family.index(home["rule"])
    return home["observe"] is Policy and all(latest <= family.index(home[verb]) for verb in verbs)


def _sound(rule: Rule | None) -> bool:
    """Whether the rule may be applied to its order: any prefix of a nested one, else the whole."""
    if isinstance(rule, Plain):
        return True
    if isinstance(rule, FixedWidth):
        whole = rule.width is None or rule.width in (0, *getattr(rule.order, "prefixes", ()))
        return rule.order.nested or whole
    return isinstance(rule, Threshold | SharedBudget) and rule.order.nested
