"""From the words of a command line to those that Hydra understands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from simulator.studies.options import CONF, FILES, read_yaml
from traces.common.errors import InputError
from traces.common.files import below
from traces.common.yaml import load_yaml
from traces.recordings.catalog import known_recordings

ENDINGS = (".yaml", ".yml")
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
    from simulator.studies.contest.command_line import written

    path = Path(value)
    node = {"name": path.stem, **_read(path)}
    settings = dict(_flat("", node))
    for key in _PATHS:
        _check_path(path, key, settings.get(key))
    return [f"++latency.{key}={written(item)}" for key, item in settings.items()]


def _check_path(path: Path, key: str, value: Any) -> None:
    if not isinstance(value, str) or (key == "profile" and not value.endswith(".csv")):
        return  # a shipped name, or refused where it is read
    if below(value, Path(), path.parent) is None:
        raise InputError(
            f"{path}: {key} is {value!r:.80}; accepted: a table below the file's folder or the "
            "working one"
        )


def _read(path: Path) -> dict[str, Any]:
    node = read_yaml(path)
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


OPTION_GROUPS = ("policy", "trace", "latency", "server", "experiment")
KEYS = {"tournament": "tournament.rivals"}  # folders of conf/ whose files a key names
BESIDE = ("objective", "direction")  # keys that the configuration need not have
_UNQUOTED = re.compile(r"[A-Za-z0-9_./-]+")


def normalised(words: Sequence[str]) -> list[str]:
    """`words` as Hydra wants them.

    ``+policy=cast`` becomes ``policy=cast``, as the group is in the defaults list, and a file in
    place of a group's option (``trace=my.safetensors``, ``latency=my.csv``) the key it belongs to,
    or all keys that a ``latency=my.yaml`` holds; as does the name of a tournament's rivals
    (``tournament=published``). The name of a shipped recording becomes the option that has it.

    Raises:
        InputError: files and options mixed in one sweep.
    """
    result = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.lstrip("+") in OPTION_GROUPS:
            result += _group(key.lstrip("+"), value)
        elif equals and key.lstrip("+") in KEYS:
            result.append(f"{KEYS[key.lstrip('+')]}={value}")
        elif equals and key.lstrip("+") in BESIDE:
            result.append(f"++{key.lstrip('+')}={value}")
        else:
            result.append(word)
    return result


def _group(key: str, value: str) -> list[str]:
    if key == "latency" and is_file(value):
        return overrides_of(value)
    field, endings = FILES.get(key, ("", ()))
    values = value.split(",")
    files = [bool(endings) and item.endswith(endings) for item in values]
    if not any(files):
        if key == "trace":
            values = [_option_of(item) for item in values]
        return [f"{key}={','.join(values)}"]
    if not all(files):
        raise InputError(f"{key}={value}: accepted: options of the group, or files, not both")
    listed = ",".join(map(quoted, values))
    # The group's default keeps its other keys; its name would be another profile's.
    return [f"{key}.{field}={listed}"] + ([f"{key}.name=null"] if key == "latency" else [])


def _option_of(name: str) -> str:
    """The option whose recording is called so, where none is called so itself."""
    return name if name not in known_recordings() else _options().get(name, name)


@cache
def _options() -> dict[str, str]:
    """The option of every recording that one of the group's files names."""
    paths = sorted((CONF / "trace").glob("*.yaml"), reverse=True)  # the shorter name counts
    found = {
        load_yaml(path.read_text(encoding="utf-8")).get("recording"): path.stem for path in paths
    }
    return found | {path.stem: path.stem for path in paths}


def quoted(text: str) -> str:
    """A value of Hydra's grammar."""
    if _UNQUOTED.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def other_forms(group: str, value: str) -> str:
    """What a refusal of ``group=value`` adds to the options that there are."""
    field, endings = FILES.get(group, ("", ()))
    note = f", or a {field}'s file ({' or '.join(endings)})" if endings else ""
    there = [value + ending for ending in endings if Path(value + ending).is_file()]
    if there:
        return f"{note}; there is a file {there[0]}: {group}={there[0]}"
    if value.endswith(ENDINGS):
        name = Path(value).stem
        note += f"; a file of one's own: --config-dir FOLDER with FOLDER/{group}/{name}.yaml"
    return note


def typed(override: Any) -> tuple[str, str]:
    """Key and value as they stand on the command line."""
    key, _, value = override.input_line.lstrip("+").partition("=")
    groups = {f"{group}.{field}": group for group, (field, _) in FILES.items()}
    return groups.get(key, key), value
