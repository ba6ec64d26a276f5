"""TreeSpark's ladder: which threshold is fastest at which load, against the published rungs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulator.inputs import load_recording
from simulator.paper.play import played, policy, setting
from simulator.paper.text import table
from simulator.paper.treespark_theta import published_theta, threshold

LOADS = (1, 2, 4, 8, 16, 32, 64)  # batches of the paper's cost table
THETAS = (0.02, 0.05, 0.15, 0.3)  # the published ones, and one beyond
CHAIN, LADDER, TUNED, PLAIN = "chain", "ladder", "tuned chain", "plain"
CLOSE = 0.98  # of the fastest arm


def arms() -> dict[str, dict[str, Any]]:
    """Policies by the name of their column."""
    fixed = {f"{theta:g}": threshold(theta) for theta in THETAS}
    chain = policy("treespark", ladder=[{"max_batch": None, "arm": "chain"}])
    others = {CHAIN: chain, LADDER: policy("treespark")}
    return fixed | others | {TUNED: policy("tuned_chain"), PLAIN: policy("autoregressive")}


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Throughput of every arm at every load, over that of the plain chain.

    Args:
        cfg: `trace` and `latency` are read.

    Raises:
        InputError: no closed loop, or what a policy refuses.
    """
    sampled = load_recording(cfg["trace"]).temperature > 0
    yield "TreeSpark (arXiv 2609.22098): thresholds over load, tokens/s over those of its chain arm"
    yield setting(cfg)
    yield ""
    speed = {
        load: {name: played(cfg, arm, load)["output_throughput"] for name, arm in arms().items()}
        for load in LOADS
    }
    names = list(arms())
    fixed = [f"theta {name}" for name in names[: len(THETAS)]]
    heads = ("requests", *fixed, *names[len(THETAS) :], "published\nrung", "fastest\narm")
    rows = []
    for load, found in speed.items():
        rung, best = rung_of(load, sampled), fastest(found)
        ratios = (found[name] / found[CHAIN] for name in names)
        rows.append([str(load), *(f"{ratio:.3f}" for ratio in ratios), rung, best])
    yield from table(heads, rows)
    yield ""
    yield from _beside(speed, sampled)


def rung_of(load: int, sampled: bool) -> str:
    """The published arm, by the name of its column."""
    theta = published_theta(load, sampled)
    return CHAIN if theta is None else f"{theta:g}"


def fastest(found: Mapping[str, float]) -> str:
    """Among the ladder's possible rungs: thetas and the chain arm; the first of equals."""
    rungs = [name for name in found if name not in (LADDER, TUNED, PLAIN)]
    return max(rungs, key=lambda name: found[name])


def _beside(speed: Mapping[int, Mapping[str, float]], sampled: bool) -> Iterator[str]:
    share = {load: f[rung_of(load, sampled)] / f[fastest(f)] for load, f in speed.items()}
    close = [str(load) for load, value in share.items() if value >= CLOSE]
    worst = min(share, key=lambda load: share[load])
    where = f"at {', '.join(close)} requests" if close else "nowhere"
    yield (
        f"The published rung is within {1 - CLOSE:.0%} of the fastest arm {where}; at {worst} it "
        f"loses most, {1 - share[worst]:.1%}."
    )
    ahead = ", ".join(f"{t:g}: {_ahead(speed[16], t):+.1%}" for t in THETAS)
    yield "theirs: at 16 requests sampled trees lose to the chain (second-hand)"
    kind = "sampled" if sampled else "fixed"
    yield f"  ours: {kind} trees at 16 against the chain, by theta: {ahead}"


def _ahead(found: Mapping[str, float], theta: float) -> float:
    return found[f"{theta:g}"] / found[CHAIN] - 1
