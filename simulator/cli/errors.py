"""One line for everything a user can get wrong, also where Hydra finds it first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.cli.overrides import OPTION_GROUPS, other_forms
from simulator.engine.settings import GROUPS, OPTIONAL, SCALARS
from simulator.studies.settings import SECTIONS
from traces.common.errors import InputError, near_note, unknown
from traces.common.files import disk_line

# ---------------- What to say about a key that a configuration does not have.


TOP = (*GROUPS, *OPTIONAL, "experiment", *SCALARS, "objective", "direction", *SECTIONS)
MOST = 6  # options in a refusal
_OVERRIDE = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")


def key_of(error: Exception) -> str | None:
    """The key that Hydra could not override or delete; None for another error."""
    found = _OVERRIDE.search(str(error))
    return found[1] if found else None


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
    if "." not in key or node not in (*GROUPS, *OPTIONAL, *SECTIONS):
        return unknown(key, TOP)
    config = composed([word for word in words if _chooses(word)])
    option = config.hydra.runtime.choices.get(node)
    changed = any(
        word.lstrip("+").startswith((f"{node}.recording=", f"{node}.profile=")) for word in words
    )
    of = f" of {node}={option}" if option and not changed else ""
    return unknown(key, _beside(config, key), of, _elsewhere(node, key, option))


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
    from simulator.studies.options import names, read_option

    if group in SECTIONS:
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


PLUGINS = {"hydra/launcher": {"ray": "ray"}, "hydra/sweeper": {}}  # extras of groups of Hydra's


def one_line(error: BaseException, keys: Sequence[str] | None = None) -> str | None:
    """What to print after ``error:``; None for an error that is ours, not the user's.

    `keys` are the accepted keys of a command line other than the simulator's.
    """
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, InputError):
        return _flat(str(error))
    if isinstance(error, OSError) and (line := disk_line(error)) is not None:
        return line
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not KEY=VALUE that Hydra can read ({_flat(error.message)})"
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _unknown_key(error, keys) or _flat(f"{error} {_cause(error)}")
    return None


def _missing_option(error) -> str:
    """An option that the group does not have."""
    group, option = _group_and_option(str(error.missing_cfg_file or ""))
    if not group or not error.options:
        return _flat(str(error))
    accepted = ", ".join(sorted(error.options))
    if group in PLUGINS:
        extra = PLUGINS[group].get(option, "sweep")
        accepted += f"; more with pip install 'specsim[{extra}]'"
    note = near_note(option, error.options)
    return f"{group} is {option!r}; accepted: {accepted}{other_forms(group, option)}{note}"


def _group_and_option(text: str) -> tuple[str, str]:
    """Of GROUP/OPTION; Hydra takes the folders of a path for a group of their own."""
    group, _, option = text.partition("/")
    if group in OPTION_GROUPS:
        return group, option
    group, _, option = text.rpartition("/")
    return group, option


def _unknown_key(error: Exception, keys: Sequence[str] | None) -> str | None:
    """A key or a group that no configuration has."""
    text = str(error)
    group = re.search(r"Could not override '([^']+)'\.\s*No match in the defaults list", text)
    if group:
        return f"unknown group {group[1]}; see --help for groups and keys"
    found = key_of(error)
    if found is None:
        return None
    if found.startswith("hydra"):
        return unknown(found, ["what --cfg hydra shows"])
    return unknown(found, keys or TOP)


def _cause(error: Exception) -> str:
    return str(error.__cause__ or "")


def _flat(text: str) -> str:
    return " ".join(text.split())


REFUSED = 2  # exit status of bad input
CRASHED = 1  # of a fault of ours
