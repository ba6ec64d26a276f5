"""Print how far the latency profiles are from published decoding times (``task=published``).

`simulator.cost.published` holds the comparison; this is its printed form and command line.
``published.table`` names another table of a paper, see `simulator.paper`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from simulator import paper
from simulator.cost.published import (
    AVERAGED_APART,
    CONTEXT,
    Prediction,
    Report,
    evaluate,
    evaluate_all,
    fitted_terms,
    own_domain_error,
)
from traces.errors import InputError


def run(cfg: Mapping[str, Any] | None = None) -> None:
    """Print the comparison.

    Args:
        cfg: a configuration; its node ``published`` may name ``fit_domain`` (default gsm8k), or
            another ``table`` (one of `simulator.paper.TABLES`).

    Raises:
        InputError: an unknown domain or table, or what a table refuses.
    """
    cfg = cfg or {}
    node = cfg.get("published") or {}
    name = node.get("table", paper.DECODING)
    if name == paper.DECODING:
        text = lines(evaluate_all(node.get("fit_domain", "gsm8k")))
    else:
        text = paper.lines(name, cfg)
    print("\n".join(text))


def lines(reports: dict[str, list[Report]]) -> Iterator[str]:
    """Lines of the whole comparison; ``reports`` holds each setting's profiles, best first."""
    yield "Published decoding times (CAST, arXiv 2610.00321) against the cost model"
    yield f"Assumed context: {CONTEXT} tokens, the probes' KV prefix. * = fitted cell, not judged."
    for setting, candidates in reports.items():
        yield ""
        yield from _setting(setting, candidates)
    yield ""
    yield (
        f"{AVERAGED_APART}: ms per token is averaged over prompts and R over rounds, so R x ms per "
        "token is not the time of a round and its errors say little about the cost model."
    )


def _setting(setting: str, candidates: list[Report]) -> Iterator[str]:
    best = candidates[0]
    yield f"== {setting}"
    for report in candidates:
        yield (
            f"   profile {report.profile}: host constant {report.host_ms:+.3f} ms per round, "
            f"fitted on the chain of {report.fit_domain}; median |error| on that domain's trees "
            f"{own_domain_error(report):.1%}"
        )
    if len(candidates) > 1:
        yield f"   {best.profile} fits and is used below; {candidates[1].profile} does not."
    if best.host_ms < 0:
        yield "   The constant is negative: the probe ran slower than the decode; no overhead seen."
    yield from _cells(best)
    for report in candidates:
        yield from _summary(report)


def _cells(report: Report) -> Iterator[str]:
    yield (
        f"   {'domain':10}{'method':15}{'nodes':>5}{'R':>7}  {'ms/token':>9}{'predicted':>10}"
        f"{'error':>8}  {'gain':>6}{'predicted':>10}{'error':>8}  cost"
    )
    for item in report.predictions:
        cell = item.cell
        text = (
            f"   {cell.domain:10}{cell.method:15}{cell.nonroot_nodes:>5}"
            f"{cell.committed_round_length:>7.2f}  {cell.ms_per_token:>9.3f}"
            f"{item.ms_per_token:>10.3f}{item.error:>+8.1%}"
        )
        measured, predicted = report.gains(item)
        gain = f"  {measured:>6.3f}{predicted:>10.3f}{report.gain_error(item):>+8.1%}"
        source = item.source.name.lower()
        yield f"{text}{gain}  {source}{' *' if item.fitted else ''}"


def _summary(report: Report) -> Iterator[str]:
    judged = report.judged()
    trees = [item for item in judged if item.cell.method == "cast"]
    fitted = [item.cell for item in report.predictions if item.fitted]
    yield f"   summary, {report.profile}"
    names = ", ".join(f"{cell.domain} {cell.method} {cell.nonroot_nodes}" for cell in fitted)
    yield f"     fitted and excluded: {names}; judged: {len(judged)} cells"
    yield from _three(" ms per token", judged, lambda item: item.error)
    yield from _three(" gain over chain", trees, report.gain_error)
    plain = report.plain()
    yield (
        f"     plain decoding ({len(plain)} cells, no draft): {_spread([p.error for p in plain])}. "
        "The host constant does not apply: no draft, mask or KV gather, and the one-token probe "
        "holds the forward's own launch time."
    )
    yield from _terms(report)


def _three(
    what: str, items: list[Prediction], error: Callable[[Prediction], float]
) -> Iterator[str]:
    """All judged cells, then with and without the domain whose averages do not match."""
    apart = [error(item) for item in items if item.cell.domain == AVERAGED_APART]
    rest = [error(item) for item in items if item.cell.domain != AVERAGED_APART]
    yield f"    {what}: all {_spread(apart + rest)}"
    yield f"    {what}: without {AVERAGED_APART} {_spread(rest)}; {AVERAGED_APART} {_spread(apart)}"


def _terms(report: Report) -> Iterator[str]:
    """The constant against round + node + tree terms, both judged on unseen domains only."""
    host = fitted_terms(report)
    terms = evaluate(report.setting, report.profile, report.fit_domain, host=host)
    unseen = (report.fit_domain, AVERAGED_APART)
    constant = [p.error for p in report.judged() if p.cell.domain not in unseen]
    three = [p.error for p in terms.judged() if p.cell.domain not in unseen]
    yield (
        f"     round {host.round_s * 1e3:.3f} ms + node {host.node_s * 1e6:.1f} us + tree "
        f"{host.tree_step_s * 1e3:.3f} ms, fitted on every drafted cell of {report.fit_domain}: "
        f"other domains {_spread(three)}; the constant there {_spread(constant)}"
    )


def _spread(errors: list[float]) -> str:
    if not errors:
        return "no cells"
    sizes = np.abs(errors)
    return f"median |error| {np.median(sizes):.2%}, worst {sizes.max():.2%}"


def main() -> int:
    """Command line of ``python -m simulator.published``."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.published",
        description="Published decoding times against the cost model.",
    )
    parser.add_argument("--fit-domain", default="gsm8k", help="domain whose chain cell is fitted")
    try:
        run({"published": {"fit_domain": parser.parse_args().fit_domain}})
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
