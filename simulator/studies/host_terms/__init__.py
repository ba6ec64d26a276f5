"""`python -m analysis cost ROUNDS.csv --profile NAME`: what rounds take beyond a profile.

Measured rounds, one a line, leave host terms over when the profile's draft and verify are taken
out. They are fitted on a part of the rounds and judged on the rest, and written as a latency
configuration (`latency=FILE.yaml`).

The price of a round and the fit of its terms are those of `simulator.cost`, so this is a study; the
analysis, which neither simulates nor fits, only finds it by name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulator.studies.host_terms.fit import HostFit, Judged, fit_rounds
from simulator.studies.host_terms.rounds import read_rounds
from traces.common.errors import InputError
from traces.common.files import replacing
from traces.common.table import Part, Table, Title, emit
from traces.common.yaml import dump_yaml

CHARGED = {
    "round_s": "once per step that drafts",
    "request_s": "per request of a step that drafts",
    "node_s": "per draft node verified",
    "ordered_node_s": "per draft node put in order",
    "tree_step_s": "once per step that verifies trees",
    "tree_request_s": "per request of a step that verifies trees",
    "kv_move_token_s": "per draft node of a step that verifies trees",
    "plain_s": "once per plain decoding step",
    "plain_request_s": "per request of a plain decoding step",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "rounds",
        metavar="ROUNDS",
        type=Path,
        help="CSV with columns batch, width, round_ms, committed, and optionally draft_ms, "
        "context, tree, drafted, nodes, ordered, graph; or the folder of a run of task=serve",
    )
    parser.add_argument("--profile", required=True, help="a latency profile's name or .csv")
    parser.add_argument("--packing", choices=("ragged", "dense"), default="ragged")
    parser.add_argument(
        "--context",
        type=float,
        help="KV tokens before every root, where no column says (default: the profile's first)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.yaml", help="latency configuration")
    parser.add_argument(
        "--hold-out", type=float, default=0.3, help="share of rounds that judge (default: 0.3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of that share's draw (default: 0)")


def run(args: argparse.Namespace, _command: str = "") -> list[Path]:
    """Fit, print and, with --out, write.

    Raises:
        InputError: a bad file, profile or option.
    """
    share, seed, context, out = args.hold_out, args.seed, args.context, args.out
    for name, value, good, accepted in (
        ("--hold-out", share, 0 < share < 1, "above 0, below 1"),
        ("--seed", seed, seed >= 0, "at least 0"),
        ("--context", context, context is None or 0 < context < 1e12, "tokens above 0"),
    ):
        if not good:
            raise InputError(f"{name} is {value:g}; accepted: {accepted}")
    if out is not None and out.suffix != ".yaml":
        raise InputError(f"--out is {out}; accepted: a path that ends in .yaml")
    rounds = read_rounds(args.rounds)
    found = fit_rounds(rounds, args.profile, args.packing, context, hold_out=share, seed=seed)
    emit(_parts(found), "table")
    return [] if out is None else [write_latency(out, found)]


def write_latency(path: Path, fit: HostFit) -> Path:
    """Write the configuration.

    The same rounds, profile and options give the same bytes: no date is in it.

    Raises:
        InputError: a folder that cannot be written to.
    """
    heading = (
        "# Host terms fitted to measured rounds by `python -m analysis cost`. Use it with\n"
        f"# latency=path/to/{path.name}; settings that come after that word replace these.\n"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(heading + dump_yaml(_node(path.stem, fit)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a path to write to") from error
    return path


def _node(name: str, fit: HostFit) -> dict[str, Any]:
    """The configuration in types that YAML knows."""
    host = {term: float(f"{seconds:.6g}") for term, seconds in fit.host.items()}
    judged = fit.judged[0]
    return {
        "name": name,
        "profile": fit.profile,
        "strict": False,
        "packing": fit.packing,
        "draft_steps": 1,
        "mode": None,
        "graph_sizes": None,
        "cliffs": None,
        "prefill": None,
        "host": host | {"overlap": False},
        "provenance": {
            "rounds": fit.rounds.path.name,
            "sha256": fit.rounds.sha256,
            "rows": len(fit.rounds),
            "fitted": fit.fitted,
            "seed": fit.seed,
            "hold_out": fit.hold_out,
            "profile": fit.profile,
            "context": fit.context,
            "held_out_median_error": round(judged.median, 6),
            "held_out_p90_error": round(judged.p90, 6),
        },
    }


def _parts(fit: HostFit) -> Iterator[Part]:
    """Terms, errors on the held-out rounds, and what to know about both."""
    yield Title(f"{fit.rounds.path}: {len(fit.rounds)} rounds beside the profile {fit.profile}")
    terms = [[name, f"{s * 1e6:.3f}", CHARGED[name]] for name, s in fit.host.items()]
    yield Table(["host term", "microseconds", "charged"], terms, align="lrl")
    errors = [
        _cells("all" if one.batch is None else f"batch {one.batch}", one) for one in fit.judged
    ]
    errors.append(_cells("without host terms", fit.bare))
    heads = ["held out", "rounds", "median error", "p90 error", "sum of times"]
    yield Table(heads, errors, notes=list(_notes(fit)))


def _cells(name: str, judged: Judged) -> list[str]:
    errors = (f"{judged.median:.2%}", f"{judged.p90:.2%}", f"{judged.bias:+.2%}")
    return [name, str(judged.rounds), *errors]


def _notes(fit: HostFit) -> Iterator[str]:
    measured, predicted = fit.tokens_per_s
    if fit.faster:  # host terms are not negative, so they cannot explain such rounds
        yield (
            f"warning: {fit.faster} of {len(fit.rounds)} rounds were faster than the profile's "
            f"draft and verify alone (in the median {fit.faster_ratio:.0%} of that time): no host "
            "term explains them; check that profile, packing, context and milliseconds are the "
            "engine's"
        )
    yield (
        f"fitted on {fit.fitted} rounds, judged on the other {len(fit.rounds) - fit.fitted} "
        f"(seed {fit.seed}): {predicted:.1f} tokens/s predicted there, {measured:.1f} measured"
    )
    yield f"context: {fit.context}"
    if fit.merged:
        yield f"no terms of their own, these rounds do not tell them apart: {', '.join(fit.merged)}"
    if fit.rounds.tree is None and fit.rounds.drafted.any():
        yield "no column tree: what trees cost the host is part of the other terms"
    if fit.draft_ratio is not None:
        yield (
            f"drafts as the file states them; the profile's are {fit.draft_ratio:.2f} times as "
            "long, and simulations use those"
        )
    if fit.beyond:
        yield f"{fit.beyond:.0%} of the rounds lie outside the profile's table"
