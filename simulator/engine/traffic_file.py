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

from simulator.engine.arrivals import BLOCK, Columns
from simulator.engine.fingerprint import file_hash
from simulator.engine.settings import WorkloadSettings
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
        self.count, self.longest_output, self.typical_context, self._report = self._surveyed()

    def _scaled(self) -> Scaled:
        wanted = self._settings
        names = ("max_prompt_tokens", "max_output_tokens", "min_output_tokens")
        clip = Clip(**{name: getattr(wanted, name) for name in names})
        options = {"clip": clip, "limit": self._limit}
        if self.file.has_times:
            options |= {"time_scale": wanted.time_scale, "max_gap_s": wanted.max_gap_s}
        return scaled(self.file, **options)

    def _surveyed(self) -> tuple[int, int, int, dict[str, Any]]:
        """One pass over the file: rows, longest output, KV tokens half-way through a request on
        average, and what was changed of it."""
        count = longest = tokens = 0
        played = self._scaled()
        for rows in played:
            self._check_domains(rows.domain, rows.line)
            count += len(rows)
            longest = max(longest, int(rows.output_tokens.max(initial=0)))
            tokens += int((2 * rows.prompt_tokens + rows.output_tokens).sum())
        typical = max(1, round(tokens / (2 * max(count, 1))))
        return count, longest, typical, played.report.describe()

    def _check_domains(self, names: list[str] | None, line: np.ndarray) -> None:
        for name, number in zip(names or (), line.tolist(), strict=False):
            if name not in self._rings:
                raise InputError(
                    f"{self.file.path}: line {number}, domain {name!r}; accepted: "
                    f"{', '.join(self._rings)} (of the served texts)"
                )

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
            **self._report,
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
        shuffled = shuffled[np.isin(shuffled, self.usable)]
        behind, rows = self.following(shuffled), self._rows()

        def read(number: np.ndarray, warmup: np.ndarray, share: np.ndarray) -> Columns:
            given, names = next(rows)
            sequence = self._sequences(names, shuffled, number)
            return self._columns(given, sequence, behind, warmup, share)

        return read

    def _rows(self) -> Iterator[tuple[Columns, list[str] | None]]:
        """The file's rows, `BLOCK` at a time, with gaps for times."""
        held: list[Columns] = []
        names: list[str] | None = None
        before_s = 0.0
        for rows in self._scaled():
            columns = {"prompt": rows.prompt_tokens, "output": rows.output_tokens}
            if self.times:
                columns["gap_s"] = np.diff(rows.time_s, prepend=before_s)
                before_s = float(rows.time_s[-1])
            held.append(columns)
            names = None if rows.domain is None else (names or []) + rows.domain
            while sum(len(part["output"]) for part in held) >= BLOCK:
                whole = _joined(held)
                first = {name: column[:BLOCK] for name, column in whole.items()}
                yield first, names and names[:BLOCK]
                held = [{name: column[BLOCK:] for name, column in whole.items()}]
                names = names and names[BLOCK:]
        if held and len(held[0]["output"]):
            yield _joined(held), names

    def _sequences(self, names, shuffled: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The sequence that each request starts in: of the row's domain, where it has one."""
        if names is None:
            return shuffled[number % len(shuffled)]
        chosen, asked = np.empty(len(number), np.int64), np.array(names)
        domain = self.recording["domain"][shuffled]
        for name, index in self._rings.items():
            here, ring = asked == name, shuffled[domain == index]
            chosen[here] = ring[number[here] % len(ring)]
        return chosen

    def _columns(self, given: Columns, sequence, behind, warmup, share) -> Columns:
        prompts, outputs = given["prompt"], given["output"]
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

    def _walked(self, sequence, emitted, behind) -> tuple[np.ndarray, np.ndarray]:
        """Where requests stand that have emitted so many tokens behind output 0."""
        sequence, first = sequence.copy(), emitted.copy()
        anchors = self.recording.anchor_counts
        while (beyond := first >= anchors[sequence]).any():
            first[beyond] -= anchors[sequence[beyond]]
            sequence[beyond] = behind[sequence[beyond]]
        return sequence, first


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
