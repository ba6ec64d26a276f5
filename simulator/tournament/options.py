"""Nodes of a policy, trace or latency profile by the name of their file under conf/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import simulator
from simulator.latency_file import LONGEST
from traces.errors import InputError
from traces.plain_yaml import load_yaml

CONF = Path(simulator.__file__).resolve().parents[1] / "conf"
FILES = {"trace": ("recording", (".safetensors", ".json")), "latency": ("profile", (".csv",))}


def names(group: str) -> list[str]:
    """Options of a group, sorted."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def is_path(name: Any) -> bool:
    """Whether a name is the path of a YAML file."""
    return isinstance(name, str) and name.endswith((".yaml", ".yml"))


def read_option(group: str, name: Any, where: str) -> dict[str, Any]:
    """The node in conf/`group`/`name`.yaml, or in a YAML file anywhere.

    Raises:
        InputError: beginning with `where`, for a name that is none.
    """
    path = Path(name) if is_path(name) else CONF / group / f"{name}.yaml"
    if not isinstance(name, str) or not path.is_file():
        known = ", ".join(names(group))
        raise InputError(f"{where} is {name!r}; accepted: a path to a YAML file, or {known}")
    return _read(path)


def read_like(group: str, name: Any, like: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same, where a recording or a profile in a file may stand too: then `like` with it.

    Raises:
        InputError: see `read_option`.
    """
    key, endings = FILES[group]
    if not str(name).endswith(endings):
        return read_option(group, name, where)
    return {**like, key: name} | ({"name": None} if group == "latency" else {})


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > LONGEST:
            raise ValueError(f"{len(text)} characters, more than {LONGEST}")
        node = load_yaml(text)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no YAML that can be read ({_first_line(error)})") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds no keys; accepted: KEY: VALUE lines")
    _check_plain(path, node)
    return node


def _check_plain(path: Path, node: Any) -> None:
    """Values are plain, keys of one mapping are names or numbers, texts stand for themselves."""
    if isinstance(node, dict):
        kinds = {float if type(key) is int else type(key) for key in node}
        if not kinds <= {str} and not kinds <= {float}:
            raise InputError(f"{path}: keys {list(node)!r:.60}; accepted: names, or numbers")
        for inner in node.values():
            _check_plain(path, inner)
    elif isinstance(node, list):
        for inner in node:
            _check_plain(path, inner)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{path}: holds {node!r:.60}; accepted: texts without interpolations")
    elif type(node) not in (str, int, float, bool, type(None)):
        raise InputError(f"{path}: holds {str(node)!r:.60}; accepted: plain values")


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())
