"""task=demo: a policy writing on the terminal, its accepted drafts in colour.

Rounds take turns between two colours, the target's own tokens stand plain. Without colours (a pipe,
NO_COLOR, a dumb terminal) the accepted drafts of every round stand in marks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from real_runner.models.loading import enough_memory
from real_runner.serving.arena import plain_workload
from real_runner.serving.live import Live, open_live
from real_runner.serving.prompts import PromptLine, places, prompt_lines
from real_runner.settings import DemoKeys, LiveSettings
from simulator.policies.loading import policy_name
from simulator.policy import Outcome
from traces.common.errors import InputError

LINES = 4  # of a prompts file, by default
COLOURS = ("bold green", "bold cyan")  # of accepted drafts, by turns
MARKS, ASCII_MARKS = ("‹", "›"), ("[", "]")
_CONTROL = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])


def run_demo(config: Mapping[str, Any], live: LiveSettings, log: Callable[[str], None]) -> None:
    """Write the texts one by one, one request at a time.

    Raises:
        InputError: the first bad key, value or file.
    """
    prompt = live.demo.prompt
    lines = prompt_lines(live) if prompt is None else [PromptLine("demo.prompt", prompt)]
    with enough_memory(lambda: "accepted: a pair that fits this device, fewer max_new_tokens"):
        opened = open_live(config, live, lines)
        sequences = shown(opened, live.demo)
        workload = plain_workload(sequences, 1)
        opened.warm_up(workload, 1)
        arena, requests = opened.arena, opened.requests
        ink, decode = Ink(), arena.pair.tokenizer.decode
        texts = [
            (decode(requests.prompt[i].tolist()) if lines is None else lines[i].text).strip()
            for i in sequences.tolist()
        ]
        names = [requests.domains[one] for one in requests.domain[sequences]]
        policy = config["policy"]
        ink.line(f"{policy_name(policy)} on {arena.pair.name}, drafter {arena.drafter.name}")
        ink.legend()
        ink.write("\n")
        headings = [f"{name}> {text}" for name, text in zip(names, texts, strict=True)]
        recital = Recital(ink, decode, headings)
        hooks = requests, recital.on_end, recital.on_step
        server = arena.server(arena.fitted(policy, 1), workload, 1, *hooks)
        recital.outputs = server.outputs
        server.run()


def shown(live: Live, asked: DemoKeys) -> np.ndarray:
    """Requests to show: lines in order, or corpus prompts of every domain by turns."""
    sequences, domain = live.sequences, live.requests.domain[live.sequences]
    if live.lines is None:
        sequences = sequences[np.lexsort((domain, places(domain)))]
        default = len(np.unique(domain))
    else:
        default = min(LINES, len(sequences))
    count = asked.count or default
    if count > len(sequences):
        raise InputError(f"demo.count is {count}; accepted: 1 to {len(sequences)}, as there are")
    return sequences[:count]


class Ink:
    """A console that writes pieces of text, drafted or not."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        able = self.console.color_system is not None and not self.console.legacy_windows
        self.coloured = able and not self.console.no_color
        encoding = self.console.encoding
        known = "".join(MARKS).encode(encoding, "ignore").decode(encoding) == "".join(MARKS)
        self.marks = MARKS if known else ASCII_MARKS

    def write(self, text: str, style: str | None = None) -> None:
        """As it is (rich would expand tabs and drop carriage returns); a style where it can be."""
        if not text:
            return
        if self.coloured:
            text = text.translate(_CONTROL)  # a model must not steer the terminal
        encoding = self.console.encoding
        text = text.encode(encoding, "replace").decode(encoding)
        if style is not None and self.coloured:
            text = Style.parse(style).render(text, color_system=ColorSystem.STANDARD)
        self.console.file.write(text)
        self.console.file.flush()

    def drafted(self, text: str, turn: int) -> None:
        """Accepted drafts of a request's round number `turn`."""
        if self.coloured:
            self.write(text, COLOURS[turn % len(COLOURS)])
        elif text:
            self.write(self.marks[0] + text + self.marks[1])

    def line(self, text: str) -> None:
        """A line of our own."""
        self.write(text + "\n", "dim")

    def legend(self) -> None:
        """What the colours or marks mean."""
        if not self.coloured:
            left, right = self.marks
            self.line(f"{left}accepted drafts of a round{right} and the target's own tokens")
            return
        for turn, word in enumerate(("accepted drafts", " of the next round")):
            self.drafted(word, turn)
        self.write(", the target's own tokens plain\n")


class Speller:
    """Tokens to text, piece by piece: a character split over tokens waits for its last one."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode, self._tokens, self._text = decode, [], ""

    def feed(self, tokens: Sequence[int]) -> str:
        """What the tokens add to the text."""
        before = self._text
        self._tokens += tokens
        text = self._decode(self._tokens)
        if text.endswith("\ufffd") or not text.startswith(before):
            return ""
        self._text = text
        return text[len(before) :]

    def rest(self) -> str:
        """What was held back, once no token follows."""
        text = self._decode(self._tokens)
        pairs = zip(text, self._text)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return text[same:]


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
    _rounds: list[Outcome] = field(default_factory=list)
    _speller: Speller | None = None

    def on_step(self, outcome: Outcome) -> None:
        """One round: accepted drafts, then the bonus or correction."""
        self._open(int(outcome.request[0]))
        committed = int(outcome.committed[0])
        new = self.outputs[self._request][-committed:]
        accepted = min(int(outcome.accepted[0]), committed)  # the text may end among them
        self.ink.drafted(self._speller.feed(new[:accepted]), len(self._rounds))
        self.ink.write(self._speller.feed(new[accepted:]))
        self._rounds.append(outcome)

    def on_end(self, request: int, tokens: list[int]) -> None:
        """The line below a text."""
        self._open(request)
        self.ink.write(self._speller.rest() + "\n")
        rounds = len(self._rounds)
        if not rounds:
            self.ink.line("-- no round: prefill's token was the last\n")
            return
        committed = sum(int(one.committed[0]) for one in self._rounds)
        nodes = sum(int(one.width[0]) for one in self._rounds)
        seconds = sum(one.step_s for one in self._rounds)
        self.ink.line(
            f"-- {rounds} rounds, {committed / rounds:.2f} tokens per round, "
            f"{nodes / rounds:.1f} nodes verified per round, {committed / seconds:.0f} tokens/s\n"
        )

    def _open(self, request: int) -> None:
        """Begin a text where it is another than before."""
        if request != self._request:
            self._request, self._rounds, self._speller = request, [], Speller(self.decode)
            self.ink.line(self.headings[request])
            self.ink.write(self._speller.feed(self.outputs[request][:1]))
