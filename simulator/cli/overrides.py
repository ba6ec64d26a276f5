"""Words of the command line as Hydra wants them: files in place of a group's option above all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from simulator.studies.contest.command_line import written
from simulator.studies.options import FILES, is_path, names, read_option, read_yaml
from traces.common.errors import InputError
from traces.common.files import below
from traces.recordings.catalog import known_recordings

OPTION_GROUPS = ("policy", "trace", "latency", "server", "experiment")
KEYS = {"tournament": "tournament.rivals"}  # folders of conf/ whose files a key names
BESIDE = ("objective", "direction")  # keys that the configuration need not have
HEADER = {"hardware", "model", "drafter", "engine", "timing", "source"}  # of a profile
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PATHS = ("profile", "roofline.calibrate")  # keys whose value may be the path of a table


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
        key = key.lstrip("+")
        if equals and key in OPTION_GROUPS:
            result += _group(key, value)
        elif equals and key in KEYS:
            result.append(f"{KEYS[key]}={value}")
        elif equals and key in BESIDE:
            result.append(f"++{key}={value}")
        else:
            result.append(word)
    return result


def _group(key: str, value: str) -> list[str]:
    values = value.split(",")
    if key == "latency" and any(map(is_path, values)):
        return overrides_of(value)
    field, endings = FILES.get(key, ("", ()))
    files = [bool(endings) and item.endswith(endings) for item in values]
    if not any(files):
        known = known_recordings() if key == "trace" else ()
        found = [_recorded().get(item, item) if item in known else item for item in values]
        return [f"{key}={','.join(found)}"]
    if not all(files):
        raise InputError(f"{key}={value}: accepted: options of the group, or files, not both")
    listed = ",".join(map(written, values))
    # The group's default keeps its other keys; its name would be another profile's.
    return [f"{key}.{field}={listed}"] + ([f"{key}.name=null"] if key == "latency" else [])


@cache
def _recorded() -> dict[str, str]:
    """The option of every recording that an option names or is called like; the shorter counts."""
    options = sorted(names("trace"), reverse=True)
    found = {read_option("trace", name, "trace").get("recording"): name for name in options}
    return found | {name: name for name in options}


# ---------------- A file of latency settings in place of an option.


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
    node = read_yaml(path)
    if "profile" not in node and "roofline" not in node and len(HEADER & node.keys()) > 1:
        raise InputError(f"{path}: a profile's header; accepted: its table, {path.stem}.csv")
    _check_plain(path, node)
    settings = dict(_flat("", {"name": path.stem, **node}))
    for key in _PATHS:
        table = settings.get(key)
        # Else a shipped name, or refused where it is read.
        named = isinstance(table, str) and (key != "profile" or table.endswith(".csv"))
        if named and below(table, Path(), path.parent) is None:
            raise InputError(
                f"{path}: {key} is {table!r:.80}; accepted: a table below the file's folder or the "
                "working one"
            )
    return [f"++latency.{key}={written(item)}" for key, item in settings.items()]


def _check_plain(path: Path, node: Any) -> None:
    """Keys are names, and texts stand for themselves: nothing that Hydra reads another way."""
    if isinstance(node, Mapping):
        for key in node:
            if not (isinstance(key, str) and _KEY.fullmatch(key)):
                raise InputError(f"{path}: key {key!r:.60}; accepted: names of settings")
        node = list(node.values())
    if isinstance(node, list):
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


# ---------------- Words to show.


def other_forms(group: str, value: str) -> str:
    """What a refusal of ``group=value`` adds to the options that there are."""
    field, endings = FILES.get(group, ("", ()))
    note = f", or a {field}'s file ({' or '.join(endings)})" if endings else ""
    there = [value + ending for ending in endings if Path(value + ending).is_file()]
    if there:
        return f"{note}; there is a file {there[0]}: {group}={there[0]}"
    if is_path(value):
        name = Path(value).stem
        note += f"; a file of one's own: --config-dir FOLDER with FOLDER/{group}/{name}.yaml"
    return note


def typed(override: Any) -> tuple[str, str]:
    """Key and value as they stand on the command line."""
    key, _, value = override.input_line.lstrip("+").partition("=")
    groups = {f"{group}.{field}": group for group, (field, _) in FILES.items()}
    return groups.get(key, key), value
