"""A fit of host terms as text."""

from __future__ import annotations

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.cost_fit import Fit, Judged
from analysis.tables import PIPED_WIDTH

PAID = {
    "round_s": "every step that drafts",
    "request_s": "each request of such a step",
    "node_s": "each draft node verified",
    "ordered_node_s": "each draft node put in order",
    "tree_step_s": "every step that verifies trees",
    "tree_request_s": "each request of such a step",
    "kv_move_token_s": "each draft node of such a step",
    "plain_s": "every plain decoding step",
    "plain_request_s": "each request of such a step",
}


def print_fit(fit: Fit) -> None:
    """Terms, errors on the held-out rounds, and what to know about both."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    title = f"{fit.rounds.path}: {len(fit.rounds)} rounds beside the profile {fit.profile}"
    console.print(Text(title, style="bold underline"), soft_wrap=True)
    terms = _table("host term", "microseconds", "paid by")
    for name, seconds in fit.host.items():
        terms.add_row(name, f"{seconds * 1e6:.3f}", PAID[name])
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
        table.add_column(name, justify="left" if name == "paid by" else "right")
    return table


def _cells(judged: Judged) -> tuple[str, ...]:
    name = "all" if judged.batch is None else f"batch {judged.batch}"
    errors = (f"{judged.median:.2%}", f"{judged.p90:.2%}", f"{judged.bias:+.2%}")
    return (name, str(judged.rounds), *errors)


def _notes(fit: Fit) -> list[str]:
    measured, predicted = fit.tokens_per_s
    notes = [
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
