"""Nodes of a policy, trace or latency profile by the name of their file under conf/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.plain_yaml import load_yaml

CONF = Path(__file__).resolve().parents[2] / "conf"
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
    from omegaconf import OmegaConf
    from yaml import YAMLError

    try:
        load_yaml(path.read_text(encoding="utf-8"))  # refuses what no configuration needs
        node = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, ValueError, YAMLError) as error:
        raise InputError(f"{path}: no YAML that can be read ({_first_line(error)})") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds no keys; accepted: KEY: VALUE lines")
    return node


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())
