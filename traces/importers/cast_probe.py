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
from traces.importers.profile import Times, checked_count
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
    times = _times(probes, args.draft_ms, context)
    written = profile_options.write(args, sources, times)
    return ImportReport(tuple(map(_line, probes)), times.lacks, written)


def _read(source: InputFile, layout: str, context: int | None) -> Probe:
    root = source.json()
    keys = root.mapping("an object with verify_ms, or with batches as keys")
    if layout == "single" or (layout == "auto" and "verify_ms" in keys):
        return _single(source, root, keys)
    if context is None:
        raise InputError(
            f"{source.path}: a batched probe, which does not say its KV prefix; accepted with it: "
            "--context TOKENS"
        )
    return _batched(source, root, keys, context)


def _single(source: InputFile, root: Node, keys: dict[str, Node]) -> Probe:
    verify_ms = root.require("verify_ms", "an object with KV prefixes as keys")
    verify = [
        VerifyRow(1, prefix, packed, node.ms(), captured=False)
        for prefix, by_packed in verify_ms.by_size("a KV prefix", most=MOST_PREFIX)
        for packed, node in by_packed.by_size("packed tokens")
    ]
    draft = []
    if "draft_ms" in keys:
        prefixes = sorted({row.kv_prefix_tokens for row in verify})
        draft = [
            DraftRow(1, prefix, node.ms())
            for prefix, node in _by_size_or_one(keys["draft_ms"], "a KV prefix", prefixes[0])
        ]
    unused = tuple(set(keys) - {"verify_ms", "draft_ms"})
    return Probe(source, False, verify, draft, unused)


def _batched(source: InputFile, root: Node, keys: dict[str, Node], context: int) -> Probe:
    table, unused, draft = root, (), []
    if "verify_ms" in keys:
        table, unused = keys["verify_ms"], tuple(set(keys) - {"verify_ms", "draft_ms"})
        if "draft_ms" in keys:
            draft = [
                DraftRow(batch, context, node.ms())
                for batch, node in _by_size_or_one(keys["draft_ms"], "a batch", 1)
            ]
    verify = [
        VerifyRow(batch, context, batch * (nodes + 1), node.ms(), captured=False)
        for batch, by_nodes in table.by_size("a batch")
        for nodes, node in by_nodes.by_size("draft nodes", least=0)
    ]
    return Probe(source, True, verify, draft, unused)


def _by_size_or_one(node: Node, what: str, size: int) -> list[tuple[int, Node]]:
    """Times by size; a plain number is held at `size` alone."""
    if is_number(node.value):
        return [(size, node)]
    return list(node.by_size(what, most=MOST_PREFIX if "prefix" in what else 10**6))


def _times(probes: Sequence[Probe], option: str | None, context: int | None) -> Times:
    verify = [row for probe in probes for row in probe.verify]
    draft = [row for probe in probes for row in probe.draft]
    without = [row.batch for probe in probes if not probe.draft for row in probe.verify]
    given = profile_options.draft_option(option, sorted(set(without)) or [1])
    if given is not None:
        prefix = context or min(row.kv_prefix_tokens for row in verify)
        draft += [DraftRow(batch, prefix, ms) for batch, ms in given.items()]
    if not draft:
        raise InputError(
            f"{probes[0].source.path}: no draft times (draft_ms); accepted: a probe that has them, "
            "or --draft-ms MS or BATCH:MS,..."
        )
    return Times(verify, draft, tuple(_lacks(verify, draft, given is not None)))


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


def _line(probe: Probe) -> str:
    kind = "batched, keys are draft nodes (packed tokens less 1)" if probe.batched else "single"
    what = f"{kind}: {counted(len(probe.verify), 'verify time')}, "
    what += counted(len(probe.draft), "draft time")
    return read_line(probe.source, what, probe.unused)
