"""`--help`: groups, settings and tasks, in the words of ``conf/config.yaml``; and `--version`."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

import hydra

from simulator.cli.overrides import OPTION_GROUPS
from simulator.studies.options import CONF
from traces.common.yaml import load_yaml

SHOWN = (*OPTION_GROUPS[:3], "workload", *OPTION_GROUPS[3:], "tournament")
BESIDE = {"tournament": "null  # policies to compare, and their settings: tournament=published"}
PACKAGE = "specsim"
_FROM, _TO = "# Load,", "hydra:"  # of the lines of config.yaml that are settings
_MARK = "  - "  # of those that choose an option


def help_text(config_dir: str | None = None) -> str:
    """What `--help` prints. config_dir: a folder with more options of the groups."""
    text = (CONF / "config.yaml").read_text(encoding="utf-8")
    lines = [line.removeprefix(_MARK) for line in text.splitlines() if line.startswith(_MARK)]
    said = dict(line.split(": ", 1) for line in lines if ": " in line) | BESIDE
    folders = [CONF, *([Path(config_dir)] if config_dir else [])]
    groups = []
    for group in SHOWN:
        default, _, meaning = said[group].partition("  # ")
        note = "" if default == "null" else f"; default: {default}"
        options = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
        groups += [f"# {meaning}{note}", f"{group}: {', '.join(sorted(options))}"]
    settings = text[text.index(_FROM) : text.index(f"\n{_TO}")].rstrip()
    template = Template(load_yaml(text)["hydra"]["help"]["template"])
    return template.substitute(GROUPS="\n".join(groups), SETTINGS=settings)


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
