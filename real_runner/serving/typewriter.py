"""Text on the terminal as it is written: accepted drafts in colour, the target's own tokens plain.

Rounds take turns between two colours. Without colours (a pipe, NO_COLOR, a dumb terminal) the
accepted drafts of every round stand in marks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

COLOURS = ("bold green", "bold cyan")  # of accepted drafts, by turns
MARKS, ASCII_MARKS = ("‹", "›"), ("[", "]")
_CONTROL = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])


class Ink:
    """A console that writes pieces of text, drafted or not."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        able = self.console.color_system is not None and not self.console.legacy_windows
        self.coloured = able and not self.console.no_color
        self.marks = MARKS if self._can_write("".join(MARKS)) else ASCII_MARKS

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
        if not text:
            return
        if self.coloured:
            self.write(text, COLOURS[turn % len(COLOURS)])
        else:
            self.write(self.marks[0] + text + self.marks[1])

    def line(self, text: str, style: str = "dim") -> None:
        """A line of our own."""
        self.write(text + "\n", style)

    def legend(self) -> None:
        """What the colours or marks mean."""
        if not self.coloured:
            left, right = self.marks
            self.line(f"{left}accepted drafts of a round{right} and the target's own tokens")
            return
        for turn, word in enumerate(("accepted drafts", " of the next round")):
            self.drafted(word, turn)
        self.write(", the target's own tokens plain\n")

    def _can_write(self, text: str) -> bool:
        try:
            text.encode(self.console.encoding)
        except UnicodeEncodeError:
            return False
        return True


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
        same = 0
        while same < min(len(text), len(self._text)) and text[same] == self._text[same]:
            same += 1
        return text[same:]
