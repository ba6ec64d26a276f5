"""The server's rounds in compiled code: same results, sooner.

Importing this loads numpy alone; numba is imported when a run is served.
"""

from __future__ import annotations

from simulator import compiling
from simulator.cost import StepCost
from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.engine.settings import Settings
from simulator.policies.shared.rules import FLAT_MODULES, FixedWidth, Plain, Priced, Rule
from simulator.policy import Policy
from traces.recordings.recording import Recording

MOST_ARRIVALS = 10_000_000  # of an open loop, whose times are held
# A step of the ordinary server and a request of it, in items of `compiling.worth`.
STEP_ITEMS, REQUEST_ITEMS, PRICED_ITEMS = 25, 0.5, 25


def eligible(
    settings: Settings, workload: Workload | LazyWorkload, policy: Policy, cost: StepCost
) -> bool:
    """Whether `FastServer` may serve a run.

    One replica that admits first come first served, prefills whole prompts and knows no KV limit,
    a cost model that refuses nothing, and a policy with a rule for every batch size.
    """
    return (
        settings.server.plain
        and not getattr(workload, "hands_over", False)
        and (workload.closed or len(workload) <= MOST_ARRIVALS)
        and type(cost) is StepCost
        and not cost.strict
        and ruled(policy, min(settings.capacity, len(workload)))
    )


def modules(priced: bool) -> tuple[str, ...]:
    """What is compiled to serve a policy: choices by price take long, and few need them."""
    every = (*FLAT_MODULES, "simulator.engine.compiled.rounds")
    return every if priced else tuple(name for name in every if "priced" not in name)


def pays(
    policy: Policy, workload: Workload | LazyWorkload, recording: Recording, capacity: int
) -> bool:
    """Whether compiled rounds are worth their loading; which server runs changes no result."""
    batch = min(capacity, workload.clients or 1)
    steps = len(workload) * float(recording.anchor_counts.mean()) / batch / 2
    priced = isinstance(policy.rule(batch), Priced)
    items = int(steps * (STEP_ITEMS + (PRICED_ITEMS if priced else REQUEST_ITEMS) * batch))
    return compiling.worth(items, "advance", *modules(priced))


def ruled(policy: Policy, capacity: int) -> bool:
    """Whether rules say all that the policy does, at batch sizes 1 to `capacity`."""
    if not _speaks_for_itself(policy):
        return False
    rules = [policy.rule(batch) for batch in range(1, capacity + 1)]
    learns = type(policy).observe is not Policy.observe  # as compiled rounds know of `Priced` alone
    return all(_sound(rule) and (isinstance(rule, Priced) or not learns) for rule in rules)


def _speaks_for_itself(policy: Policy) -> bool:
    """Whether no verb was overridden below the class that wrote the rule."""
    verbs = ("plan", "allocate", "observe")
    family = type(policy).__mro__
    if vars(policy).keys() & {*verbs, "rule"}:
        return False
    latest = next(i for i, one in enumerate(family) if "rule" in vars(one))
    return not any(vars(one).keys() & set(verbs) for one in family[:latest])


def _sound(rule: Rule | None) -> bool:
    """Whether the rule may be applied to its order: any prefix of a nested one, else the whole."""
    if rule is None or isinstance(rule, Plain):
        return rule is not None
    if isinstance(rule, FixedWidth):
        whole = rule.width is None or rule.width in (0, *getattr(rule.order, "prefixes", ()))
        return rule.order.nested or whole
    return rule.order.nested
