"""Hindsight bounds: what no policy can beat on a recording, because they know what is accepted.

O1 to O5 (`python -m simulator task=bounds`). All of them read hit ranks, which no policy is shown.
Above temperature 0 the hit ranks hold one realised sample of the target, and of the drafts of
sampled orders: the bounds then are clairvoyant about chance too, and no average over it.

Importing this loads numpy alone; numba is imported when a schedule is computed.
"""

from simulator.studies.bounds.batched import BatchedBound, batched_bound
from simulator.studies.bounds.knapsack import best_budget, exact_gains, water_filling
from simulator.studies.bounds.options import (
    BoundedTexts,
    Options,
    breakpoints,
    free_options,
    order_options,
    pool_prefix,
    table_prefix,
)
from simulator.studies.bounds.schedule import (
    Schedule,
    best_rounds,
    best_schedule,
    least_left,
    price_of,
    ratio_rounds,
)

__all__ = [
    "BatchedBound",
    "BoundedTexts",
    "Options",
    "Schedule",
    "batched_bound",
    "best_budget",
    "best_rounds",
    "best_schedule",
    "breakpoints",
    "exact_gains",
    "free_options",
    "least_left",
    "order_options",
    "pool_prefix",
    "price_of",
    "ratio_rounds",
    "table_prefix",
    "water_filling",
]
