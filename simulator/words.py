"""From the words of a command line to those that Hydra understands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import simulator
from simulator.latency_file import ENDINGS, is_file, overrides_of
from traces.catalog import known_recordings
from traces.errors import InputError
from traces.plain_yaml import load_yaml

# The checkout's conf/, and in a wheel the package's neighbour: the same place from here.
CONF = Path(simulator.__file__).resolve().parents[1] / "conf"
GROUPS = ("policy", "trace", "latency", "server", "experiment")
FILES = {"trace": ("recording", (".safetensors", ".json")), "latency": ("profile", (".csv",))}
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
        if equals and key.lstrip("+") in GROUPS:
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
