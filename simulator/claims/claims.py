"""What is claimed."""

from __future__ import annotations

from simulator.claims.verdict import Claim

CLAIMS = (
    Claim(
        "1",
        "Parent-conditioned ranking beats marginal ranking at every node budget "
        "(semi-autoregressive drafters)",
        "R at this many nodes, parent-conditioned / marginal",
        every=True,
    ),
    Claim(
        "2a",
        "A survival threshold beats a fixed budget of as many nodes per round",
        "R at this theta, threshold / fixed width in the same order, equal mean nodes",
    ),
    Claim(
        "2b",
        "A survival threshold serves faster than the nearest fixed budget",
        "tokens/s at this concurrency, TreeSpark with one theta / fixed width in the same order",
    ),
    Claim(
        "3a",
        "Alone: CAST's width from measured sizes beats its width from a straight line",
        "tokens/s at this concurrency, cast width=measured / cast",
    ),
    Claim(
        "3b",
        "Alone: the best of the measured staircase beats CaDDTree's first stop on a convex fit",
        "tokens/s at this concurrency, best of the staircase / caddtree",
    ),
    Claim(
        "3c",
        "In batches: the best of the measured staircase beats DSpark's first stop on chains",
        "tokens/s at this concurrency, adaptive_verification / dspark",
    ),
    Claim(
        "4a",
        "One common price of time beats per-step ratios",
        "tokens/s at this concurrency, priced_survival price=lambda / ratio",
    ),
    Claim(
        "4b",
        "Local prices beat per-step ratios",
        "tokens/s at this concurrency, priced_survival price=local / ratio",
    ),
    Claim(
        "4c",
        "Local prices beat one common price",
        "tokens/s at this concurrency, priced_survival price=local / lambda",
    ),
    Claim(
        "5",
        "A budget shared by the batch beats the same number for every request",
        "tokens/s at this concurrency, cast's shared budget / uniform in the same order",
    ),
    Claim(
        "6a",
        "At low load trees beat chains",
        "tokens/s at this concurrency, fixed_tree of 63 nodes / tuned_chain",
    ),
    Claim(
        "6b",
        "At high load chains beat trees",
        "tokens/s at this concurrency, tuned_chain / fixed_tree of 63 nodes",
    ),
    Claim(
        "7a",
        "Above temperature 0 fixed candidate sets beat sampled siblings, by thresholds",
        "tokens/s at this concurrency, treespark draws=fixed / sampled",
    ),
    Claim(
        "7b",
        "Above temperature 0 fixed candidate sets beat sampled siblings, by priced survival",
        "tokens/s at this concurrency, priced_survival draws=fixed / sampled",
    ),
)
