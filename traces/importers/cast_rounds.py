"""CAST's round logs (Lee and Eo, arXiv 2610.00321) as a recording of rounds.

The rounds are where the logged chain's rounds started, nowhere else: results are per-round.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from traces.common.errors import InputError
from traces.importers.cast_log import MOST_TOKEN, Rounds, read_rounds
from traces.importers.files import (
    ImportReport,
    check_out,
    counted,
    printable,
    read_line,
    read_sources,
)
from traces.importers.profile import checked_count, checked_texts
from traces.recordings.files import build_recording, write_recording
from traces.recordings.schema import FORMAT, SPLITS, VERSION
from traces.recordings.scores import log_softmax

HELP = "CAST's round logs (torch files) -> a recording of rounds, FILE.safetensors"
LACKS = (
    "full-vocabulary normaliser (scores are log-softmax over the candidates kept)",
    "positions between rounds (per-round: they start where the log's chain's rounds started)",
    "prompts and texts, and which rounds belong to one",
    "anchor tokens, and what follows a round's realised tokens (both are an id of their own)",
    "temperature (read as 0), vocabulary size and block semantics, unless given",
)
OUTPUTS = 2  # of a sequence: output 0, whose anchor the round starts from, and one more
RECORDER = "import cast-rounds 1"
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


# ---------------- The recording: metadata and arrays.


def write_rounds(
    path: Path, logs: Sequence[Rounds], facts: Mapping[str, str | None], vocab_size: int | None
) -> None:
    """Write the recording of all logs, whose sizes are equal, in order.

    Every round is a sequence of its own with one anchor: an unknown anchor token, output 1 and the
    lookahead. So its realised tokens stand where those of any anchor stand, and readers and
    validation need no exception; the metadata's `per_round` says that what lies between two rounds
    is missing, and such a recording is not served.

    Args:
        facts: what the log does not say: target, drafter, pair, dtype, license, source and
            block_semantics. vocab_size: None: the largest id seen, plus 1.

    Raises:
        InputError: an id beyond the vocabulary, or a path that cannot be written to.
    """
    largest = [int(max(log.top_idx.max(), log.realized.max())) for log in logs]
    vocab = max(largest) + 1 if vocab_size is None else vocab_size  # itself an unknown token
    for log, token in zip(logs, largest, strict=True):
        if token >= vocab:
            raise InputError(
                f"{log.source.path}: holds token {token}; accepted: below --vocab-size {vocab}"
            )
    domains = [printable(log.source.path.stem) or "log" for log in logs]
    meta, arrays = _meta(logs, domains, facts, vocab), _arrays(logs, domains, vocab)
    build_recording(meta, arrays, str(path))  # what it refuses leaves no folder behind
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_recording(path, meta, arrays)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--out is {path} ({reason}); accepted: a path to write to") from None


def _arrays(logs: Sequence[Rounds], domains: Sequence[str], unknown: int) -> dict[str, np.ndarray]:
    """The format's arrays; N rounds, L depths."""
    tokens, logits = (
        np.concatenate([getattr(log, name) for log in logs]) for name in ("top_idx", "top_val")
    )
    order = np.argsort(-logits, axis=-1, kind="stable")  # equal scores stay in the file's order
    tokens, logits = (np.take_along_axis(array, order, axis=-1) for array in (tokens, logits))
    logprob = log_softmax(logits).astype(np.float32)  # over the candidates kept
    realized = np.concatenate([log.realized for log in logs])
    number = {name: index for index, name in enumerate(dict.fromkeys(domains))}
    rounds, depths = realized.shape
    outside = np.full((rounds, 1), unknown)
    text = np.concatenate([outside, np.where(realized < 0, unknown, realized), outside], axis=1)
    starts = np.arange(rounds + 1) * (depths + OUTPUTS)
    return {
        "tokens": text.ravel(),
        "seq_offset": starts,
        "prompt_len": np.zeros(rounds, np.int64),
        "output_len": np.full(rounds, OUTPUTS),
        "domain": np.repeat([number[one] for one in domains], [len(log) for log in logs]),
        "split": np.full(rounds, SPLITS.index("report")),
        "anchor_pos": starts[:-1],
        "pool_token": tokens,
        "pool_logprob": logprob,
        "path_logq": path_logq(tokens, logprob, realized),
        "seq_accepted": np.concatenate([log.accepted for log in logs]).astype(np.int32),
        "seq_realised": (realized >= 0).sum(axis=1).astype(np.int32),
    }


def path_logq(tokens: np.ndarray, logprob: np.ndarray, realized: np.ndarray) -> np.ndarray:
    """(N, L) score of every realised token; outside the candidates that of the last, at most."""
    hit = tokens == realized[..., None]  # (N, L, K)
    rank = np.where(hit.any(axis=-1), hit.argmax(axis=-1), tokens.shape[-1] - 1)
    return np.take_along_axis(logprob, rank[..., None], axis=-1)[..., 0]


def chain_accepted(log: Rounds) -> np.ndarray:
    """(N,) depths that the chain of best candidates accepts."""
    best = np.take_along_axis(log.top_idx, log.top_val.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    return np.logical_and.accumulate(best == log.realized, axis=1).sum(axis=1)


def _meta(
    logs: Sequence[Rounds], domains: Sequence[str], facts: Mapping[str, str | None], vocab: int
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "encoding": "pool",
        "per_round": True,
        "lacks": list(LACKS),
        "pair": facts["pair"] or f"{facts['target']} with {facts['drafter']}",
        "target": {"name": facts["target"], "sha256": "unknown"},
        "drafter": {"name": facts["drafter"], "kind": "block", "sha256": "unknown"},
        "block_semantics": facts["block_semantics"],
        "vocab_size": vocab + 1,
        "unknown_token": vocab,
        "eos_token": None,
        "banned_tokens": [],
        "shared_head": False,
        "temperature": 0.0,
        "dtype": facts["dtype"],
        "domains": list(dict.fromkeys(domains)),
        "seed": 0,
        "generation": {"max_new_tokens": OUTPUTS, "per_round": True},  # joins no other shard
        "recorder_version": RECORDER,
        "text_license": facts["license"],
        "source": {"text": facts["source"], "files": [log.source.described for log in logs]},
    }
