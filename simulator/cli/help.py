"""`--help`: groups, settings and tasks, in the words of ``conf/config.yaml``; and `--version`."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

import hydra

from simulator.cli.overrides import CONF, OPTION_GROUPS
from traces.common.yaml import load_yaml

SHOWN = (*OPTION_GROUPS[:3], "workload", *OPTION_GROUPS[3:], "tournament")
BESIDE = {"tournament": "null  # policies to compare, and their settings: tournament=published"}
PACKAGE = "specsim"
_FROM, _TO = "# Load,", "hydra:"  # of the lines of config.yaml that are settings
_MARK = "  - "


def help_text(config_dir: str | None = None) -> str:
    """What `--help` prints. config_dir: a folder with more options of the groups."""
    text = (CONF / "config.yaml").read_text(encoding="utf-8")
    folders = [CONF, *([Path(config_dir)] if config_dir else [])]
    start, end = text.index(_FROM), text.index(f"\n{_TO}")
    parts = {"GROUPS": _groups(text, folders), "SETTINGS": text[start:end].rstrip()}
    return Template(load_yaml(text)["hydra"]["help"]["template"]).substitute(parts)


def _groups(text: str, folders: list[Path]) -> str:
    """What each group is, its default, and its options on a line of their own."""
    said = dict(line.removeprefix(_MARK).split(": ", 1) for line in _defaults(text)) | BESIDE
    lines = []
    for group in SHOWN:
        default, _, meaning = said[group].partition("  # ")
        note = "" if default == "null" else f"; default: {default}"
        lines += [f"# {meaning}{note}", f"{group}: {', '.join(_options(group, folders))}"]
    return "\n".join(lines)


def _defaults(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(_MARK) and ": " in line]


def _options(group: str, folders: list[Path]) -> list[str]:
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def version_line() -> str:
    """Of this package, as its checkout says or as it was installed, and of Hydra."""
    file = CONF.parent / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        own = project["version"] if project["name"] == PACKAGE else None
    except (OSError, ValueError, KeyError):
        own = None
    try:
        own = own or version(PACKAGE)
    except PackageNotFoundError:
        own = "of unknown version"
    return f"{PACKAGE} {own} (Hydra {hydra.__version__})"
