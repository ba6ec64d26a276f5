"""Host work of one step: what the CPU does around the device's forwards.

A step takes ``device_s`` (draft, verify and prompt chunks, by the profile) and what is seen of the
host, ``seen_s``:

    work_s    what the terms below add up to
    trees_s   of it: node_s, tree_step_s, tree_request_s, kv_move_token_s
    slack_s   max(0, launch_s - device_s): the device waits for the host's kernel launches
    1. The slack hides trees_s, then the bubble; what is left of it is added to the device's time.
    2. With overlap, the remaining work is seen only where it exceeds the device's time.
    seen_s =  slack_s + work_s + bubble_s, as far as they are left

Without launch_s there is no slack, without bubble_s no bubble: then it is the work, or with overlap
max(0, work_s - device_s). `StepCost` sets launch_s to 0 unless its mode is eager: captured graphs
are launched at once. So a tree's host work looks free where launches bound the step, and is not in
graphs mode.

bubble_s and tree_step_s: both are paid once by a step that verifies trees. With overlap,
tree_step_s may hide under the device's time (masks, positions of the next step) while bubble_s may
not: the next launch needs the walk's result. Without overlap the two cannot be told apart, and
everything belongs into tree_step_s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from traces.common.settings import Condition, Config, Section, equal, key, number, value_at


def _works(config: Config) -> bool:
    host = value_at(config, "latency.host") or {}
    return any(seconds for name, seconds in host.items() if name != "overlap")


Seconds = number(0, 1e6)


class HostOverhead(Section):
    """Seconds of host work, added to the device time or hidden under it. See the module's text.

    round_s: every step that drafts. request_s: each request of such a step. node_s: each draft
    node that it verifies. ordered_node_s: each draft node that the host put in order for it,
    verified or not. tree_step_s: extra when the step verifies trees (build, mask, KV gather).
    plain_s: every plain decoding step; kept apart because a plain step has no draft, mask or
    gather, and the one-token probes of the published profiles already hold its launch time.
    plain_request_s: each request of such a step. fed_step_s: extra of a plain step whose states are
    kept for a drafter that rests. catch_up_token_s: each token a drafter that rested has to read
    before it drafts again; a part of drafting, not hidden by overlap. tree_request_s: each request
    of a step that verifies trees (mask rows, positions). kv_move_token_s: each draft node of such a
    step (packed tokens whose KV is compacted after it). bubble_s: a step that verifies trees leaves
    the device idle so long while the host walks them. launch_s: kernel launches of a step, in eager
    mode. overlap: host work runs while the device is busy, and only what exceeds the device time is
    seen; the bubble always is.
    """

    PREFIX: ClassVar[str] = "latency.host."

    round_s: Seconds = key(
        0.0, "seconds; traces/latency/README.md says who pays each, and names five more"
    )
    node_s: Seconds = 0.0
    tree_step_s: Seconds = key(0.0, "a step that verifies trees")
    plain_s: Seconds = 0.0
    request_s: Seconds = 0.0
    ordered_node_s: Seconds = 0.0
    plain_request_s: Seconds = 0.0
    fed_step_s: Seconds = 0.0
    catch_up_token_s: Seconds = 0.0
    tree_request_s: Seconds = key(0.0, "each request of such a step")
    kv_move_token_s: Seconds = key(0.0, "each draft node of such a step")
    bubble_s: Seconds = key(0.0, "of such a step, in the open whatever overlaps")
    launch_s: Seconds = key(
        0.0,
        "kernel launches of a step; read in eager mode alone",
        counts=(equal("latency.mode", "eager"),),
    )
    overlap: bool = key(
        False,
        "true: host work hides under the device time",
        counts=(Condition("a time of latency.host", _works),),
    )


# TREE_TERMS: finer parts of what tree steps pay. bubble_s is not among them: it cannot be told from
# tree_step_s in rounds, nor launch_s, which is no sum.
TERMS, TREE_TERMS = tuple(HostOverhead.model_fields)[:9], ("tree_request_s", "kv_move_token_s")


def term_counts(
    *,
    drafted: np.ndarray,
    requests: np.ndarray,
    nodes: np.ndarray,
    ordered: np.ndarray,
    tree: np.ndarray,
    fed: np.ndarray,
    deferred: np.ndarray,
    finer: bool = False,
) -> dict[str, np.ndarray]:
    """How often each round pays each host term (`simulator.cost.price.host_s`): name to (n,).

    Args:
        drafted: (n,) whether the round paid a draft.
        requests: (n,) requests in the round.
        nodes: (n,) draft nodes verified in all.
        ordered: (n,) draft nodes put in order in all.
        tree: (n,) whether it verifies trees.
        fed: (n,) whether a plain round's states were kept for a drafter.
        deferred: (n,) tokens the drafter had to catch up on.
        finer: whether `TREE_TERMS` are among them.
    """
    drafts = np.asarray(drafted, bool).astype(float)
    counts = {
        "round_s": drafts,
        "node_s": drafts * nodes,
        "tree_step_s": drafts * tree,
        "plain_s": 1 - drafts,
        "request_s": drafts * requests,
        "ordered_node_s": drafts * ordered,
        "plain_request_s": (1 - drafts) * requests,
        "fed_step_s": (1 - drafts) * fed,
        "catch_up_token_s": drafts * deferred,
        "tree_request_s": drafts * tree * requests,
        "kv_move_token_s": drafts * tree * nodes,
    }
    return {name: counts[name] for name in (TERMS + TREE_TERMS if finer else TERMS)}


def fit_host(
    round_s: np.ndarray,
    device_s: np.ndarray,
    terms: Mapping[str, np.ndarray],
    *,
    relative: bool = False,
) -> HostOverhead:
    """Least squares of ``round_s - device_s`` on the named terms, none negative.

    Judge the result on rounds that are not among these.

    Args:
        round_s: (n,) measured seconds per round.
        device_s: (n,) seconds of drafting and verifying, from a profile.
        terms: names of `HostOverhead` terms, and (n,) how often each round pays the term.
        relative: make the error small relative to ``device_s``; else long rounds weigh most.

    Returns:
        The terms; those not named are 0, as is one whose best value would be negative.
    """
    round_s = np.asarray(round_s, float)
    left_s, counts = round_s - np.asarray(device_s), np.column_stack([*terms.values()])
    if relative:
        # Not by the measured seconds: rounds that a stall made long would count for too little.
        weight = np.asarray(device_s, float)
        left_s, counts = left_s / weight, counts / weight[:, None]
    from scipy.optimize import lsq_linear  # its nnls stops the process on some small tables

    best = lsq_linear(counts.astype(float), left_s, (0, np.inf), method="bvls").x
    best = best.clip(0.0)  # rounding may leave -7e-18
    return HostOverhead(**dict(zip(terms, best.tolist(), strict=True)))
