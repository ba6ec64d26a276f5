"""What is written beside the code: links lead somewhere, commands compose."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from simulator.cli.overrides import normalised
from simulator.studies.options import CONF

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in ("runs", "outputs") for part in path.parts)
)
README = ROOT / "README.md"
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"(?:python -m )?simulator ((?:[^`#|\n]|\|(?! ))*)")
# What only a reader has.
OTHERS = ("--config-dir", "--help", "FILE", "NAME", "...", "my_", "azure.csv")


def anchor(heading: str) -> str:
    """What a heading is called in links to it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    lines = page.read_text(encoding="utf-8").splitlines()
    return {anchor(line.lstrip("#")) for line in lines if line.startswith("#")}


def commands(page: Path) -> list[str]:
    """The simulator's own, from fenced blocks and from `code`."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = []
    for part in [line for block in fenced for line in block.splitlines()] + inline:
        match = COMMAND.match(" ".join(part.split()))
        if match and not any(word in match[1] for word in OTHERS):
            found.append(match[1].strip())
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, part in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        found = page if not target else (page.parent / target).resolve()
        assert found.exists(), target
        if part:
            assert part in anchors(found), f"{target}#{part}"


def test_commands_are_found():
    """The patterns above still see what they are for."""
    found = commands(README)
    assert "+policy=cast" in found
    assert any("task=tournament" in one for one in found)
    assert len(found) > 10


@pytest.mark.parametrize(
    "command", sorted({one for page in PAGES for one in commands(page)}), ids=str
)
def test_commands_compose(command):
    """Every key exists, and every option of a group; of a sweep, its first run."""
    words = shlex.split(command.partition(" > ")[0].partition(" 2>")[0])
    words = [word for word in words if word != "-m" and not word.startswith("hydra")]
    overrides = []
    for word in normalised(words):
        key, equals, value = word.partition("=")
        if not value.startswith(("[", "{", "range(", "glob(", "interval(")):
            value = value.split(",")[0]
        elif value.startswith(("range(", "glob(", "interval(")):
            continue
        overrides.append(key + equals + value)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("config", overrides) is not None
