"""Options of the configuration by name: `conf/GROUP/NAME.yaml`, or a YAML file anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import simulator
from traces.common.errors import InputError
from traces.common.yaml import load_yaml

CONF = Path(simulator.__file__).resolve().parents[1] / "conf"
FILES = {"trace": ("recording", (".safetensors", ".json")), "latency": ("profile", (".csv",))}
HERE = "@_here_"
LONGEST = 32_768  # characters of a file


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
    path, known = CONF / group / f"{name}.yaml", names(group)
    if is_path(name):
        path = Path(name)
    if not path.is_file() or (name not in known and not is_path(name)):
        known = ", ".join(known)
        raise InputError(f"{where} is {name!r}; accepted: a path to a YAML file, or {known}")
    node = read_yaml(path)
    _check_plain(path, node)
    base: dict[str, Any] = {}
    for start in node.pop("defaults", None) or ():  # options it starts from, as Hydra reads them
        if str(start).endswith(HERE):  # /NAME@_here_: a file beside the groups
            base = _merged(base, read_yaml(CONF / f"{start[1:].removesuffix(HERE)}.yaml"))
        elif start != "_self_":
            base = _merged(base, read_option(group, start, f"{group}.defaults"))
    return _merged(base, node)


def _merged(base: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    found = base | node
    for key in base.keys() & node.keys():
        if isinstance(base[key], dict) and isinstance(node[key], dict):
            found[key] = _merged(base[key], node[key])
    return found


def policy_node(name: str, **settings: Any) -> dict[str, Any]:
    """A node of conf/policy, changed."""
    return {**read_option("policy", name, "policy"), **settings}


def one_theta(theta: float) -> dict[str, Any]:
    """TreeSpark with the same threshold at every load."""
    return policy_node("treespark", ladder=[{"max_batch": None, "theta": theta}])


def read_like(group: str, name: Any, like: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same, where a recording or a profile in a file may stand too: then `like` with it.

    Raises:
        InputError: see `read_option`.
    """
    key, endings = FILES[group]
    if not str(name).endswith(endings):
        return read_option(group, name, where)
    return {**like, key: name} | ({"name": None} if group == "latency" else {})


def read_listed(
    group: str, listed: Sequence[str] | None, own: Mapping[str, Any], where: str
) -> dict[str, Mapping[str, Any]]:
    """The nodes of listed names by name (see `read_like`); None: the configured one alone."""
    if listed is None:
        return {str(own.get("name") or own.get("profile") or own.get("recording")): own}
    return {name: read_like(group, name, own, where) for name in listed}


def default_config() -> dict[str, Any]:
    """What `python -m simulator` runs where nothing is given, without Hydra's own section."""
    node = read_yaml(CONF / "config.yaml")
    chosen = [one for one in node.pop("defaults") if isinstance(one, Mapping)]
    node.pop("hydra", None)
    groups = {group: name for entry in chosen for group, name in entry.items() if name}
    own = {group: name for group, name in groups.items() if not group.startswith("override ")}
    return {group: read_option(group, name, group) for group, name in own.items()} | node


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys of a YAML file.

    Raises:
        InputError: a file that cannot be read, or holds no keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > LONGEST:
            raise ValueError(f"{len(text)} characters, more than {LONGEST}")
        node = load_yaml(text)
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{path}: no YAML that can be read ({reason})") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds no keys; accepted: KEY: VALUE lines")
    return node


def _check_plain(path: Path, node: Any) -> None:
    """Values are plain, keys of one mapping are names or numbers, texts stand for themselves."""
    if isinstance(node, dict):
        kinds = {float if type(key) is int else type(key) for key in node}
        if not kinds <= {str} and not kinds <= {float}:
            raise InputError(f"{path}: keys {list(node)!r:.60}; accepted: names, or numbers")
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            _check_plain(path, inner)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{path}: holds {node!r:.60}; accepted: texts without interpolations")
    elif type(node) not in (str, int, float, bool, type(None)):
        raise InputError(f"{path}: holds {str(node)!r:.60}; accepted: plain values")
