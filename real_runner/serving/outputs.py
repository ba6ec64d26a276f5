"""outputs.jsonl: what a live run wrote, one line for every request as it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self, TextIO

import numpy as np

from real_runner.engine.models import LivePair
from real_runner.serving.requests import Requests
from simulator.engine.arrivals import Workload
from simulator.policy import Outcome
from simulator.results.files import REQUESTS, STEPS, SUMMARY

OUTPUTS = "outputs.jsonl"


class OutputLog:
    """Writes and flushes a line per finished request, so that a run that is cut short keeps them.

    An earlier run's results stay in `folder` until the first request ends, and go then: the files
    there are always of one run.
    """

    def __init__(
        self, folder: Path, pair: LivePair, requests: Requests, workload: Workload
    ) -> None:
        self.folder, self.pair, self.requests, self.workload = folder, pair, requests, workload
        self.rounds, self.accepted, self.nodes = np.zeros((3, len(workload)), np.int64)
        self.written = 0
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def on_step(self, outcome: Outcome) -> None:
        """Count a step's rounds."""
        self.rounds[outcome.request] += 1
        self.accepted[outcome.request] += outcome.accepted
        self.nodes[outcome.request] += outcome.width

    def on_end(self, request: int, tokens: list[int]) -> None:
        """Write the line of a request."""
        if self._file is None:
            self._file = self._begin()
        line = json.dumps(self._line(request, tokens), ensure_ascii=False)
        self._file.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
        self._file.flush()
        self.written += 1

    def _begin(self) -> TextIO:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (SUMMARY, REQUESTS, STEPS, OUTPUTS):  # the summary, which vouches, first
            (self.folder / name).unlink(missing_ok=True)
        return (self.folder / OUTPUTS).open("w", encoding="utf-8", newline="\n")

    def _line(self, request: int, tokens: list[int]) -> dict:
        sequence = int(self.workload.sequence[request])
        ended = tokens[-1] in self.pair.target.eos_tokens
        return {
            "request": request,
            "prompt": sequence,
            "domain": self.requests.domains[self.requests.domain[sequence]],
            "text": self.pair.tokenizer.decode(tokens),
            "tokens": len(tokens),
            "finish_reason": "stop" if ended else "length",
            "rounds": int(self.rounds[request]),
            "accepted": int(self.accepted[request]),
            "draft_nodes": int(self.nodes[request]),
        }
