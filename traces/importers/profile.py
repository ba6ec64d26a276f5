"""A latency profile from measured times: `NAME.csv`, `NAME.draft.csv` and the header `NAME.yaml`.

The format is that of `traces/latency/README.md`. Its reader belongs to the simulator, so what is
written here is checked value by value when it is read from the source.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.common.errors import InputError
from traces.importers.files import InputFile, check_out, printable, write_all
from traces.importers.node import MOST_MS

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
class ProfileFacts:
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


def write_profile(
    out: Path, facts: ProfileFacts, sources: Sequence[InputFile], times: Times
) -> list[Path]:
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


def _regime(row: VerifyTime, facts: ProfileFacts) -> str:
    return "cuda_graph" if row.packed_tokens_total <= facts.captured_up_to else "eager"


def _fixed(times: Times) -> dict[str, int]:
    """Dimensions that no table varies."""
    rows = [*times.verify, *times.draft]
    values = {name: {getattr(row, name) for row in rows} for name in _DIMENSIONS}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _header(facts: ProfileFacts, sources: Sequence[InputFile], times: Times) -> dict[str, Any]:
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
    from traces.common.yaml import dump_yaml

    text = dump_yaml(header)
    path.write_text(text, encoding="utf-8")


def _write_table(path: Path, names: Sequence[str], rows: list[list], fixed: dict) -> None:
    """A CSV table without the columns of fixed dimensions."""
    kept = [index for index, name in enumerate(names) if name not in fixed]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([names[index] for index in kept])
        writer.writerows([row[index] for index in kept] for row in rows)


# ---------------- Options that several formats share.


def checked_texts(args: argparse.Namespace, names: Iterable[str]) -> dict[str, str | None]:
    """Options that are lines of text, by name; None for one that is not given.

    Raises:
        InputError: an empty text, or one of several lines.
    """
    texts = {}
    for name in names:
        text = getattr(args, name)
        if text is not None and not (text.strip() and text.strip().isprintable()):
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} is {text!r}; accepted: a line of text")
        texts[name] = None if text is None else text.strip()
    return texts


def checked_count(option: str, value: int | None, most: int = 10**9) -> int | None:
    """A whole number from 1, or None where it is not given; InputError otherwise."""
    if value is not None and not 1 <= value <= most:
        raise InputError(f"{option} is {value}; accepted: a whole number from 1 to {most}")
    return value


KINDS = ("measured", "modelled")
_TEXTS = ("hardware", "model", "dtype", "attention", "timing", "source", "license")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Facts of the header; those that are not given are null or "unstated"."""
    parser.add_argument("--hardware", required=True, help="GPU that it was timed on")
    parser.add_argument("--model", required=True, help="target model")
    parser.add_argument("--num-gpus", required=True, type=int)
    parser.add_argument("--dtype", required=True, help="such as bfloat16")
    parser.add_argument("--source", required=True, help="who published the times, and where")
    parser.add_argument("--attention", default="unstated", help="attention path")
    parser.add_argument("--timing", default="unstated", help="how it was timed")
    parser.add_argument("--license", default="unstated", help="terms of the numbers")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument(
        "--captured-up-to",
        type=int,
        metavar="TOKENS",
        help="steps of up to so many packed tokens ran as CUDA graphs (default: none, eager)",
    )


def read_options(args: argparse.Namespace, sources: Sequence[InputFile]) -> ProfileFacts:
    """The header's facts from the command line.

    Raises:
        InputError: a bad path, or an option without a value that the header takes.
    """
    check_out(args.out, ".csv", sources, (*ENDINGS, PREFILL))
    if args.out.stem.endswith((".draft", ".prefill")):
        raise InputError(f"--out is {args.out}; accepted: NAME.csv, as NAME.draft.csv comes beside")
    texts = checked_texts(args, _TEXTS)
    return ProfileFacts(
        **texts,
        num_gpus=checked_count("--num-gpus", args.num_gpus),
        kind=args.kind,
        captured_up_to=checked_count("--captured-up-to", args.captured_up_to) or 0,
        format=args.format,
    )


def draft_option(text: str | None, batches: Sequence[int]) -> dict[int, float] | None:
    """`--draft-ms` by batch: one number for all `batches`, or BATCH:MS,...; None if not given.

    Raises:
        InputError: anything else.
    """
    if text is None:
        return None
    pairs = [part.strip().rpartition(":")[::2] for part in text.split(",")]
    try:
        if pairs == [("", text.strip())]:
            found = dict.fromkeys(batches, float(text))
        else:
            found = {int(batch): float(ms) for batch, ms in pairs}
            found = found if len(found) == len(pairs) else {}  # a batch twice
    except ValueError:
        found = {}
    valid = all(0 < batch <= 10**6 and 0 < ms < MOST_MS for batch, ms in found.items())
    if not found or not valid:
        raise InputError(
            f"--draft-ms is {printable(text)!r}; accepted: milliseconds above 0, or BATCH:MS,... "
            "with every batch once, such as 1:2.7,8:3.1"
        )
    return found
