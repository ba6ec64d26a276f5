"""Workload files people have: arrivals and lengths of requests, read lazily by column name.

file = open_workload("AzureLLMInferenceTrace_conv.csv")
played = scaled(file, time_scale=2.0, clip=Clip(max_output_tokens=512), limit=1000)
for rows in played:
    rows.time_s, rows.prompt_tokens, rows.output_tokens  # (n,) each, n at most 4096
played.report.describe()
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from traces.common.errors import InputError
from traces.workloads.csv import LAYOUTS, csv_source, listed, read_header
from traces.workloads.json import mooncake_source, sharegpt_source, token_count
from traces.workloads.rows import Rows, RowStream, Tally, WorkloadFile
from traces.workloads.scale import Clip, Scaled, WorkloadReport, scaled

FORMATS = (*LAYOUTS, "mooncake", "sharegpt")
_BY_SUFFIX = {".jsonl": "mooncake", ".ndjson": "mooncake", ".json": "sharegpt"}


def open_workload(
    path: str | PathLike[str],
    format: str = "auto",
    *,
    characters_per_token: float | None = None,
    tokenizer: str | PathLike[str] | None = None,
) -> WorkloadFile:
    """The requests of a file in one of FORMATS.

    `auto` goes by the suffix, and for .csv by the names in the header. A sharegpt file has texts:
    their tokens are counted by the tokenizer.json at `tokenizer`, or are
    ceil(characters / characters_per_token); one of the two must be given, and neither with
    another format. The beginning of the file is read; InputError, in one line, for one that is
    missing, of another kind or without the columns.
    """
    path = Path(path)
    if format not in ("auto", *FORMATS):
        raise InputError(f"format is {format!r}; accepted: auto, {', '.join(FORMATS)}")
    name = _format_of(path) if format == "auto" else format
    if name == "sharegpt":
        count = token_count(path, characters_per_token, tokenizer)
        return WorkloadFile(path, name, sharegpt_source(path, count))
    for option, value in (("characters_per_token", characters_per_token), ("tokenizer", tokenizer)):
        if value is not None:
            raise InputError(
                f"{path}: {option} is {value}, but {name} files count tokens; accepted: none"
            )
    source = mooncake_source(path) if name == "mooncake" else csv_source(path, LAYOUTS[name])
    return WorkloadFile(path, name, source)


def _format_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    line, header = read_header(path)  # a missing, empty or packed file is told as such
    if suffix != ".csv":
        raise InputError(
            f"{path}: no known suffix; accepted: .csv, {', '.join(_BY_SUFFIX)},"
            f" or a format of {', '.join(FORMATS)}"
        )
    found = [name for name, layout in LAYOUTS.items() if set(layout.required) <= set(header)]
    if len(found) == 1:
        return found[0]
    wanted = "; ".join(f"{name}: {', '.join(item.required)}" for name, item in LAYOUTS.items())
    what = f"columns of {' and '.join(found)}" if found else "columns of no known format"
    raise InputError(
        f"{path}: line {line}: {what}, has {listed(header)}; accepted: one of {wanted}"
    )


__all__ = [
    "FORMATS",
    "Clip",
    "RowStream",
    "Rows",
    "Scaled",
    "Tally",
    "WorkloadFile",
    "WorkloadReport",
    "open_workload",
    "scaled",
]
