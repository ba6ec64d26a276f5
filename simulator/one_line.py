"""One line for everything a user can get wrong, also where Hydra finds it first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.unknown_key import TOP, key_of, unknown_key, with_near
from simulator.words import GROUPS, other_forms
from traces.disk import disk_line
from traces.errors import InputError
from traces.near import near_note

PLUGINS = {"hydra/launcher": {"ray": "ray"}, "hydra/sweeper": {}}  # extras of groups of Hydra's


def one_line(error: BaseException, keys: Sequence[str] | None = None) -> str | None:
    """What to print after ``error:``; None for an error that is ours, not the user's.

    `keys` are the accepted keys of a command line other than the simulator's.
    """
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, InputError):
        return with_near(_flat(str(error)))
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
    if group in GROUPS:
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
        return unknown_key(found, ["what --cfg hydra shows"])
    return unknown_key(found, keys or TOP)


def _cause(error: Exception) -> str:
    return str(error.__cause__ or "")


def _flat(text: str) -> str:
    return " ".join(text.split())
