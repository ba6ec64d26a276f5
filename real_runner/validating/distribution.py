"""Whether a policy leaves the target's distribution alone: two samples of texts, one test.

Draws must be independent: keyed draws emit the same text under every policy, so the test would
compare a sample with itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from traces.recordings.recording import Recording

LEAST = 5.0  # expected count of a category in the smaller sample; rarer ones are put together


@dataclass(frozen=True, slots=True)
class TwoSample:
    """Pearson's test of homogeneity of two samples over the same categories."""

    statistic: float
    degrees: int
    p_value: float

    @property
    def tested(self) -> bool:
        """Whether there were two categories or more."""
        return self.degrees > 0

    def __str__(self) -> str:
        return f"chi2 {self.statistic:.1f} on {self.degrees}, p {self.p_value:.3g}"


@dataclass(frozen=True, slots=True)
class PrefixTests:
    """The first token, the second given the first, and so on; corrected for their number."""

    tests: tuple[TwoSample, ...]

    @property
    def p_value(self) -> float:
        """Bonferroni's: the smallest, times the number of tests that compared anything."""
        values = [test.p_value for test in self.tests if test.tested]
        return min(1.0, len(values) * min(values)) if values else 1.0

    def __str__(self) -> str:
        return f"p {self.p_value:.3g} ({'; '.join(map(str, self.tests))})"


def prefix_tests(groups: list[tuple[list[tuple], list[tuple]]]) -> PrefixTests:
    """`two_sample` on the first token of every tuple, on the second given the first, and so on.

    Each test is its own: what the tokens before it are has been compared by the tests before.
    """
    longest = max(len(one) for pair in groups for side in pair for one in side)
    return PrefixTests(
        tuple(
            two_sample([split for pair in groups for split in _behind(*pair, before)])
            for before in range(longest)
        )
    )


def _behind(
    ours: list[tuple], theirs: list[tuple], before: int
) -> list[tuple[list[tuple], list[tuple]]]:
    """The tokens behind the first `before`, apart for every frequent prefix; rare ones together.

    Where both samples have one law, so have their tokens behind the same prefixes.
    """
    visits = Counter(one[:before] for side in (ours, theirs) for one in side)
    share = min(len(ours), len(theirs)) / (len(ours) + len(theirs))
    often = {prefix for prefix, count in visits.items() if count * share >= 2 * LEAST}
    split: dict[tuple | None, tuple[list[tuple], list[tuple]]] = {}
    for index, side in enumerate((ours, theirs)):
        for one in side:
            prefix = one[:before] if one[:before] in often else None
            split.setdefault(prefix, ([], []))[index].append(one[before : before + 1])
    return list(split.values())


def two_sample(groups: list[tuple[list[tuple], list[tuple]]]) -> TwoSample:
    """Test all groups (prompts) together; each holds a sample of token tuples from either side.

    Categories are the tuples that either sample holds often enough; the others of a group are one
    category. Statistics and degrees of freedom of independent groups add up.
    """
    statistic, degrees = 0.0, 0
    for ours, theirs in groups:
        one, more = _one_group(ours, theirs)
        statistic, degrees = statistic + one, degrees + more
    tail = torch.special.gammaincc(
        torch.tensor(degrees / 2, dtype=torch.float64),
        torch.tensor(statistic / 2, dtype=torch.float64),
    )
    return TwoSample(statistic, degrees, float(tail) if degrees else 1.0)


def _one_group(ours: list[tuple], theirs: list[tuple]) -> tuple[float, int]:
    counts = Counter(ours), Counter(theirs)
    sizes = len(ours), len(theirs)
    pooled = counts[0] + counts[1]
    share = min(sizes) / sum(sizes)
    # The choice looks at the pooled counts alone, which say nothing about a difference.
    often = sorted(key for key, count in pooled.items() if count * share >= LEAST)
    rows = [[count[key] for key in often] for count in counts]
    rest = [size - sum(row) for size, row in zip(sizes, rows, strict=True)]
    if sum(rest) * share >= LEAST:
        rows = [[*row, left] for row, left in zip(rows, rest, strict=True)]
    statistic, used = 0.0, [sum(row) for row in rows]
    if min(used) == 0 or len(rows[0]) < 2:
        return 0.0, 0
    for a, b in zip(*rows, strict=True):
        for value, size in ((a, used[0]), (b, used[1])):
            expected = (a + b) * size / sum(used)
            statistic += (value - expected) ** 2 / expected
    return statistic, len(rows[0]) - 1


def most_open(recording: Recording, anchors: np.ndarray, samples: int) -> int:
    """The anchor behind which a test of `samples` draws can see most: an anchor index.

    It has the largest entropy of the target's next token, tokens too rare for a category of their
    own counted as one. (Where the next token is all but certain, no verifier can be found wrong.)
    """
    rows = recording.target_row(anchors, np.zeros(len(anchors), np.int64))
    law = np.exp(recording.target_logp(rows))  # (n, V)
    law = np.where(law * samples >= LEAST, law, 0.0)
    law = np.concatenate([law, 1 - law.sum(1, keepdims=True)], axis=1).clip(0)
    entropy = -(law * np.log(np.where(law > 0, law, 1.0))).sum(1)
    return int(anchors[entropy.argmax()])
