"""What arrives: which sequence each request is, when it is sent, and by whom.

One random stream per purpose, so that every policy sees the same requests at the same times.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.settings import Settings
from traces.recording import Recording

if TYPE_CHECKING:
    import simpy

    from simulator.server import Server


@dataclass(frozen=True, slots=True)
class Workload:
    """The N requests of a run, in the order they are sent."""

    sequence: np.ndarray  # (N,) sequence of the recording
    first_output: np.ndarray  # (N,) outputs that exist before the request starts, 0 if none
    warmup: np.ndarray  # (N,) bool: a client's first request, which starts somewhere in the middle
    gap_s: np.ndarray | None  # (N,) seconds from the request before; None: closed loop
    clients: int | None  # of a closed loop

    def __len__(self) -> int:
        return len(self.sequence)


def make_workload(
    settings: Settings, recording: Recording | None, sequences: np.ndarray
) -> Workload:
    """Requests over `sequences` (indices of the recording), from the seed alone.

    Without a recording nobody starts in the middle of a text: there is none yet.

    Request i is the i-th sequence of a shuffle that repeats, whatever the policy and the load.
    """
    shuffle, arrivals, offsets = map(
        np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(3)
    )
    count = settings.requests
    sequence = shuffle.permutation(sequences)[np.arange(count) % len(sequences)]
    first, warmup, gap_s = np.zeros(count, np.int64), np.zeros(count, bool), None
    if not settings.closed_loop:
        gap_s = gaps(settings.request_rate, settings.burstiness, count, arrivals)
    elif recording is not None:
        # Clients join a server that has been running: copies of a text must not march in lockstep.
        warmup = np.arange(count) < settings.max_concurrency
        anchors = recording.anchor_counts[sequence]
        first = np.where(warmup, (offsets.random(count) * anchors).astype(np.int64), 0)
    clients = settings.max_concurrency if settings.closed_loop else None
    return Workload(sequence, first, warmup, gap_s, clients)


def gaps(rate: float, burstiness: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Seconds between arrivals: (count,), gamma of shape `burstiness` and mean 1 / `rate`.

    Shape 1 is a Poisson process; the coefficient of variation is burstiness ** -0.5. Not clipped:
    that would change the rate.
    """
    return rng.gamma(burstiness, 1.0 / (rate * burstiness), size=count)


def start(workload: Workload, env: simpy.Environment, server: Server) -> None:
    """Start the processes that send the requests to `server`."""
    if workload.gap_s is not None:
        env.process(_arrivals(env, server, workload.gap_s))
        return
    waiting = iter(range(len(workload)))
    for _ in range(workload.clients):
        env.process(_client(server, waiting))


def _arrivals(env: simpy.Environment, server: Server, gap_s: np.ndarray) -> Generator:
    """Open loop: the next request comes when its gap is over, whatever the server does."""
    for request, gap in enumerate(gap_s.tolist()):
        yield env.timeout(gap)
        server.submit(request)


def _client(server: Server, waiting: Iterator[int]) -> Generator:
    """Closed loop: send the next waiting request, wait for its last token, repeat."""
    for request in waiting:
        yield server.submit(request)
