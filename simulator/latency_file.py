"""``latency=FILE.yaml``: a configuration of one's own, such as `python -m analysis cost` writes.

The file's keys are those of a file under ``conf/latency``. They become overrides of the group's
default, in the place of the word: what it leaves out stays at the default, and words that come
after it override it. The tables that it names lie below its own folder or the working one: a file
that somebody else wrote opens no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.named_paths import below
from traces.plain_yaml import load_yaml

ENDINGS = (".yaml", ".yml")
LONGEST = 32_768  # characters: Hydra takes seconds to read more
HEADER = {"hardware", "model", "drafter", "engine", "timing", "source"}  # of a profile
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PATHS = ("profile", "roofline.calibrate")  # keys whose value may be the path of a table


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
    settings = dict(_flat("", node))
    for key in _PATHS:
        _check_path(path, key, settings.get(key))
    return [f"++latency.{key}={literal(item)}" for key, item in settings.items()]


def _check_path(path: Path, key: str, value: Any) -> None:
    if not isinstance(value, str) or (key == "profile" and not value.endswith(".csv")):
        return  # a shipped name, or refused where it is read
    if below(value, Path(), path.parent) is None:
        raise InputError(
            f"{path}: {key} is {value!r:.80}; accepted: a table below the file's folder or the "
            "working one"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > LONGEST:
            raise ValueError(f"{len(text)} characters, more than {LONGEST}")
        node = load_yaml(text)
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(
            f"{path}: no latency configuration that can be read ({reason}); accepted: a YAML file "
            "like those under conf/latency"
        ) from error
    if not isinstance(node, dict) or not all(isinstance(key, str) for key in node):
        raise InputError(f"{path}: holds {node!r:.60}; accepted: KEY: VALUE lines")
    if "profile" not in node and "roofline" not in node and len(HEADER & node.keys()) > 1:
        raise InputError(f"{path}: a profile's header; accepted: its table, {path.stem}.csv")
    _check_plain(path, node)
    return node


def _check_plain(path: Path, node: Any) -> None:
    """Keys are names, and texts stand for themselves: nothing that Hydra reads another way."""
    if isinstance(node, Mapping):
        for key, item in node.items():
            if not (isinstance(key, str) and _KEY.fullmatch(key)):
                raise InputError(f"{path}: key {key!r:.60}; accepted: names of settings")
            _check_plain(path, item)
    elif isinstance(node, list):
        for item in node:
            _check_plain(path, item)
    elif isinstance(node, str) and ("${" in node or not node.isprintable()):
        raise InputError(f"{path}: holds {node!r:.60}; accepted: plain texts of one line")


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
