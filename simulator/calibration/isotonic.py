"""One monotone curve from estimated to observed survival, by pooling adjacent violators.

The pools are those of isotonic regression. The curve runs through their centres, as in centred
isotonic regression (Oron and Flournoy, Stat. Biopharm. Res. 2017): flat steps would forget which
of two nodes is the likelier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from traces.common.errors import InputError

# ---------------- How many digits fitted numbers keep.


# Below what the order of a sum can change, so that a fit gives the same file on every machine.
FITTED = 12
SHOWN = 9  # of what is only looked at


def rounded(values: Iterable[float], digits: int = FITTED) -> list[float]:
    """The numbers to `digits` significant ones."""
    return [float(f"{float(value):.{digits}g}") for value in values]


LEAST = 1e-9  # no survival is zero: logarithms of it are taken
MAX_KNOTS = 200


@dataclass(frozen=True, slots=True)
class IsotonicMap:
    """Survival -> survival: straight lines between knots, constant beyond the last.

    sigma: rising from 0, at most 1. survival: not falling, in [1e-9, 1]. InputError otherwise.
    """

    sigma: tuple[float, ...]
    survival: tuple[float, ...]

    def __post_init__(self) -> None:
        x, y = np.asarray(self.sigma, np.float64), np.asarray(self.survival, np.float64)
        if not (len(x) == len(y) and 2 <= len(x) <= MAX_KNOTS):
            raise InputError(
                f"{len(x)} sigma and {len(y)} survival, accepted: as many, 2 to {MAX_KNOTS} knots"
            )
        if not (x[0] == 0 and x[-1] <= 1 and (np.diff(x) > 0).all()):
            raise InputError("sigma does not rise from 0 to at most 1")
        if not (y[0] >= LEAST and y[-1] <= 1 and (np.diff(y) >= 0).all()):
            raise InputError(f"survival falls, or is not in {LEAST} to 1")

    def __call__(self, sigma: np.ndarray) -> np.ndarray:
        """Calibrated survival, any shape; 0, the survival of an unused slot, stays 0."""
        sigma = np.asarray(sigma, np.float64)
        return np.where(sigma > 0, np.interp(sigma, self.sigma, self.survival), 0.0)


def fit_isotonic(sigma: np.ndarray, label: np.ndarray) -> IsotonicMap:
    """The curve of `label` (n,) of 0 and 1 over `sigma` (n,) in [0, 1]; a node of sigma 0 is none.

    Every node counts once, so each pool's value times its nodes is its number of hits: sums of
    survivals are expected hits, up to what lines between centres change (under 1 %). The lowest
    pool takes in the next until it holds a hit, and both ends of the curve run straight to (0, 0)
    and (1, 1): what was never seen is unlikely, not impossible. Pools beyond 198 are merged.

    Raises InputError without a single hit.
    """
    sigma, label = np.asarray(sigma, np.float64).ravel(), np.asarray(label, np.float64).ravel()
    sigma, label = sigma[sigma > 0], label[sigma > 0]
    if not label.any():
        raise InputError(f"fit_isotonic: none of {len(label)} nodes accepted, needs at least one")
    value, inverse = np.unique(sigma, return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)  # nodes of the same sigma
    hits = np.bincount(inverse, weights=label)
    moments = np.stack([weight, hits, weight * value])
    pools = np.add.reduceat(moments, pooled(hits, weight), axis=1)
    empty = int(np.argmax(pools[1] > 0))  # pools below the first with a hit
    lowest = pools[:, : empty + 1].sum(axis=1, keepdims=True)
    weight, hits, total = merged(np.hstack([lowest, pools[:, empty + 1 :]]), MAX_KNOTS - 2)
    return _through(total / weight, hits / weight)


def _through(x: np.ndarray, y: np.ndarray) -> IsotonicMap:
    """The curve through pool centres (n,) and both ends; of centres that are equal, the first."""
    top = [1.0] if x[-1] < 1 else []
    x, y = rounded([0.0, *x, *top]), rounded([LEAST, *np.maximum(y, LEAST), *top])
    rising = np.append(True, np.diff(x) > 0)
    return IsotonicMap(*(tuple(np.asarray(side)[rising].tolist()) for side in (x, y)))


def pooled(total: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """First index of every pool of the isotonic regression of total / weight: int64, from 0.

    total, weight (n,), weight > 0: sums of the values at each place and their weights.
    """
    from scipy.optimize import isotonic_regression  # takes 0.2 s to import

    blocks = isotonic_regression(total / weight, weights=weight).blocks
    return blocks[:-1].astype(np.int64)


def merged(pools: np.ndarray, most: int) -> np.ndarray:
    """`pools` (3, n) of weight, hits and weighted sigma, with neighbours added up to `most`.

    Each time the two whose merging raises the weighted squared error least; their order stays.
    """
    pools = pools.copy()
    while pools.shape[1] > most:
        weight, mean = pools[0], pools[1] / pools[0]
        loss = weight[1:] * weight[:-1] / (weight[1:] + weight[:-1]) * np.diff(mean) ** 2
        at = int(np.argmin(loss))
        pools[:, at] += pools[:, at + 1]
        pools = np.delete(pools, at + 1, axis=1)
    return pools
