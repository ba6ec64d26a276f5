"""Two policies at the same loads: ratio, difference and their intervals over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.paired_match import Pair
from analysis.paired_runs import THROUGHPUT, prompt_sums
from traces.common.errors import InputError
from traces.common.intervals import (
    Interval,
    Sums,
    interval,
    log_ratios,
    paired_difference,
    paired_ratio,
    prompts_of,
    resampled_prompts,
)


@dataclass(frozen=True, slots=True)
class Row:
    """A and B at one load."""

    pairs: Sequence[Pair]
    a: Sums
    b: Sums
    requests: tuple[int, int]
    ratio: Interval
    difference: Interval
    faster: int  # prompts
    both: int  # prompts that both have a value for

    @property
    def left_out(self) -> int:
        """Requests of all seeds that A or B rejected."""
        return sum(pair.left_out for pair in self.pairs)


def compare_pairs(
    groups: Sequence[Sequence[Pair]], metric: str, resamples: int, seed: int
) -> list[Row]:
    """One row per group of pairs; all share the prompts of one setting and their resamples."""
    served = [pair.a.requests["sequence"] for pairs in groups for pair in pairs]
    prompts = np.unique(np.concatenate(served))
    return [_row(pairs, metric, prompts, resamples, seed) for pairs in groups]


def _row(pairs: Sequence[Pair], metric, prompts, resamples: int, seed: int) -> Row:
    a, ours = prompt_sums((pair.a for pair in pairs), metric, prompts)
    b, theirs = prompt_sums((pair.b for pair in pairs), metric, prompts)
    if not (a.per.any() and b.per.any()):
        where = pairs[0].a.summary.path.parent
        raise InputError(f"{where}: no request has a {metric}; accepted: runs of more requests")
    both = (a.per > 0) & (b.per > 0)
    gain = a.amount[both] / a.per[both] - b.amount[both] / b.per[both]
    faster = np.count_nonzero(gain > 0 if metric == THROUGHPUT else gain < 0)
    return Row(
        pairs=pairs,
        a=a,
        b=b,
        requests=(ours, theirs),
        ratio=paired_ratio(a, b, resamples, seed),
        difference=paired_difference(a, b, resamples, seed),
        faster=int(faster),
        both=int(np.count_nonzero(both)),
    )


def geometric_mean(rows: Sequence[Row], resamples: int, seed: int) -> Interval:
    """Of the ratio over the loads of one setting; every load sees the same resample of prompts."""
    weights = resampled_prompts(len(rows[0].a.per), resamples, seed)
    value = np.exp(np.mean([np.log(row.ratio.value) for row in rows]))
    draws = np.mean([log_ratios(row.a, row.b, weights) for row in rows], axis=0)
    prompts = max(prompts_of(row.a, row.b) for row in rows)
    return interval(float(value), np.exp(draws), prompts)
