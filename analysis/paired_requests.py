"""The requests of one finished run, as `python -m analysis paired` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from analysis.checks import NUMBER, TEXT, check_key
from analysis.summaries import Summary
from traces.common.columns import (
    COUNTS,
    FLAGS,
    SECONDS,
    SOME_SECONDS,
    WHOLE,
    check_rising,
    read_columns,
)
from traces.common.errors import InputError

FILE_NAME = "requests.parquet"
_COLUMNS = {
    "sequence": WHOLE,
    "arrival_s": SECONDS,
    "first_token_s": SOME_SECONDS,  # none of a request that was there before
    "finish_s": SECONDS,
    "output_tokens": COUNTS,
    "measured": FLAGS,
    "window_tokens": WHOLE,
}
_WINDOW = {"window.kind": TEXT, "window.start_s": NUMBER, "window.end_s": NUMBER}
# Of a run that rejected some: they never end, and emit nothing.
_WITH_REJECTED = _COLUMNS | {
    "finish_s": SOME_SECONDS,
    "output_tokens": WHOLE,
    "rejected": FLAGS,
}

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run's summary, the columns of its requests, and which of them count."""

    summary: Summary
    requests: Columns
    served: np.ndarray  # (N,) by this run and the one beside it


def read_run(run: Summary) -> Run:
    """The run with its requests, in the order in which they were numbered.

    Raises:
        InputError: a summary without a window, or requests that are damaged.
    """
    for name, check in _WINDOW.items():
        try:
            check_key(run.data, name, check)
        except InputError as error:
            raise InputError(f"{run.path}: {error}") from None
    path = run.path.with_name(FILE_NAME)
    rejected = int(run.number("rejected") or 0)
    kinds = _WITH_REJECTED if rejected else _COLUMNS
    requests = read_columns(path, kinds, "the requests", run.data["num_prompts"])
    for low, high in combinations(("arrival_s", "first_token_s", "finish_s"), 2):
        check_rising(path, requests, low, high)
    check_rising(path, requests, "window_tokens", "output_tokens")
    refused = requests.get("rejected", np.zeros(len(requests["sequence"]), bool))
    _check_rejected(path, requests, refused, rejected)
    return Run(run, requests, ~refused)


def _check_rejected(path: Path, requests: Columns, refused: np.ndarray, count: int) -> None:
    """The rejected ones are as many as the summary says, and they alone never end."""
    found = int(np.count_nonzero(refused))
    if found != count:
        raise InputError(f"{path}: {found} rejected requests, expected the summary's {count}")
    for name, right in (
        ("finish_s", np.isnan(requests["finish_s"]) == refused),
        ("output_tokens", (requests["output_tokens"] == 0) == refused),
        ("measured", ~(requests["measured"] & refused)),
    ):
        if not right.all():
            row = int(right.argmin())
            kind = "a rejected" if refused[row] else "a served"
            raise InputError(
                f"{path}: row {row}, column {name}: {requests[name][row]}, expected that of "
                f"{kind} request"
            )
