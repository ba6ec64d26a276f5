"""What to say about a key that a configuration does not have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from simulator.settings import GROUPS, OF_TASKS, OPTIONAL, SCALARS
from traces.near import near_note

TOP = (*GROUPS, *OPTIONAL, "experiment", *SCALARS, "objective", "direction", *OF_TASKS)
MOST = 6  # options in a refusal
_OVERRIDE = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")
_REFUSAL = re.compile(r"unknown key (\S+); accepted: ([^;]+)")


def key_of(error: Exception) -> str | None:
    """The key that Hydra could not override or delete; None for another error."""
    found = _OVERRIDE.search(str(error))
    return found[1] if found else None


def unknown_key(key: str, accepted: Iterable[str], of: str = "", more: str = "") -> str:
    """The line. of: what lacks the key; more: what else to try."""
    names = list(accepted)
    listed = ", ".join(names) or "none"
    return f"unknown key {key}{of}; accepted: {listed}{_near(key, names)}{more}"


def with_near(text: str) -> str:
    """A refusal of an unknown key, with the accepted keys that are spelt like it."""
    found = _REFUSAL.fullmatch(text)
    return text if found is None else text + _near(found[1], found[2].split(", "))


def _near(key: str, names: Sequence[str]) -> str:
    """Without the prefix that they share, which would make all of them near."""
    prefix = key[: key.rfind(".") + 1]
    own = [name.removeprefix(prefix) for name in names]
    return near_note(key.removeprefix(prefix), own, prefix if own != list(names) else "")


def explained(
    error: Exception, words: Sequence[str], composed: Callable[[Sequence[str]], Any]
) -> str | None:
    """The line about the key of one of `words` that Hydra does not know; None for another error.

    composed: from words to a configuration, Hydra's node in it.
    """
    key = key_of(error)
    if key is None or "defaults list" in str(error) or key.startswith("hydra"):
        return None
    node = key.partition(".")[0]
    if "." not in key or node not in (*GROUPS, *OPTIONAL, *OF_TASKS):
        return unknown_key(key, TOP)
    config = composed([word for word in words if _chooses(word)])
    option = config.hydra.runtime.choices.get(node)
    changed = any(
        word.lstrip("+").startswith((f"{node}.recording=", f"{node}.profile=")) for word in words
    )
    of = f" of {node}={option}" if option and not changed else ""
    return unknown_key(key, _beside(config, key), of, _elsewhere(node, key, option))


def _chooses(word: str) -> bool:
    """Whether the word chooses an option of a group, or says where options lie."""
    key = word.partition("=")[0]
    return key in (*GROUPS, *OPTIONAL, "experiment") or key.startswith("hydra.searchpath")


def _beside(config: Any, key: str) -> list[str]:
    """Keys of the innermost mapping on the way to `key` that is there."""
    at, node = "", config
    for part in key.split(".")[:-1]:
        if part not in node or not hasattr(node[part], "keys"):
            break
        at, node = f"{at}{part}.", node[part]
    return [at + str(name) for name in node if not str(name).startswith("_")]


def _elsewhere(group: str, key: str, option: str | None) -> str:
    """The shipped options of the group that have the key."""
    from simulator.tournament.options import names, read_option

    if group in OF_TASKS:
        return ""
    path = key.split(".")[1:]
    known = [
        name
        for name in names(group)
        if name != option and _has(read_option(group, name, group), path)
    ]
    return f"; known with {group}={' or '.join(known)}" if 0 < len(known) <= MOST else ""


def _has(node: Any, path: Sequence[str]) -> bool:
    for part in path:
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True
