"""A latency profile from measured times: `NAME.csv`, `NAME.draft.csv` and the header `NAME.yaml`.

The format is that of `traces/latency/README.md`. Its reader belongs to the simulator, so what is
written here is checked value by value when it is read from the source.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.importers.files import Source, write_all

ENDINGS = (".draft.csv", ".yaml", ".csv")  # the .csv names the profile: last
_DIMENSIONS = ("batch", "kv_prefix_tokens")
PREFILL = ".prefill.csv"  # an earlier profile's, which would be read with this one
_SHAPE = ("layers", "hidden", "kv_heads", "head_dim", "params_b", "active_params_b")


@dataclass(frozen=True, slots=True, order=True)
class VerifyTime:
    """One timed target step."""

    batch: int
    kv_prefix_tokens: int
    packed_tokens_per_request: int
    ms: float

    @property
    def size(self) -> tuple[int, int, int]:
        return self.batch, self.kv_prefix_tokens, self.packed_tokens_per_request

    @property
    def packed_tokens_total(self) -> int:
        return self.batch * self.packed_tokens_per_request


@dataclass(frozen=True, slots=True, order=True)
class DraftTime:
    """One timed drafter step for `batch` requests."""

    batch: int
    kv_prefix_tokens: int
    ms: float

    @property
    def size(self) -> tuple[int, int]:
        return self.batch, self.kv_prefix_tokens


@dataclass(frozen=True, slots=True)
class Facts:
    """What the header says beside the times; everything else there is null."""

    hardware: str
    model: str
    num_gpus: int
    dtype: str
    attention: str
    timing: str
    source: str
    license: str
    kind: str
    captured_up_to: int  # packed tokens of the largest step that ran as a CUDA graph; 0: none
    format: str  # that the times were imported from


@dataclass(frozen=True, slots=True)
class Times:
    """What the sources hold, with what they lack."""

    verify: Sequence[VerifyTime]
    draft: Sequence[DraftTime]
    lacks: tuple[str, ...]


def write_profile(out: Path, facts: Facts, sources: Sequence[Source], times: Times) -> list[Path]:
    """Write the three files; returns their paths.

    Raises:
        InputError: a size that two sources have, or a path that cannot be written to.
    """
    _refuse_twice(out, times)
    fixed = _fixed(times)
    header = _header(facts, sources, times) | {"fixed": fixed}
    verify = [[*row.size, repr(row.ms), _regime(row, facts)] for row in sorted(times.verify)]
    draft = [[*row.size, repr(row.ms)] for row in sorted(times.draft)]
    verify_names = (*_DIMENSIONS, "packed_tokens_per_request", "verify_ms", "regime")
    paths = [out.with_suffix(ending) for ending in ENDINGS]
    writers = (
        lambda path: _write_table(path, (*_DIMENSIONS, "draft_ms"), draft, fixed),
        lambda path: _write_header(path, header),
        lambda path: _write_table(path, verify_names, verify, fixed),
    )
    write_all(dict(zip(paths, writers, strict=True)))
    out.with_suffix(PREFILL).unlink(missing_ok=True)
    return paths


def _refuse_twice(out: Path, times: Times) -> None:
    for name, rows in (("verify", times.verify), ("draft", times.draft)):
        seen = set()
        for row in rows:
            if row.size in seen:
                raise InputError(
                    f"{out}: two {name} times for batch, KV prefix and packed tokens {row.size}; "
                    "accepted: every size once in all files and options"
                )
            seen.add(row.size)


def _regime(row: VerifyTime, facts: Facts) -> str:
    return "cuda_graph" if row.packed_tokens_total <= facts.captured_up_to else "eager"


def _fixed(times: Times) -> dict[str, int]:
    """Dimensions that no table varies."""
    rows = [*times.verify, *times.draft]
    values = {name: {getattr(row, name) for row in rows} for name in _DIMENSIONS}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _header(facts: Facts, sources: Sequence[Source], times: Times) -> dict[str, Any]:
    names = (source.described for source in sources)
    files = "; ".join(f"{one['name']} (sha256 {one['sha256']})" for one in names)
    lacks = "; ".join(times.lacks)
    totals = {row.packed_tokens_total for row in times.verify}
    graphs = sorted(total for total in totals if total <= facts.captured_up_to)
    return {
        "hardware": facts.hardware,
        "num_gpus": facts.num_gpus,
        "model": facts.model,
        "model_shape": dict.fromkeys(_SHAPE),
        "dtype": facts.dtype,
        "attention": facts.attention,
        "engine": "cuda_graph + eager tail" if graphs else "eager",
        "graph_sizes": graphs,
        "timing": facts.timing,
        # summaries and tables cite `source`: what is missing goes with it
        "source": f"{facts.source} (imported from {facts.format}; lacks {lacks})",
        "kind": facts.kind,
        "license": facts.license,
        "notes": f"Lacks: {lacks}. Imported by `python -m traces import` from {files}.",
    }


def _write_header(path: Path, header: dict[str, Any]) -> None:
    from traces.plain_yaml import dump_yaml  # yaml is needed here alone

    text = dump_yaml(header)
    path.write_text(text, encoding="utf-8")


def _write_table(path: Path, names: Sequence[str], rows: list[list], fixed: dict) -> None:
    """A CSV table without the columns of fixed dimensions."""
    kept = [index for index, name in enumerate(names) if name not in fixed]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([names[index] for index in kept])
        writer.writerows([row[index] for index in kept] for row in rows)
