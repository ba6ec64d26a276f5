"""One recording in memory: what every replay, order and bound reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.recordings import scores
from traces.recordings.schema import SPLITS

BLOCK_BYTES = 1 << 25  # looked at together where all of a recording is


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A (target, drafter, temperature) triple over S sequences, A anchors and D depths.

    `meta` is the header with unknown keys kept; `arrays` maps the names of `recordings.schema` to
    read-only numpy arrays; `source` names the file in messages. Depth indices are 0-based:
    depth 0 predicts the token right after the anchor, whose parent is the anchor itself.
    Build one with `read_recording` or `traces.recordings.files.build_recording`, which validate.
    """

    meta: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    source: str = "recording"
    splits: tuple[str, ...] = SPLITS  # fewer: a part, see `part_of`; `content_hash` is the whole's
    _memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, name: str) -> np.ndarray:
        """The array called `name`; InputError if the recording does not carry it."""
        if name not in self.arrays:
            raise InputError(
                f"{self.source}: no array {name}, has {', '.join(sorted(self.arrays))}"
            )
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def memo(self, key: str, compute: Callable[[], Any]) -> Any:
        """`compute()` the first time `key` is asked for, the same object afterwards."""
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]

    @property
    def num_sequences(self) -> int:
        return len(self.arrays["prompt_len"])

    @property
    def num_anchors(self) -> int:
        return len(self.arrays["anchor_pos"])

    @property
    def depths(self) -> int:
        """D: draft depths at every anchor, and lookahead tokens after every sequence."""

        def compute() -> int:
            arrays = self.arrays
            recorded = int(arrays["prompt_len"].sum()) + int(arrays["output_len"].sum())
            return (len(arrays["tokens"]) - recorded) // max(self.num_sequences, 1)

        return self.memo("depths", compute)

    @property
    def encoding(self) -> str:
        return self.meta["encoding"]

    @property
    def vocab_size(self) -> int:
        return self.meta["vocab_size"]

    @property
    def temperature(self) -> float:
        return float(self.meta["temperature"])

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.meta["domains"])

    @property
    def eos_tokens(self) -> tuple[int, ...]:
        """`eos_token` of the metadata (one id, a list of ids, or null) as a tuple."""
        eos = self.meta["eos_token"]
        return () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)

    @property
    def banned_tokens(self) -> np.ndarray:
        return np.asarray(self.meta["banned_tokens"], dtype=np.int64)

    @property
    def content_hash(self) -> str:
        """sha256 of metadata and arrays, hex: equal for equal content, wherever it is stored."""
        return self.memo("content_hash", lambda: content_hash(self.meta, self.arrays))

    @property
    def anchor_offset(self) -> np.ndarray:
        """First anchor of each sequence, and A at the end: int64 [S+1]."""
        return self.memo("anchor_offset", lambda: _offsets(self.anchor_counts))

    @property
    def anchor_counts(self) -> np.ndarray:
        """Anchors per sequence, max(L - 1, 0): int64 [S]."""
        return np.maximum(self.arrays["output_len"].astype(np.int64) - 1, 0)

    @property
    def output_offset(self) -> np.ndarray:
        """First target row (`target_hidden`) of each sequence, and P at the end: int64 [S+1]."""
        rows = self.arrays["output_len"].astype(np.int64) + self.depths
        return self.memo("output_offset", lambda: _offsets(rows))

    @property
    def anchor_sequence(self) -> np.ndarray:
        """Sequence of every anchor: int64 [A]."""
        return self.memo(
            "anchor_sequence", lambda: np.repeat(np.arange(self.num_sequences), self.anchor_counts)
        )

    @property
    def anchor_output(self) -> np.ndarray:
        """Output index of every anchor within its sequence, 0..L-2: int64 [A]."""
        sequence = self.anchor_sequence
        return np.arange(self.num_anchors) - self.anchor_offset[sequence]

    @property
    def remaining_outputs(self) -> np.ndarray:
        """Outputs after every anchor, 1..L-1; realised tokens beyond are lookahead: int64 [A]."""
        return self.anchor_counts[self.anchor_sequence] - self.anchor_output

    def sequences_of(self, split: str | None = None, domain: str | None = None) -> np.ndarray:
        """Sequences in `split` and `domain` (None: all), ascending int64.

        Raises InputError for a split or domain that the recording does not know.
        """
        keep = np.ones(self.num_sequences, dtype=bool)
        if split is not None:
            keep &= self.arrays["split"] == self._index_of("split", split, SPLITS)
        if domain is not None:
            keep &= self.arrays["domain"] == self._index_of("domain", domain, self.domains)
        return np.flatnonzero(keep)

    def anchors_of(self, split: str | None = None, domain: str | None = None) -> np.ndarray:
        """Anchors of `sequences_of(split, domain)`, ascending int64."""
        chosen = np.zeros(self.num_sequences, dtype=bool)
        chosen[self.sequences_of(split, domain)] = True
        return np.flatnonzero(chosen[self.anchor_sequence])

    def _index_of(self, what: str, name: str, known: tuple[str, ...]) -> int:
        if name not in known:
            raise InputError(f"{self.source}: unknown {what} {name!r}, has {', '.join(known)}")
        return known.index(name)

    def committed_tokens(self, sequence: int) -> np.ndarray:
        """Outputs 0..L-1 of a sequence, without the lookahead: int32 [L]."""
        first = int(self.arrays["seq_offset"][sequence]) + int(self.arrays["prompt_len"][sequence])
        last = first + int(self.arrays["output_len"][sequence])
        return self.arrays["tokens"][first:last].astype(np.int32)

    def prompt_tokens(self, sequence: int) -> np.ndarray:
        """Prompt of a sequence: int32 [prompt_len]."""
        first = int(self.arrays["seq_offset"][sequence])
        last = first + int(self.arrays["prompt_len"][sequence])
        return self.arrays["tokens"][first:last].astype(np.int32)

    def anchor_tokens(self, anchors: np.ndarray) -> np.ndarray:
        """The committed token at each anchor, parent of every depth-0 draft: int32 [n]."""
        return self.arrays["tokens"][self.arrays["anchor_pos"][anchors]].astype(np.int32)

    def realised(self, anchors: np.ndarray) -> np.ndarray:
        """The D tokens that follow each anchor in the target's continuation: int32 [n, D]."""
        first = self.arrays["anchor_pos"][np.asarray(anchors)] + 1
        return self.arrays["tokens"][first[..., None] + np.arange(self.depths)].astype(np.int32)

    def conditional(
        self, anchor: int, depth: int, parent_tokens: np.ndarray, top: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draft tokens and log-probabilities at 0-based `depth` under each parent token.

        Returns (tokens int64 [n, K'], logq float64 [n, K']), sorted by falling logq. `pool`
        ignores the parents (K' = K) and keeps the recorded order of ties; `hidden` is exact
        over the whole vocabulary (K' = V), ties by smaller token id, banned tokens last at
        -inf; `tree` gives the recorded children, padded with token -1 at -inf. `top` keeps
        the first `top` columns at most.
        """
        parents = np.atleast_1d(np.asarray(parent_tokens, dtype=np.int64))
        return scores.CONDITIONAL[self.encoding](self, int(anchor), int(depth), parents, top)

    def conditional_logp(self, anchors: np.ndarray, depth: int, parents: np.ndarray) -> np.ndarray:
        """Full law at 0-based `depth` for (anchor, parent) pairs: float64 [n, V], `hidden` only."""
        return scores.hidden_logp(self, np.asarray(anchors), depth, np.asarray(parents))

    def path_logq(self, anchors: np.ndarray) -> np.ndarray:
        """Draft log-probability of every realised token given its parent: float64 [n, D]."""
        return scores.PATH_LOGQ[self.encoding](self, np.asarray(anchors))

    def target_row(self, anchors: np.ndarray, depth: np.ndarray | int) -> np.ndarray:
        """Target row that predicts the token at 0-based `depth` (D: the last bonus token)."""
        sequence = self.anchor_sequence[anchors]
        return self.output_offset[sequence] + self.anchor_output[anchors] + 1 + depth

    def target_logp(self, row: np.ndarray | int) -> np.ndarray:
        """Target law at the recorded temperature (banned tokens -inf): float64 [..., V].

        Raises InputError at temperature 0, where the law is not recorded.
        """
        return scores.target_logp(self, np.asarray(row))


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def content_hash(
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    release: Callable[[], Any] = lambda: None,
) -> str:
    """See `Recording.content_hash`. release: called after every block of rows that was read."""
    digest = hashlib.sha256(json.dumps(dict(meta), sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        for rows in row_blocks(array):
            digest.update(np.ascontiguousarray(array[rows]).data)
            release()
    return digest.hexdigest()


def row_blocks(*arrays: np.ndarray) -> Iterator[slice]:
    """Rows of arrays of equal length, in blocks of some 32 MiB of them all."""
    rows = len(arrays[0])
    row_bytes = sum(array.nbytes for array in arrays) // max(rows, 1)
    size = max(BLOCK_BYTES // max(row_bytes, 1), 1)
    return (slice(first, first + size) for first in range(0, rows, size))
