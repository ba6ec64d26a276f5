"""CAST's latency probes (Lee and Eo, arXiv 2610.00321) as a latency profile.

single: `{"verify_ms": {prefix: {packed: ms}}, "draft_ms": ms or {prefix: ms}}`, one request.
batched: `{batch: {nodes: ms}}`, or the same under `verify_ms` with `draft_ms` by batch. Its keys
are draft nodes: a request packs its root besides, so nodes + 1 tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from traces.common.errors import InputError
from traces.importers import profile as profile_options
from traces.importers.files import ImportReport, InputFile, counted, read_line, read_sources
from traces.importers.node import Node, is_number
from traces.importers.profile import checked_count
from traces.profiles.tables import DraftRow, VerifyRow

HELP = "CAST's latency probes (JSON), single or batched -> a latency profile, NAME.csv"
LAYOUTS = ("auto", "single", "batched")
MOST_PREFIX = 10**9


@dataclass(frozen=True, slots=True)
class Probe:
    """What one file holds."""

    source: InputFile
    batched: bool
    verify: list[VerifyRow]
    draft: list[DraftRow]
    unused: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The header's facts, and the dimension that batched probes leave out."""
    profile_options.add_arguments(parser)
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="auto",
        help="auto: single with a key verify_ms, else batched (keys are draft nodes)",
    )
    parser.add_argument("--context", type=int, help="KV prefix in tokens of batched probes")
    parser.add_argument(
        "--draft-ms", help="where a probe has no draft_ms: MS for every batch, or BATCH:MS,..."
    )


def run(args: argparse.Namespace) -> ImportReport:
    """Import single and batched probes of one engine as one profile.

    Raises:
        InputError: naming file, key path and value.
    """
    sources = read_sources(args.files)
    profile_options.check_options(args, sources)
    context = checked_count("--context", args.context, MOST_PREFIX)
    probes = [_read(source, args.layout, context) for source in sources]
    lines = []
    for one in probes:
        kind = "batched, keys are draft nodes (packed tokens less 1)" if one.batched else "single"
        found = counted(len(one.verify), "verify time"), counted(len(one.draft), "draft time")
        lines.append(read_line(one.source, f"{kind}: {', '.join(found)}", one.unused))
    verify = [row for probe in probes for row in probe.verify]
    draft = [row for probe in probes for row in probe.draft]
    without = [row.batch for probe in probes if not probe.draft for row in probe.verify]
    given = profile_options.draft_option(args.draft_ms, sorted(set(without)) or [1])
    if given is not None:
        prefix = context or min(row.kv_prefix_tokens for row in verify)
        draft += [DraftRow(batch, prefix, ms) for batch, ms in given.items()]
    if not draft:
        raise InputError(
            f"{sources[0].path}: no draft times (draft_ms); accepted: a probe that has them, "
            "or --draft-ms MS or BATCH:MS,..."
        )
    lacks = _lacks(verify, draft, given is not None)
    return profile_options.write(args, sources, verify, draft, lacks, lines)


def _read(source: InputFile, layout: str, context: int | None) -> Probe:
    root = source.json()
    keys = root.mapping("an object with verify_ms, or with batches as keys")
    batched = layout == "batched" or (layout == "auto" and "verify_ms" not in keys)
    if batched and context is None:
        raise InputError(
            f"{source.path}: a batched probe, which does not say its KV prefix; accepted with it: "
            "--context TOKENS"
        )
    table, draft_ms, unused = root, None, ()
    if "verify_ms" in keys or not batched:
        table = root.require("verify_ms", "an object with KV prefixes as keys")
        draft_ms, unused = keys.get("draft_ms"), tuple(set(keys) - {"verify_ms", "draft_ms"})
    if batched:
        verify = [
            VerifyRow(batch, context, batch * (nodes + 1), node.ms(), captured=False)
            for batch, by_nodes in table.by_size("a batch")
            for nodes, node in by_nodes.by_size("draft nodes", least=0)
        ]
        times = _by_size_or_one(draft_ms, "a batch", 1, 10**6)
        draft = [DraftRow(batch, context, node.ms()) for batch, node in times]
    else:
        verify = [
            VerifyRow(1, prefix, packed, node.ms(), captured=False)
            for prefix, by_packed in table.by_size("a KV prefix", most=MOST_PREFIX)
            for packed, node in by_packed.by_size("packed tokens")
        ]
        least = min(row.kv_prefix_tokens for row in verify)
        times = _by_size_or_one(draft_ms, "a KV prefix", least, MOST_PREFIX)
        draft = [DraftRow(1, prefix, node.ms()) for prefix, node in times]
    return Probe(source, batched, verify, draft, unused)


def _by_size_or_one(node: Node | None, what: str, size: int, most: int) -> list[tuple[int, Node]]:
    """Times by size; a plain number is held at `size` alone; none without a node."""
    if node is None or is_number(node.value):
        return [] if node is None else [(size, node)]
    return list(node.by_size(what, most=most))


def _lacks(verify: Sequence[VerifyRow], draft: Sequence[DraftRow], given: bool) -> list[str]:
    batches = {row.batch for row in verify}
    prefixes = {row.kv_prefix_tokens for row in verify}
    lacks = ["host work between the two passes", "prefill times"]
    if len(batches) == 1:
        lacks.append(f"batches other than {min(batches)}")
    if len(prefixes) == 1:
        lacks.append(f"KV prefixes other than {min(prefixes)}")
    if not prefixes <= {row.kv_prefix_tokens for row in draft}:
        lacks.append("draft times at every KV prefix")
    if not batches <= {row.batch for row in draft}:
        lacks.append("draft times at every batch")
    if given:
        lacks.append("draft times of its own (given by --draft-ms)")
    return lacks
