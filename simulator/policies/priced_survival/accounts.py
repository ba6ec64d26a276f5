"""What a pricing policy remembers between steps, and how it sizes one: plain functions over arrays.

A row of accounts for batches of 1, 2, 3 to 4, 5 to 8, and so on. `priced_survival` calls them for
one step, compiled rounds for millions (`simulator.compiling`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from simulator.cost.price import host_s, verify_s
from simulator.policies.shared.choices import RATE, WORTH, best_depth, best_nodes

HALF_LIFE = 200  # steps, of the common price
KEEP = 0.5 ** (1 / HALF_LIFE)
SMOOTH = 0.1  # weight of the newest step in the running mean of nodes
SHARP = 0.5  # and of what drafting gains, which follows easy and hard stretches
# What drafting may cost: the next stretch may be easier, and a rest is not free.
MARGIN = 0.05
# Resting steps before drafting is tried again, doubled while it fails, up to REST x batch: alone,
# hard stretches end soon; a batch is as hard as it was.
REST, LONGEST = 5, 80
# Where a drafter must read what it missed: longer, until that takes this share of the rest.
READING = 0.005

# Places of an account. NaN: nothing yet.
NODES = 0  # per request, running mean
SURPLUS = 1  # of drafting over plain decoding, relative, running mean
BUDGET = 2  # nodes per request that the last step would have taken
EARNED, SECONDS = 3, 4  # worth and seconds, decaying sums
RESTED, RESTING, MOST = 5, 6, 7  # resting steps so far, of this rest, and of the longest one
PLACES = 8
NOT_INLINED = ("size_step",)  # where compiled


class Pricing(NamedTuple):
    """Settings and state of a pricing policy; compiled rounds and the policy share the arrays."""

    accounts: Any  # (sizes, PLACES)
    limits: Any  # (3,) drafted steps, those over the limit with no node, the shortest with none
    limit_s: float  # no longer step; inf: any
    skip: bool  # whether to rest while drafting does not pay
    local: bool  # whether a token is worth what it saves where its request stands
    earned: bool  # whether a second costs what was earned per second so far
    log_widths: Any  # (W,) nodes per request, and the exponents of a token's worth there
    exponents: Any  # (W,)


def new_accounts(longest: list[int]) -> np.ndarray:
    """Accounts of so many sizes, by the longest rest of each: (sizes, PLACES)."""
    accounts = np.zeros((len(longest), PLACES))
    accounts[:, [NODES, SURPLUS, BUDGET]] = np.nan
    accounts[:, RESTING], accounts[:, MOST] = REST, longest
    return accounts


def account_at(batch):
    """The account of a batch size."""
    place = 0
    while (1 << place) < batch:
        place += 1
    return place


def rests(accounts, at):
    """Whether this step should not draft; asked once a step."""
    surplus = accounts[at, SURPLUS]
    if surplus != surplus or surplus >= -MARGIN:
        accounts[at, RESTED], accounts[at, RESTING] = 0.0, float(REST)
        return False
    accounts[at, RESTED] += 1.0
    if accounts[at, RESTED] > accounts[at, RESTING]:
        longer = min(2.0 * accounts[at, RESTING], accounts[at, MOST])
        accounts[at, RESTED], accounts[at, RESTING] = 0.0, longer
        return False
    return True


def smooth(accounts, at, place, new, weight):
    """A running mean."""
    before = accounts[at, place]
    accounts[at, place] = new if before != before else (1 - weight) * before + weight * new


def earn(accounts, at, worth, seconds):
    """Note what a step committed, and its time."""
    accounts[at, EARNED] = KEEP * accounts[at, EARNED] + worth
    accounts[at, SECONDS] = KEEP * accounts[at, SECONDS] + seconds


def price_of(accounts, at):
    """Worth per second so far; 0: nothing earned yet."""
    seconds = accounts[at, SECONDS]
    return accounts[at, EARNED] / seconds if seconds > 0 else 0.0


def interpolated(x, known, values):
    """Straight lines between rising `known`, constant beyond."""
    high = 0
    while high < len(known) and known[high] < x:
        high += 1
    if high == 0 or high == len(known):
        return values[min(high, len(known) - 1)]
    share = (x - known[high - 1]) / (known[high] - known[high - 1])
    return values[high - 1] + share * (values[high] - values[high - 1])


def weigh(row, expected, batch, nodes_per_request, pricing, work):
    """Multiply every request's weight by the worth of its tokens, of mean 1.

    A token saves the rounds that its stretch takes: (1 + its survivals) ** exponent, an exponent
    for the nodes that requests verify.
    """
    nodes = 1.0 if nodes_per_request != nodes_per_request else max(nodes_per_request, 1.0)
    exponent = interpolated(math.log(nodes), pricing.log_widths, pricing.exponents)
    worth, total = work.key, 0.0  # the keys are not yet in use
    for i in range(batch):
        worth[i] = expected[row[i]] ** exponent
        total += worth[i]
    mean = total / batch
    for i in range(batch):
        work.weight[i] *= worth[i] / mean


def size_step(p, floor, pricing, step, row, survival, expected, size, depth, work):
    """Widths of a step by the worth of its best nodes against what it costs; notes both.

    Args:
        step: see `choices.best_nodes`. survival (A, M) of the rows' nodes; expected (A,) tokens of
            their stretches. work: with the requests' own weights and the nodes' offsets.
    """
    batch, context, _, _ = step
    accounts, at = pricing.accounts, account_at(batch)
    if pricing.local:
        weigh(row, expected, batch, accounts[at, NODES], pricing, work)
    base = 0.0
    for i in range(batch):
        base += work.weight[i]
    second = price_of(accounts, at) if pricing.earned else 0.0
    aim = WORTH if second > 0 else RATE, second, pricing.limit_s, False, base
    if p.dense:
        found = best_depth(p, step, aim, row, survival, size, work)
    else:
        found = best_nodes(p, floor, step, aim, row, survival, size, depth, work)
    number, gain, seconds, least_s = found
    if pricing.limit_s < math.inf:
        pricing.limits[0] += 1.0
        pricing.limits[1] += 1.0 if least_s > pricing.limit_s else 0.0
        pricing.limits[2] = min(pricing.limits[2], least_s)
    accounts[at, BUDGET] = number / batch
    surplus = (base + gain) / seconds * plain_step_s(p, batch, context) / base - 1
    smooth(accounts, at, NODES, number / batch, SMOOTH)
    smooth(accounts, at, SURPLUS, surplus, SHARP)  # over plain decoding, which is worth `base`


def plain_step_s(p, batch, context):
    """Seconds of a plain decoding step of a policy that drafts at other times."""
    device_s = verify_s(p, batch, float(batch), context, 1)[0]
    return device_s + host_s(p.host, 0, device_s, batch, False, False, 0, True)
