"""Options of the formats that become latency profiles: what their files do not say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from traces.errors import InputError
from traces.importers.files import Source, check_out, printable
from traces.importers.node import MOST_MS
from traces.importers.options import checked_count, checked_texts
from traces.importers.profile import ENDINGS, PREFILL, Facts

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


def read_options(args: argparse.Namespace, sources: Sequence[Source]) -> Facts:
    """The header's facts from the command line.

    Raises:
        InputError: a bad path, or an option without a value that the header takes.
    """
    check_out(args.out, ".csv", sources, (*ENDINGS, PREFILL))
    if args.out.stem.endswith((".draft", ".prefill")):
        raise InputError(f"--out is {args.out}; accepted: NAME.csv, as NAME.draft.csv comes beside")
    texts = checked_texts(args, _TEXTS)
    return Facts(
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
