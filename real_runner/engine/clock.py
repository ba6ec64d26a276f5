"""Seconds of the phases of a step, measured without waiting for the device."""

from __future__ import annotations

import time
from typing import Self

import torch

DEVICE = ("draft", "verify")  # phases that the device's clock measures where there is one
PHASES = ("draft", "order", "allocate", "verify", "commit")


class PhaseClock:
    """Marks on the host's clock, and on the device's where there is one.

    Call `start`, then the name of every phase as it ends; `read` once the step's tokens are on the
    host, when the events of draft and verify have passed. On a device, these two are its own time
    between events; the others are the host's.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, float, torch.cuda.Event | None]] = []

    def start(self) -> Self:
        """Begin a step."""
        self._marks = []
        return self.mark("start")

    def mark(self, phase: str) -> Self:
        """The phase called `phase` has ended on the host."""
        event = None
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks.append((phase, time.perf_counter(), event))
        return self

    def read(self) -> dict[str, float]:
        """Seconds by phase (0 where it did not happen) and their `total` by the host's clock."""
        seconds = dict.fromkeys(PHASES, 0.0)
        for before, after in zip(self._marks, self._marks[1:]):
            if not self._cuda or after[0] not in DEVICE:
                seconds[after[0]] += after[1] - before[1]
        if self._cuda:
            for before, after in zip(self._marks, self._marks[1:]):
                if after[0] in DEVICE:
                    # Passed already, as its tokens are on the host; commit is not waited for.
                    after[2].synchronize()
                    seconds[after[0]] += before[2].elapsed_time(after[2]) * 1e-3
        seconds["total"] = self._marks[-1][1] - self._marks[0][1]
        return seconds
