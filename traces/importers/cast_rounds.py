"""CAST's round logs (Lee and Eo, arXiv 2610.00321) as a recording of rounds.

The rounds are where the logged chain's rounds started, nowhere else: results are per-round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from traces.common.errors import InputError
from traces.importers.cast_log import MOST_TOKEN, Rounds, read_rounds
from traces.importers.files import ImportReport, check_out, counted, read_line, read_sources
from traces.importers.profile import checked_count, checked_texts
from traces.importers.rounds_recording import LACKS, chain_accepted, write_rounds

HELP = "CAST's round logs (torch files) -> a recording of rounds, FILE.safetensors"
_TEXTS = ("target", "drafter", "pair", "dtype", "license", "source")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Facts that the log does not hold; the domain of a round is its file's name."""
    parser.add_argument("--target", default="unknown", help="name of the target model")
    parser.add_argument("--drafter", default="unknown", help="name of the drafter")
    parser.add_argument("--pair", help="name of both (default: TARGET with DRAFTER)")
    parser.add_argument("--vocab-size", type=int, help="default: the largest id seen, plus 1")
    parser.add_argument(
        "--block-semantics",
        choices=("in_place", "shifted"),
        default="in_place",
        help="of the drafter (default: in_place)",
    )
    parser.add_argument("--dtype", default="unstated", help="that the models ran in")
    parser.add_argument("--license", default="unstated", help="of the texts")
    parser.add_argument("--source", default="unstated", help="who published the log")


def run(args: argparse.Namespace) -> ImportReport:
    """Import the files as one recording.

    Raises:
        InputError: naming file, round and key.
    """
    sources = read_sources(args.files)
    check_out(args.out, ".safetensors", sources)
    texts = checked_texts(args, _TEXTS)
    vocab = checked_count("--vocab-size", args.vocab_size, MOST_TOKEN + 1)
    logs = [read_rounds(source) for source in sources]
    first = logs[0]
    for log in logs[1:]:
        if log.top_idx.shape[1:] != first.top_idx.shape[1:]:
            raise InputError(
                f"{log.source.path}: {log.depths} depths of {log.candidates} candidates; accepted: "
                f"{first.depths} of {first.candidates}, as in {first.source.path}"
            )
    write_rounds(args.out, logs, texts | {"block_semantics": args.block_semantics}, vocab)
    return ImportReport(tuple(_read_lines(logs)), LACKS, (args.out,))


def _read_lines(logs: Sequence[Rounds]) -> list[str]:
    lines = []
    for log in logs:
        pool = f"{counted(log.depths, 'depth')} of {counted(log.candidates, 'candidate')}"
        what = f"{counted(len(log), 'round')}, {pool}"
        lines.append(read_line(log.source, what, log.unused))
        whole = int(np.count_nonzero((log.realized >= 0).all(axis=1)))
        agree = int(np.count_nonzero(chain_accepted(log) == log.accepted))
        lines.append(
            f"{log.source.path}: realised tokens at every depth in {whole} of {len(log)} rounds, "
            f"absent below in the others; `accepted` is the chain's of best candidates in {agree}"
        )
    return lines
