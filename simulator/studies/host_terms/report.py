"""A fit of host terms: as a latency configuration with where its numbers come from, and printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulator.studies.host_terms.fit import HostFit, Judged
from traces.common.errors import InputError
from traces.common.files import replacing
from traces.common.table import Part, Table, Title, emit
from traces.common.yaml import dump_yaml


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
            temporary.write_text(heading + dump_yaml(node_of(path.stem, fit)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a path to write to") from error
    return path


def node_of(name: str, fit: HostFit) -> dict[str, Any]:
    """The configuration in types that YAML knows."""
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
        "host": {term: float(f"{seconds:.6g}") for term, seconds in fit.host.items()}
        | {"overlap": False},
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


def print_fit(fit: HostFit) -> None:
    """Terms, errors on the held-out rounds, and what to know about both."""
    emit(_parts(fit), "table")


def _parts(fit: HostFit) -> Iterator[Part]:
    yield Title(f"{fit.rounds.path}: {len(fit.rounds)} rounds beside the profile {fit.profile}")
    terms = [[name, f"{s * 1e6:.3f}", CHARGED[name]] for name, s in fit.host.items()]
    yield Table(["host term", "microseconds", "charged"], terms, align="lrl")
    errors = [_cells(judged) for judged in fit.judged]
    errors.append(["without host terms", *_cells(fit.bare)[1:]])
    heads = ["held out", "rounds", "median error", "p90 error", "sum of times"]
    yield Table(heads, errors, notes=list(_notes(fit)))


def _cells(judged: Judged) -> list[str]:
    name = "all" if judged.batch is None else f"batch {judged.batch}"
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
