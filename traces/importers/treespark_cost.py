"""TreeSpark's cost model (arXiv 2609.22098), `{batch: {packed per request: ms}}`, as a profile.

It times the target's verify alone, at one KV prefix.
"""

from __future__ import annotations

import argparse

from traces.common.errors import InputError
from traces.importers import profile as profile_options
from traces.importers.files import ImportReport, counted, read_line, read_sources
from traces.importers.profile import checked_count
from traces.profiles.tables import DraftRow, VerifyRow

HELP = "TreeSpark's cost model (JSON) -> a latency profile, NAME.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The header's facts, and what the file leaves out."""
    profile_options.add_arguments(parser)
    parser.add_argument("--context", type=int, required=True, help="KV prefix of the timed steps")
    parser.add_argument(
        "--draft-ms", required=True, help="draft times: MS for every batch, or BATCH:MS,..."
    )


def run(args: argparse.Namespace) -> ImportReport:
    """Import one cost model.

    Raises:
        InputError: naming file, key path and value.
    """
    sources = read_sources(args.files)
    if len(sources) > 1:
        raise InputError(f"{sources[1].path}: a second file; accepted: one cost model a profile")
    profile_options.check_options(args, sources)
    context = checked_count("--context", args.context)
    verify = [
        VerifyRow(batch, context, batch * packed, node.ms(), captured=False)
        for batch, by_packed in sources[0].json().by_size("a batch")
        for packed, node in by_packed.by_size("packed tokens per request")
    ]
    batches = sorted({row.batch for row in verify})
    draft = profile_options.draft_option(args.draft_ms, batches)
    lacks = ["draft times (given by --draft-ms)", "prefill times", "host work"]
    lacks.append(f"KV prefixes other than {context} (given by --context)")
    if len(batches) == 1:
        lacks.append(f"batches other than {batches[0]}")
    rows = [DraftRow(batch, context, ms) for batch, ms in draft.items()]
    what = f"{counted(len(verify), 'verify time')} at {counted(len(batches), 'batch', 'batches')}"
    line = read_line(sources[0], what)
    return profile_options.write(args, sources, verify, rows, lacks, [line])
