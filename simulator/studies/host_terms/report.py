"""A fit of host terms as a latency configuration, with where its numbers come from."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.studies.host_terms.fit import HostFit, Judged
from traces.common.errors import InputError
from traces.common.table import PIPED_WIDTH


def write_latency(path: Path, fit: HostFit) -> Path:
    """Write the configuration under a temporary name and rename it.

    The same rounds, profile and options give the same bytes: no date is in it.

    Raises:
        InputError: a folder that cannot be written to.
    """
    from traces.common.yaml import dump_yaml

    text = dump_yaml(node_of(path.stem, fit))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(_heading(path) + text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a path to write to") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _heading(path: Path) -> str:
    return (
        "# Host terms fitted to measured rounds by `python -m analysis cost`. Use it with\n"
        f"# latency=path/to/{path.name}; settings that come after that word replace these.\n"
    )


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


# ---------------- A fit of host terms as text.


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
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    title = f"{fit.rounds.path}: {len(fit.rounds)} rounds beside the profile {fit.profile}"
    console.print(Text(title, style="bold underline"), soft_wrap=True)
    terms = _table("host term", "microseconds", "charged")
    for name, seconds in fit.host.items():
        terms.add_row(name, f"{seconds * 1e6:.3f}", CHARGED[name])
    console.print(terms)
    errors = _table("held out", "rounds", "median error", "p90 error", "sum of times")
    for judged in fit.judged:
        errors.add_row(*_cells(judged))
    errors.add_row("without host terms", *_cells(fit.bare)[1:])
    console.print(errors)
    for note in _notes(fit):
        console.print(Text(f"  {note}", style="italic"), soft_wrap=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name == "charged" else "right")
    return table


def _cells(judged: Judged) -> tuple[str, ...]:
    name = "all" if judged.batch is None else f"batch {judged.batch}"
    errors = (f"{judged.median:.2%}", f"{judged.p90:.2%}", f"{judged.bias:+.2%}")
    return (name, str(judged.rounds), *errors)


def _too_fast(fit: HostFit) -> list[str]:
    """Host terms are not negative, so they cannot explain such rounds."""
    if not fit.faster:
        return []
    return [
        f"warning: {fit.faster} of {len(fit.rounds)} rounds were faster than the profile's draft "
        f"and verify alone (in the median {fit.faster_ratio:.0%} of that time): no host term "
        "explains them; check that profile, packing, context and milliseconds are the engine's"
    ]


def _notes(fit: HostFit) -> list[str]:
    measured, predicted = fit.tokens_per_s
    notes = [
        *_too_fast(fit),
        f"fitted on {fit.fitted} rounds, judged on the other {len(fit.rounds) - fit.fitted} "
        f"(seed {fit.seed}): {predicted:.1f} tokens/s predicted there, {measured:.1f} measured",
        f"context: {fit.context}",
    ]
    if fit.merged:
        notes.append(
            f"no terms of their own, these rounds do not tell them apart: {', '.join(fit.merged)}"
        )
    if fit.rounds.tree is None and fit.rounds.drafted.any():
        notes.append("no column tree: what trees cost the host is part of the other terms")
    if fit.draft_ratio is not None:
        notes.append(
            f"drafts as the file states them; the profile's are {fit.draft_ratio:.2f} times as "
            "long, and simulations use those"
        )
    if fit.beyond:
        notes.append(f"{fit.beyond:.0%} of the rounds lie outside the profile's table")
    return notes
