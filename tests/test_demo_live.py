"""The demo on the terminal: exactly the text, with and without colours."""

from __future__ import annotations

import io
import json
import re

import pytest

torch = pytest.importorskip("torch")

from rich.console import Console

from real_runner.app import main
from real_runner.tasks.demo import ASCII_MARKS, MARKS, Ink, Speller
from tests.tiny_pair import continuation

PROMPT = "Problem: Ann has 3 pens, Bo has 4 (in all). How many pens?\nAnswer:"
CODES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def text(pair) -> str:
    """Greedy decoding of the prompt, token by token."""
    return pair.tokenizer.decode(continuation(pair.target, pair.tokenizer.encode(PROMPT), 20))


@pytest.fixture(autouse=True)
def plain(loaded, monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def demo(*words: str) -> int:
    return main(["task=demo", "max_new_tokens=20", *words])


def body(out: str) -> str:
    """What stands between the prompt and the line of numbers."""
    return out.partition(PROMPT + "\n")[2].partition("\n-- ")[0]


def unmarked(out: str) -> str:
    """The body without its marks."""
    return body(out).translate({ord(mark): None for mark in MARKS})


def test_without_colours_it_is_the_text_and_the_marks(text, capsys):
    assert demo(f"demo.prompt={PROMPT}") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert f"{MARKS[0]}accepted drafts of a round{MARKS[1]} and the target's own" in out
    assert unmarked(out) == text
    numbers = re.search(
        r"-- (\d+) rounds, ([\d.]+) tokens per round, ([\d.]+) nodes verified per round, "
        r"\d+ tokens/s\n",
        out,
    )
    rounds, tokens = int(numbers[1]), float(numbers[2])
    assert rounds * tokens == pytest.approx(19, abs=0.005 * rounds)  # prefill wrote the first
    assert 0 < body(out).count(MARKS[0]) <= rounds


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_and_no_color(text, no_color, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    assert demo(f"demo.prompt={PROMPT}", "policy=fixed_chain") == 0
    out = capsys.readouterr().out
    assert ("\x1b[1;32m" in out and "\x1b[1;36m" in out) is not no_color
    assert (MARKS[0] in out) is no_color
    assert unmarked(CODES.sub("", out)) == text


def test_one_prompt_of_every_domain_and_a_file(here, capsys):
    two = "record.small.domains=[report,arithmetic]"
    assert demo("policy=autoregressive", "max_new_tokens=1", two) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+)> ", out, re.M) == ["report", "arithmetic"]
    assert out.count("-- no round: prefill's token was the last") == 2
    rows = [{"prompt": f"Problem: {n} cups.", "domain": f"d{n}"} for n in range(6)]
    (here / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert demo("policy=autoregressive", "prompts=p.jsonl", "max_new_tokens=2") == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+)> (.*)$", out, re.M) == [
        (f"d{n}", f"Problem: {n} cups.") for n in range(4)
    ]
    assert out.count("-- 1 rounds, 1.00 tokens per round, 0.0 nodes") == 4


def test_a_character_split_over_tokens_waits_for_its_last_byte():
    speller = Speller(lambda tokens: bytes(tokens).decode("utf-8", "replace"))
    pieces = [speller.feed([byte]) for byte in "aé€".encode()]
    assert pieces == ["a", "", "é", "", "", "€"]
    assert speller.rest() == ""
    assert speller.feed([0xE2]) == ""
    assert speller.rest() == "\ufffd"  # the text ends in the middle of a character


def test_marks_that_the_terminal_cannot_write_are_ascii():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ink = Ink(Console(file=out))
    ink.drafted("hé", 0)
    out.seek(0)
    assert out.read() == f"{ASCII_MARKS[0]}h?{ASCII_MARKS[1]}"


def test_a_model_cannot_steer_the_terminal():
    out = io.StringIO()
    ink = Ink(Console(file=out, force_terminal=True, color_system="standard"))
    ink.write("a\x1b[2Jb\tc\n\x9b5mé")
    assert out.getvalue() == "a[2Jb\tc\n5mé"
