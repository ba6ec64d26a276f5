"""One line for everything a user can get wrong, also where Hydra finds it first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.cli.overrides import OPTION_GROUPS, other_forms
from simulator.engine.settings import GROUPS, OPTIONAL, SCALARS
from simulator.studies.options import names, read_option
from simulator.studies.settings import SECTIONS
from traces.common.errors import InputError, near_note, unknown
from traces.common.files import disk_line
from traces.common.settings import value_at

REFUSED = 2  # exit status of bad input
CRASHED = 1  # of a fault of ours
TOP = (*GROUPS, *OPTIONAL, "experiment", *SCALARS, "objective", "direction", *SECTIONS)
MOST = 6  # options in a refusal
PLUGINS = {"hydra/launcher": {"ray": "ray"}, "hydra/sweeper": {}}  # extras of groups of Hydra's
_OVERRIDE = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")
_NO_GROUP = re.compile(r"Could not override '([^']+)'\.\s*No match in the defaults list")


def one_line(error: BaseException, keys: Sequence[str] | None = None) -> str | None:
    """What to print after ``error:``; None for an error that is ours, not the user's.

    `keys` are the accepted keys of a command line other than the simulator's.
    """
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, InputError):
        return _flat(str(error))
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, OSError):
        return disk_line(error)
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not KEY=VALUE that Hydra can read ({_flat(error.message)})"
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    if group := _NO_GROUP.search(str(error)):
        return f"unknown group {group[1]}; see --help for groups and keys"
    if key := _OVERRIDE.search(str(error)):
        hydras = key[1].startswith("hydra")
        return unknown(key[1], ["what --cfg hydra shows"] if hydras else keys or TOP)
    return _flat(f"{error} {error.__cause__ or ''}")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _missing_option(error) -> str:
    """An option that the group does not have."""
    text = str(error.missing_cfg_file or "")
    group, _, option = text.partition("/")
    if group not in OPTION_GROUPS:  # Hydra takes the folders of a path for a group of their own
        group, _, option = text.rpartition("/")
    if not group or not error.options:
        return _flat(str(error))
    accepted = ", ".join(sorted(error.options))
    if group in PLUGINS:
        extra = PLUGINS[group].get(option, "sweep")
        accepted += f"; more with pip install 'specsim[{extra}]'"
    note = near_note(option, error.options)
    return f"{group} is {option!r}; accepted: {accepted}{other_forms(group, option)}{note}"


# ---------------- What to say about a key that a configuration does not have.


def explained(
    error: Exception, words: Sequence[str], composed: Callable[[Sequence[str]], Any]
) -> str | None:
    """The line about the key of one of `words` that Hydra does not know; None for another error.

    composed: from words to a configuration, Hydra's node in it.
    """
    found = _OVERRIDE.search(str(error))
    if found is None or "defaults list" in str(error) or found[1].startswith("hydra"):
        return None
    key, choosing = found[1], (*GROUPS, *OPTIONAL, "experiment", "hydra.searchpath")
    group = key.partition(".")[0]
    if "." not in key or group not in (*GROUPS, *OPTIONAL, *SECTIONS):
        return unknown(key, TOP)
    config = composed([word for word in words if word.partition("=")[0] in choosing])
    option = config.hydra.runtime.choices.get(group)
    files = (f"{group}.recording=", f"{group}.profile=")
    changed = any(word.lstrip("+").startswith(files) for word in words)
    of = f" of {group}={option}" if option and not changed else ""
    return unknown(key, _beside(config, key), of, _elsewhere(group, key, option))


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
    parent, _, last = key.rpartition(".")
    known = []
    for name in names(group) if group not in SECTIONS else ():
        node = value_at({group: read_option(group, name, group)}, parent)
        if name != option and isinstance(node, Mapping) and last in node:
            known.append(name)
    return f"; known with {group}={' or '.join(known)}" if 0 < len(known) <= MOST else ""
