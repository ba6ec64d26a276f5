"""``latency=FILE.yaml``: a configuration of one's own, such as `python -m analysis cost` writes.

The file's keys are those of a file under ``conf/latency``. They become overrides of the group's
default, in the place of the word: what it leaves out stays at the default, and words that come
after it override it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from traces.errors import InputError

ENDINGS = (".yaml", ".yml")


def is_file(value: str) -> bool:
    """Whether a group's option is such a file, or several of them."""
    return any(item.endswith(ENDINGS) for item in value.split(","))


def overrides_of(value: str) -> list[str]:
    """The file's settings as words for Hydra.

    Raises:
        InputError: a file that is no mapping or cannot be read, or several of them.
    """
    if "," in value:
        raise InputError(
            f"latency={value}: accepted: one file; sweep over files as options of a folder: "
            "--config-dir FOLDER, with FOLDER/latency/NAME.yaml, latency=NAME,NAME"
        )
    path = Path(value)
    node = {"name": path.stem, **_read(path)}
    return [f"++latency.{key}={literal(item)}" for key, item in _flat("", node)]


def _read(path: Path) -> dict[str, Any]:
    try:
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(
            f"{path}: no latency configuration that can be read ({reason}); accepted: a YAML file "
            "like those under conf/latency"
        ) from error
    if not isinstance(node, dict) or not all(isinstance(key, str) for key in node):
        raise InputError(f"{path}: holds {node!r:.60}; accepted: KEY: VALUE lines")
    return node


def _flat(prefix: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, item in node.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(f"{prefix}{key}.", item)
        else:
            yield f"{prefix}{key}", item


def literal(value: Any) -> str:
    """`value` as Hydra's grammar writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    text = str(value).replace("\n", " ").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
