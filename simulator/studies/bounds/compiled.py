"""Compiled loops over anchors, in float64.

Anchors of a sequence lie one after another: sequence i has those from start[i] to start[i + 1].
All in one file, because numba does not recompile a caller when a function elsewhere changes.
"""

from __future__ import annotations

import numpy as np

from simulator.compiling import njit

PLAIN = -1  # choice of a plain decoding step: no draft, one token


@njit(cache=True, nogil=True)
def cheapest(hit_rank, size, row, round_s, allowed):
    """The cheapest round that accepts exactly d draft tokens, over every width that may be used.

    Args:
        hit_rank: (n, D) rising ranks of the realised path. size: (n,) nodes that exist.
        row: (n,) row of `round_s` that prices the anchor. round_s: (R, W + 1) by width.
        allowed: (W + 1,) bool widths that may be verified; the whole order always may.

    Returns:
        (n, D + 1) seconds, inf where no width accepts exactly d, and (n, D + 1) widths, -1 there.
    """
    count, depths = hit_rank.shape
    seconds = np.full((count, depths + 1), np.inf)
    width = np.full((count, depths + 1), -1, np.int64)
    for s in range(count):
        accepted = 0
        for w in range(size[s] + 1):
            while accepted < depths and hit_rank[s, accepted] <= w:
                accepted += 1
            cost = round_s[row[s], w]
            if (allowed[w] or w == size[s]) and cost < seconds[s, accepted]:
                seconds[s, accepted] = cost
                width[s, accepted] = w
    return seconds, width


@njit(cache=True, nogil=True)
def backward(start, plain_s, round_s):
    """V(s) = min(plain(s) + V(s + 1), min_d [round(s, d) + V(min(s + d + 1, T))]), V(T) = 0.

    Args:
        start: (S + 1,). plain_s: (n,). round_s: (n, D + 1), inf = impossible.

    Returns:
        (n,) V and (n,) choices: d, or PLAIN; of equals the plain step, then the smaller d.
    """
    value = np.zeros(len(plain_s))
    choice = np.full(len(plain_s), PLAIN, np.int64)
    for i in range(len(start) - 1):
        first, end = start[i], start[i + 1]
        for s in range(end - 1, first - 1, -1):
            best = plain_s[s] + (value[s + 1] if s + 1 < end else 0.0)
            for d in range(round_s.shape[1]):
                after = s + d + 1
                cost = round_s[s, d] + (value[after] if after < end else 0.0)
                if cost < best:
                    best, choice[s] = cost, d
            value[s] = best
    return value, choice


@njit(cache=True, nogil=True)
def follow(start, choice):
    """The anchors at which rounds begin when every anchor has its choice: (n,) bool."""
    visited = np.zeros(len(choice), np.bool_)
    for i in range(len(start) - 1):
        s = start[i]
        while s < start[i + 1]:
            visited[s] = True
            s += 1 if choice[s] == PLAIN else choice[s] + 1
    return visited
