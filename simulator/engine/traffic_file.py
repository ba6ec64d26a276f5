"""Requests whose lengths, and perhaps times, come from a file of other people's traffic.

Prompt lengths are the file's. Outputs are as long as the file says and their text is recorded: a
request starts in a sequence of the recording chosen by seed, and one that is longer goes on in the
next sequence of the same domain, whose output 0 stands for the last token before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from simulator.engine.arrivals import BLOCK
from simulator.engine.fingerprint import file_hash
from simulator.engine.settings import WorkloadSettings
from simulator.results.facts import Columns, joined
from traces.common.errors import InputError
from traces.recordings.recording import Recording
from traces.workloads import Clip, Scaled, open_workload, scaled

Reader = Callable[[np.ndarray, np.ndarray, np.ndarray], Columns]


class Lengths:
    """The rows of a workload file, and the recorded sequences that write them.

    Args:
        sequences: those that may be served, of which some must hold more than one token.
        limit: first rows to take; None: all.

    Raises:
        InputError: no sequence to serve, no times in a file that should give them, a domain that
            the recording lacks, or what reading the file refuses.
    """

    def __init__(
        self,
        settings: WorkloadSettings,
        recording: Recording,
        sequences: np.ndarray,
        limit: int | None = None,
    ) -> None:
        self._settings, self.recording, self._limit = settings, recording, limit
        self.file = open_workload(
            settings.path,
            settings.format,
            characters_per_token=settings.characters_per_token,
            tokenizer=settings.tokenizer,
        )
        self.times = settings.arrivals == "file"
        self.usable = sequences[recording.anchor_counts[sequences] > 0]
        if not len(self.usable):
            raise InputError(
                f"{recording.source}: no text of more than one token; accepted with workload.path: "
                "a recording that has some"
            )
        if self.times and not self.file.has_times:
            raise InputError(
                f"{settings.path}: no arrival times; accepted with workload.arrivals=file: a file "
                "that has them (or workload.arrivals=load)"
            )
        self.count = self.longest_output = tokens = 0
        played = self._scaled()
        for rows in played:
            for name, line in zip(rows.domain or (), rows.line.tolist(), strict=False):
                if name not in self._rings:
                    raise InputError(
                        f"{self.file.path}: line {line}, domain {name!r}; accepted: "
                        f"{', '.join(self._rings)} (of the served texts)"
                    )
            self.count += len(rows)
            self.longest_output = int(rows.output_tokens.max(initial=self.longest_output))
            tokens += int((2 * rows.prompt_tokens + rows.output_tokens).sum())
        # KV tokens half-way through a request, on average
        self.typical_context = max(1, round(tokens / (2 * max(self.count, 1))))
        self._changed = played.report.describe()

    def _scaled(self) -> Scaled:
        wanted = self._settings
        names = ("max_prompt_tokens", "max_output_tokens", "min_output_tokens")
        clip = Clip(**{name: getattr(wanted, name) for name in names})
        options = {"clip": clip, "limit": self._limit}
        if self.file.has_times:
            options |= {"time_scale": wanted.time_scale, "max_gap_s": wanted.max_gap_s}
        return scaled(self.file, **options)

    @cached_property
    def _rings(self) -> dict[str, int]:
        """Domains that have a usable sequence, and their indices."""
        present = np.unique(self.recording["domain"][self.usable]).tolist()
        return {self.recording.domains[index]: index for index in present}

    def describe(self) -> dict[str, Any]:
        """For the summary: the file, and what was changed of it."""
        return {
            "file": str(self.file.path),
            "sha256": file_hash(self.file.path),
            "format": self.file.format,
            **self._changed,
        }

    def following(self, shuffled: np.ndarray) -> np.ndarray:
        """(S,) the sequence behind each usable one: the next of its domain, round and round."""
        shuffled = shuffled[np.isin(shuffled, self.usable)]
        domain = self.recording["domain"][shuffled]
        behind = np.full(self.recording.num_sequences, -1, np.int64)
        for index in self._rings.values():
            ring = shuffled[domain == index]
            behind[ring] = np.roll(ring, -1)
        return behind

    def reader(self, shuffled: np.ndarray) -> Reader:
        """Makes the columns of `Workload` of (n,) request numbers, in rising order.

        Its other arguments: whether each is a warm-up, and the share of its outputs that it has.
        """
        behind, rows = self.following(shuffled), self._rows()
        shuffled = shuffled[np.isin(shuffled, self.usable)]
        domain = self.recording["domain"][shuffled]
        rings = {name: shuffled[domain == index] for name, index in self._rings.items()}

        def read(number: np.ndarray, warmup: np.ndarray, share: np.ndarray) -> Columns:
            given = next(rows)
            prompts, outputs = given["prompt"], given["output"]
            sequence = shuffled[number % len(shuffled)]
            for name, ring in rings.items() if "domain" in given else ():
                own = given["domain"] == name
                sequence[own] = ring[number[own] % len(ring)]
            warmup = warmup & (outputs > 1)
            emitted = np.where(warmup, (share * (outputs - 1)).astype(np.int64), 0)
            sequence, first = self._walked(sequence, emitted, behind)
            columns = {
                "sequence": sequence,
                "first_output": first,
                "warmup": warmup,
                "prompt_tokens": prompts,
                "output_tokens": outputs - np.where(warmup, emitted + 1, 0),
                "context": prompts + emitted,
                "domain": self.recording["domain"][sequence].astype(np.int64),
            }
            return columns | ({"gap_s": given["gap_s"]} if self.times else {})

        return read

    def _rows(self) -> Iterator[Columns]:
        """The file's rows, `BLOCK` at a time, with gaps for times."""
        held: Columns = {}
        before_s = 0.0
        for rows in self._scaled():
            columns = {"prompt": rows.prompt_tokens, "output": rows.output_tokens}
            if rows.domain is not None:
                columns["domain"] = np.array(rows.domain)
            if self.times:
                columns["gap_s"] = np.diff(rows.time_s, prepend=before_s)
                before_s = float(rows.time_s[-1])
            held = joined([held, columns]) if held else columns
            while len(held["output"]) >= BLOCK:
                yield {name: column[:BLOCK] for name, column in held.items()}
                held = {name: column[BLOCK:] for name, column in held.items()}
        if held and len(held["output"]):
            yield held

    def _walked(self, sequence, emitted, behind) -> tuple[np.ndarray, np.ndarray]:
        """Where requests stand that have emitted so many tokens behind output 0."""
        first, anchors = emitted.copy(), self.recording.anchor_counts
        while (beyond := first >= anchors[sequence]).any():
            first[beyond] -= anchors[sequence[beyond]]
            sequence[beyond] = behind[sequence[beyond]]
        return sequence, first
