"""A latency profile from times of others, and the options that say what was timed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace

from traces.common.errors import InputError
from traces.common.json import first_twice
from traces.importers.files import ImportReport, InputFile, check_out, printable
from traces.importers.node import MOST_MS
from traces.profiles.tables import DraftRow, VerifyRow
from traces.profiles.write import ENDINGS, write_profile

_DIMENSIONS = ("batch", "kv_prefix_tokens")
_TEXTS = ("hardware", "model", "dtype", "attention", "timing", "source", "license")


def write(
    args: argparse.Namespace,
    sources: Sequence[InputFile],
    verify: Sequence[VerifyRow],
    draft: Sequence[DraftRow],
    lacks: Sequence[str],
    lines: Iterable[str],
) -> ImportReport:
    """Write the profile whose header the command line gives; `lines`: what was read.

    Raises:
        InputError: a size that two sources have, or a path that cannot be written to.
    """
    for name, rows in (("verify", verify), ("draft", draft)):
        twice = first_twice(map(_size, rows))
        if twice is not None:
            raise InputError(
                f"{args.out}: two {name} times for batch, KV prefix and packed tokens {twice}; "
                "accepted: every size once in all files and options"
            )
    most, lacking = args.captured_up_to or 0, "; ".join(lacks)
    captured = [replace(row, captured=row.packed_tokens_total <= most) for row in verify]
    graphs = sorted({row.packed_tokens_total for row in captured if row.captured})
    rows = [*verify, *draft]
    values = {name: {getattr(row, name) for row in rows} for name in _DIMENSIONS}
    described = (source.described for source in sources)
    files = "; ".join(f"{one['name']} (sha256 {one['sha256']})" for one in described)
    header = {name: getattr(args, name) for name in (*_TEXTS, "num_gpus", "kind")} | {
        "model_shape": {},
        "engine": "cuda_graph + eager tail" if graphs else "eager",
        "graph_sizes": graphs,
        "fixed": {name: found.pop() for name, found in values.items() if len(found) == 1},
        # summaries and tables cite `source`: what is missing goes with it
        "source": f"{args.source} (imported from {args.format}; lacks {lacking})",
        "notes": f"Lacks: {lacking}. Imported by `python -m traces import` from {files}.",
    }
    write_profile(args.out, header, sorted(captured, key=_size), sorted(draft, key=_size))
    written = tuple(path for path in map(args.out.with_suffix, ENDINGS) if path.exists())
    return ImportReport(tuple(lines), tuple(lacks), written)


def _size(row: VerifyRow | DraftRow) -> tuple[int, ...]:
    size = row.batch, row.kv_prefix_tokens
    return (*size, row.packed_tokens_total) if isinstance(row, VerifyRow) else size


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
    parser.add_argument("--kind", choices=("measured", "modelled"), default="measured")
    parser.add_argument(
        "--captured-up-to",
        type=int,
        metavar="TOKENS",
        help="steps of up to so many packed tokens ran as CUDA graphs (default: none, eager)",
    )


def check_options(args: argparse.Namespace, sources: Sequence[InputFile]) -> None:
    """Check path and facts, and take the space around texts away.

    Raises:
        InputError: a bad path, or an option without a value that the header takes.
    """
    check_out(args.out, ".csv", sources, ENDINGS)
    if args.out.stem.endswith((".draft", ".prefill")):
        raise InputError(f"--out is {args.out}; accepted: NAME.csv, as NAME.draft.csv comes beside")
    for name, text in checked_texts(args, _TEXTS).items():
        setattr(args, name, text)
    checked_count("--num-gpus", args.num_gpus)
    checked_count("--captured-up-to", args.captured_up_to)


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
