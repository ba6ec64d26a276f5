"""What arrives: which sequence each request is, when it is sent, and by whom.

One random stream per purpose, so that every policy sees the same requests at the same times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.settings import Settings
from simulator.results.facts import Columns, joined
from traces.recordings.recording import Recording

if TYPE_CHECKING:
    from simulator.engine.traffic_file import Lengths

BLOCK = 4096  # requests made at a time


@dataclass(frozen=True, slots=True)
class Workload:
    """The N requests of a run, in the order they are sent."""

    sequence: np.ndarray  # (N,) sequence of the recording that the request starts in
    first_output: np.ndarray  # (N,) outputs of it that exist before the request, 0 if none
    warmup: np.ndarray  # (N,) bool: a client's first request, which starts somewhere in the middle
    gap_s: np.ndarray | None  # (N,) seconds from the request before; None: closed loop
    clients: int | None  # of a closed loop
    # Of a replay; None where the texts are not yet written.
    prompt_tokens: np.ndarray | None = None  # (N,)
    output_tokens: np.ndarray | None = None  # (N,) emitted, without what a warm-up starts with
    context: np.ndarray | None = None  # (N,) KV tokens before the first root
    domain: np.ndarray | None = None  # (N,) of its sequence
    # Most outputs of a request as an engine knows them; None: the recording's max_new_tokens.
    longest_output: int | None = None
    hands_over: bool = False  # whether a text may go on in another sequence
    ramp: int = 0  # completions at either end of an open loop that its window leaves out

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def closed(self) -> bool:
        """Whether clients wait for their requests."""
        return self.clients is not None

    def replaying(self, recording: Recording) -> Workload:
        """With the lengths of the recorded texts, where none are given."""
        if self.output_tokens is not None:
            return self
        texts = self.sequence, self.first_output, self.warmup
        return replace(self, **_recorded(recording, *texts))

    def block(self, first: int, count: int) -> Columns:
        """Requests `first` to `first + count - 1`, or to the last: columns by name."""
        names = [item.name for item in fields(self)][:9]
        columns = {name: getattr(self, name) for name in names if name != "clients"}
        kept = slice(first, first + count)
        return {name: column[kept] for name, column in columns.items() if column is not None}


class LazyWorkload:
    """A `Workload` made as it is read, in rising order; earlier requests are forgotten."""

    def __init__(
        self,
        settings: Settings,
        recording: Recording,
        sequences: np.ndarray,
        lengths: Lengths | None = None,
    ) -> None:
        self._count = settings.requests
        self.clients = settings.max_concurrency if settings.closed_loop else None
        self.longest_output = None if lengths is None else lengths.longest_output
        self.hands_over, self.ramp = lengths is not None, settings.ramp
        self._made = request_blocks(settings, recording, sequences, lengths)
        self._held: Columns = {}
        self._first = 0  # number of the first request held

    def __len__(self) -> int:
        return self._count

    @property
    def closed(self) -> bool:
        """Whether clients wait for their requests."""
        return self.clients is not None

    def block(self, first: int, count: int) -> Columns:
        """As `Workload.block`; `first` may not fall."""
        last = min(first + count, self._count)
        parts = [self._held] if self._held else []
        end = self._first + sum(len(part["sequence"]) for part in parts)
        while end < last:
            parts.append(next(self._made))
            end += len(parts[-1]["sequence"])
        if not parts:
            return {}
        columns = joined(parts)
        skipped = first - self._first
        self._held = {name: column[skipped:] for name, column in columns.items()}
        self._first = first
        return {name: column[: last - first] for name, column in self._held.items()}


def make_workload(
    settings: Settings,
    recording: Recording | None,
    sequences: np.ndarray,
    lengths: Lengths | None = None,
) -> Workload:
    """Requests over `sequences` (indices of the recording), from the seed alone.

    Without a recording nobody starts in the middle of a text: there is none yet.

    Request i is the i-th sequence of a shuffle that repeats, whatever the policy and the load.
    `lengths`: of prompts and outputs, and times, where a file gives them.
    """
    columns = joined(request_blocks(settings, recording, sequences, lengths))
    return Workload(
        **{"gap_s": None} | columns,
        clients=settings.max_concurrency if settings.closed_loop else None,
        longest_output=None if lengths is None else lengths.longest_output,
        hands_over=lengths is not None,
        ramp=settings.ramp,
    )


def shuffled_sequences(seed: int, sequences: np.ndarray) -> np.ndarray:
    """The order in which sequences are taken."""
    shuffle, _, _ = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    return shuffle.permutation(sequences)


def request_blocks(
    settings: Settings,
    recording: Recording | None,
    sequences: np.ndarray,
    lengths: Lengths | None = None,
) -> Iterator[Columns]:
    """The columns of `Workload`, `BLOCK` requests at a time."""
    _, arrivals, offsets = map(
        np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(3)
    )
    shuffled = shuffled_sequences(settings.seed, sequences)
    warm = settings.max_concurrency if settings.closed_loop and recording is not None else 0
    given = None if lengths is None else lengths.reader(shuffled)
    prompt = settings.workload.prompt_tokens
    for begin in range(0, settings.requests, BLOCK):
        number = np.arange(begin, min(begin + BLOCK, settings.requests))
        warmup = number < warm
        # Clients join a server that has been running: copies of a text must not march in lockstep.
        share = offsets.random(len(number)) if warmup.any() else np.zeros(len(number))
        share = np.where(warmup, share, 0.0)
        if given is not None:
            columns = given(number, warmup, share)
        else:
            sequence = shuffled[number % len(shuffled)]
            anchors = 0 if recording is None else recording.anchor_counts[sequence]
            first = (share * anchors).astype(np.int64)
            columns = {"sequence": sequence, "first_output": first, "warmup": warmup}
            if recording is not None:
                columns |= _recorded(recording, sequence, first, warmup, prompt)
        if not settings.closed_loop and "gap_s" not in columns:
            rate, burstiness = settings.request_rate, settings.burstiness
            columns["gap_s"] = gaps(rate, burstiness, len(number), arrivals)
        yield columns


def _recorded(recording: Recording, sequence, first, warmup, prompt: int | None = None) -> Columns:
    """Lengths of recorded texts: every request writes the outputs of its sequence.

    prompt: tokens of every prompt; None: the recorded prompts' own.
    """
    prompts = recording["prompt_len"][sequence].astype(np.int64)
    if prompt is not None:
        prompts = np.full(len(sequence), prompt)
    # A warm-up request starts with outputs 0..first there; the others with none.
    before = np.where(warmup, first + 1, 0)
    return {
        "prompt_tokens": prompts,
        "output_tokens": recording["output_len"][sequence].astype(np.int64) - before,
        "context": prompts + first,
        "domain": recording["domain"][sequence].astype(np.int64),
    }


def gaps(rate: float, burstiness: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Seconds between arrivals: (count,), gamma of shape `burstiness` and mean 1 / `rate`.

    Shape 1 is a Poisson process; the coefficient of variation is burstiness ** -0.5. Not clipped:
    that would change the rate.
    """
    return rng.gamma(burstiness, 1.0 / (rate * burstiness), size=count)


def arrival_times(settings: Settings, workload: Workload | LazyWorkload) -> np.ndarray | None:
    """(N,) seconds at which the requests of an open loop come; None: a closed loop."""
    if workload.closed:
        return None
    gap_s = getattr(workload, "gap_s", None)
    if gap_s is None:
        rng = np.random.default_rng(np.random.SeedSequence(settings.seed).spawn(3)[1])
        gap_s = gaps(settings.request_rate, settings.burstiness, len(workload), rng)
    return np.cumsum(gap_s)


def rows(workload: Workload | LazyWorkload) -> Iterator[tuple]:
    """Each request: number, sequence, first_output, warmup, and so on to gap_s."""
    names = ("sequence", "first_output", "warmup", "prompt_tokens", "context", "output_tokens")
    for begin in range(0, len(workload), BLOCK):
        columns = workload.block(begin, BLOCK)
        lists = [columns[name].tolist() for name in names]
        gap_s = columns["gap_s"].tolist() if "gap_s" in columns else [0.0] * len(lists[0])
        yield from zip(range(begin, begin + len(lists[0])), *lists, gap_s, strict=True)
