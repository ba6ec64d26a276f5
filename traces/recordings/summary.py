"""What `python -m traces inspect` says about a recording, as plain text."""

from __future__ import annotations

import numpy as np

from traces.common.table import Table, render
from traces.recordings.recording import Recording, row_blocks
from traces.recordings.schema import NEAR_TIE, SPLITS


def describe(recording: Recording) -> str:
    """Many lines: header facts, split counts per domain, and draft coverage per depth."""
    sections = [_facts(recording), _split_counts(recording)]
    if recording.encoding == "pool":
        sections.append(_pool_coverage(recording))
    tables = [Table(rows[0], rows[1:], align="l" * len(rows[0])) for rows in sections]
    return render(tables, "table").rstrip()


def one_line(recording: Recording) -> str:
    """The facts in the `ok (...)` of `python -m traces validate`."""
    return (
        f"{recording.encoding}, {recording.num_sequences} sequences,"
        f" {recording.num_anchors} anchors, {recording.depths} depths,"
        f" temperature {recording.temperature:g}"
    )


def _facts(recording: Recording) -> list[list[str]]:
    meta = recording.meta
    optional = [name for name in ("confidence", "target_margin") if name in recording]
    size_mb = sum(array.nbytes for array in recording.arrays.values()) / 1e6
    rows = [
        ["recording", recording.source],
        ["pair", meta["pair"]],
        ["target", meta["target"]["name"]],
        ["drafter", f"{meta['drafter']['name']} ({meta['drafter']['kind']})"],
        ["block semantics", meta["block_semantics"]],
        ["encoding", f"{recording.encoding}, {_score_sizes(recording)}"],
        ["temperature", f"{recording.temperature:g}"],
        ["dtype", meta["dtype"]],
        ["vocabulary", str(recording.vocab_size)],
        ["domains", ", ".join(recording.domains)],
        ["sequences", str(recording.num_sequences)],
        ["anchors", str(recording.num_anchors)],
        ["depths", str(recording.depths)],
        ["prompt tokens", _lengths(recording["prompt_len"])],
        ["output tokens", _lengths(recording["output_len"])],
        ["optional arrays", ", ".join(optional) or "none"],
        ["size", f"{size_mb:.1f} MB in memory"],
        ["text licence", meta["text_license"]],
        ["content hash", recording.content_hash],
    ]
    if "target_margin" in recording:
        near = int((recording["target_margin"].astype(np.float32) < NEAR_TIE).sum())
        text = f"{near} of {recording.num_anchors} anchors, target margin below {NEAR_TIE:g}"
        rows.append(["near ties", text])
    return rows


def _score_sizes(recording: Recording) -> str:
    if recording.encoding == "pool":
        return f"{recording['pool_token'].shape[2]} candidates per depth"
    if recording.encoding == "tree":
        return f"{recording['tree_token'].shape[1]} nodes per anchor"
    rank = recording["markov_w1"].shape[1] if "markov_w1" in recording else 0
    return f"hidden size {recording['hidden'].shape[2]}, Markov rank {rank}"


def _lengths(lengths: np.ndarray) -> str:
    return f"median {np.median(lengths):g}, range {lengths.min()} to {lengths.max()}"


def _split_counts(recording: Recording) -> list[list[str]]:
    """Sequences and anchors of every domain in every split."""
    rows = [["sequences (anchors)", *SPLITS]]
    for domain in recording.domains:
        cells = [
            f"{len(recording.sequences_of(split, domain))}"
            f" ({len(recording.anchors_of(split, domain))})"
            for split in SPLITS
        ]
        rows.append([domain, *cells])
    return rows


def _pool_coverage(recording: Recording) -> list[list[str]]:
    """Share of realised tokens that are the top-1, and that are anywhere in the pool."""
    count, tokens = max(recording.num_anchors, 1), recording["pool_token"]
    first, pooled = np.zeros(recording.depths), np.zeros(recording.depths)
    for rows in row_blocks(tokens):
        anchors = np.arange(rows.start, min(rows.stop, recording.num_anchors))
        hit = tokens[rows] == recording.realised(anchors)[..., None]  # (n, D, K)
        first += hit[..., 0].sum(axis=0) / count
        pooled += hit.any(axis=-1).sum(axis=0) / count
    rows = [["depth", "realised is top-1", "realised in pool"]]
    for depth in range(recording.depths):
        rows.append([str(depth + 1), f"{first[depth]:.3f}", f"{pooled[depth]:.3f}"])
    return [*rows, ["all", f"{first.mean():.3f}", f"{pooled.mean():.3f}"]]
