"""One text after another on the terminal, told by a live server's hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from real_runner.serving.typewriter import Ink, Speller
from simulator.policy import Outcome


@dataclass(slots=True)
class Tally:
    """Of one text."""

    rounds: int = 0
    nodes: int = 0
    committed: int = 0
    step_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one round of the only request in flight."""
        self.rounds += 1
        self.nodes += int(outcome.width[0])
        self.committed += int(outcome.committed[0])
        self.step_s += outcome.step_s

    def __str__(self) -> str:
        if not self.rounds:
            return "no round: prefill's token was the last"
        return (
            f"{self.rounds} rounds, {self.committed / self.rounds:.2f} tokens per round, "
            f"{self.nodes / self.rounds:.1f} nodes verified per round, "
            f"{self.committed / self.step_s:.0f} tokens/s"
        )


@dataclass(slots=True)
class Recital:
    """Writes every request's text while a server with one place makes it.

    Args:
        decode: output tokens to text.
        headings: what to show before the text of each request.
        outputs: of the server, by request.
    """

    ink: Ink
    decode: Callable[[list[int]], str]
    headings: list[str]
    outputs: list[list[int]] = field(default_factory=list)
    _request: int | None = None
    _tally: Tally = field(default_factory=Tally)
    _speller: Speller | None = None

    def on_step(self, outcome: Outcome) -> None:
        """One round: accepted drafts, then the bonus or correction."""
        request, committed = int(outcome.request[0]), int(outcome.committed[0])
        if request != self._request:
            self._open(request)
        new = self.outputs[request][-committed:]
        accepted = min(int(outcome.accepted[0]), committed)  # the text may end among them
        self.ink.drafted(self._speller.feed(new[:accepted]), self._tally.rounds)
        self.ink.write(self._speller.feed(new[accepted:]))
        self._tally.add(outcome)

    def on_end(self, request: int, tokens: list[int]) -> None:
        """The line below a text."""
        if request != self._request:
            self._open(request)
        self.ink.write(self._speller.rest() + "\n")
        self.ink.line(f"-- {self._tally}\n")

    def _open(self, request: int) -> None:
        self._request, self._tally, self._speller = request, Tally(), Speller(self.decode)
        self.ink.line(self.headings[request])
        self.ink.write(self._speller.feed(self.outputs[request][:1]))
