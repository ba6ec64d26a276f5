"""The command line of a configuration: the options nearest to it, and what differs from them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.engine.inputs import settled
from simulator.engine.settings import GROUPS, OPTIONAL, SCALARS
from simulator.studies.options import default_config, names, read_option

PROGRAM = "python -m simulator"
LOAD = ("max_concurrency",)
_WORD = re.compile(r"[A-Za-z0-9_./-]+")
_WORDS = re.compile(r"[A-Za-z0-9_./:-]+( [A-Za-z0-9_./:-]+)*")


def command_of(config: Mapping[str, Any], seeds: Sequence[int] = ()) -> str:
    """A line for a shell that runs `config`, a settled configuration, as `task=run`.

    Args:
        seeds: one run for each, in place of the configuration's; the load is then spelt out.
    """
    if not seeds:
        return " ".join([PROGRAM, *map(shlex.quote, overrides_of(config))])
    words = [word for word in overrides_of(config, LOAD) if not word.startswith("seed=")]
    words.append("seed=" + ",".join(map(str, seeds)))
    flags = ["-m"] if len(seeds) > 1 else []
    return " ".join([PROGRAM, *flags, *map(shlex.quote, words)])


def overrides_of(config: Mapping[str, Any], spelt: Sequence[str] = ()) -> list[str]:
    """The words that compose to `config`, sections of other tasks aside.

    spelt: keys that are written even where they have their default.
    """
    default, words = settled(default_config()), []
    for group in (*GROUPS, *OPTIONAL):
        if group in default:
            words += _group(group, config.get(group) or {}, default)
    for key in SCALARS:
        if key in ("task", "temperature"):
            continue
        if key in spelt or config.get(key) != default.get(key):
            words.append(f"{key}={written(config.get(key))}")
    return words


def _group(group: str, node: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """The default option where nothing else says it in fewer words.

    Others are the option that the node is called after, or all of a group without names.
    """
    found = [list(_changes(group, default[group], node))]
    for option in names(group) if found[0] else ():
        if node.get("name", option) == option:
            base = settled({group: read_option(group, option, group)})[group]
            found.append([f"{group}={option}", *_changes(group, base, node)])
    return min(found, key=len)


def _changes(path: str, base: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[str]:
    for key, value in node.items():
        at, before = f"{path}.{key}", base.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping) and value:
            yield from _changes(at, before, value)
        elif key not in base:
            yield f"++{at}={written(value)}"
        elif type(value) is not type(before) or value != before:  # 1, 1.0 and true are three
            yield f"{at}={written(value)}"
    for key in base:
        if key not in node:
            if base[key] is None:  # Hydra finds no null to delete
                yield f"{path}.{key}=0"
            yield f"~{path}.{key}"


def written(value: Any) -> str:
    """A value in the grammar of Hydra's command line."""
    if isinstance(value, str) and _WORDS.fullmatch(value) and not _means_more(value):
        return value
    return _inside(value)


def _inside(value: Any) -> str:
    """The same within a list or a mapping, where fewer characters may stand unquoted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_inside(k)}:{_inside(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_inside, value)) + "]"
    text = str(value)
    if _WORD.fullmatch(text) and not _means_more(text):
        return text
    # In single quotes; backslashes before one, or at the end, are doubled.
    return "'" + re.sub(r"(\\*)('|$)", _escaped, text) + "'"


def _escaped(found: re.Match) -> str:
    return found[1] * 2 + found[2].replace("'", "\\'")


def _means_more(text: str) -> bool:
    """Whether Hydra would read a number, a truth or nothing."""
    try:
        float(text.replace("_", ""))
    except ValueError:
        return text.lower() in ("null", "true", "false", "yes", "no", "on", "off")
    return True
