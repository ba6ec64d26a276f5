"""Whole schedules of a lone request: the best of all (O2, O3), and the best round by round (O1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.studies.bounds.options import Options

PLAIN = -1  # choice of a plain decoding step, as in `compiled`
_ITERATIONS, _CLOSE = 100, 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A choice at every anchor, and what following it from the first costs each sequence."""

    options: Options
    choice: np.ndarray  # (n,) draft tokens accepted, PLAIN = a plain step
    visited: np.ndarray  # (n,) bool: a round begins there
    seconds: np.ndarray  # (S,)

    @property
    def width(self) -> np.ndarray:
        """Nodes of every round, in the order of the anchors; 0 for plain steps: (rounds,)."""
        choice = self.choice[self.visited]
        width = self.options.width[self.visited, np.maximum(choice, 0)]
        return np.where(choice == PLAIN, 0, width)

    @property
    def drafted(self) -> np.ndarray:
        """Whether a round drafts: (rounds,)."""
        return self.choice[self.visited] != PLAIN


def least_left(options: Options) -> np.ndarray:
    """V(s), the least seconds from every anchor to the end of its sequence: (n,).

    A round from s to s' takes at least V(s) - V(s').
    """
    from simulator.studies.bounds.compiled import backward

    return backward(options.start, options.plain_s, options.round_s)[0]


def best_schedule(options: Options) -> Schedule:
    """The fastest schedule (policies' O2 with `order_options`, O3 with `free_options`).

    V(s) = min over plain steps and rounds of [their seconds + V(where they land)], V(T) = 0: no
    policy that has these options is faster on any sequence.
    """
    from simulator.studies.bounds.compiled import backward

    _, choice = backward(options.start, options.plain_s, options.round_s)
    return _followed(options, choice)


def ratio_rounds(options: Options) -> Schedule:
    """O1: every round the width of the most tokens per second, (1 + a) / R.

    The best of single rounds, NOT a bound: a round that looks worse may land better.
    """
    gain, seconds = _rounds(options)
    return _followed(options, np.argmax(gain / seconds, axis=1) + PLAIN)


def best_rounds(options: Options, price: float) -> Schedule:
    """O1 at a price: every round the width of the largest 1 + a - price * R; NOT a bound.

    Args:
        price: tokens per second that a second must earn, above 0.
    """
    gain, seconds = _rounds(options)
    return _followed(options, np.argmax(gain - price * seconds, axis=1) + PLAIN)


def price_of(options: Options) -> float:
    """The price for `best_rounds` that its rounds earn: price <- tokens / seconds (Dinkelbach).

    Starts from plain decoding. Rounds move their successors, so this need not settle: of the
    prices met, the one whose rounds earned most is returned.
    """
    tokens = int(options.start[-1])
    price = tokens / float(options.plain_s.sum())
    met: dict[float, float] = {}  # price: earned
    for _ in range(_ITERATIONS):
        earned = met[price] = tokens / float(best_rounds(options, price).seconds.sum())
        if abs(earned - price) <= _CLOSE * price:
            break
        price = earned
    return max(met, key=lambda price: (met[price], price))


def _rounds(options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that plain steps and rounds commit, and their seconds: two (n, D + 2)."""
    depths = options.round_s.shape[1] - 1
    gain = np.concatenate([[1], np.arange(1, depths + 2)])
    seconds = np.concatenate([options.plain_s[:, None], options.round_s], axis=1)
    return np.minimum(gain, options.left[:, None]), seconds


def _followed(options: Options, choice: np.ndarray) -> Schedule:
    from simulator.studies.bounds.compiled import follow

    visited = follow(options.start, choice)
    rounds_s = options.round_s[np.arange(len(choice)), np.maximum(choice, 0)]
    seconds = np.where(choice == PLAIN, options.plain_s, rounds_s)
    begun = np.concatenate([[0.0], np.cumsum(np.where(visited, seconds, 0.0))])
    return Schedule(options, choice, visited, np.diff(begun[options.start]))
