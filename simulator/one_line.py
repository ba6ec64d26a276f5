"""One line for everything a user can get wrong, also where Hydra finds it first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traces.disk import disk_line
from traces.errors import InputError

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
    group, _, option = str(error.missing_cfg_file or "").rpartition("/")
    if not group or not error.options:
        return _flat(str(error))
    accepted = ", ".join(sorted(error.options))
    if group in PLUGINS:
        extra = PLUGINS[group].get(option, "sweep")
        accepted += f"; more with pip install 'specsim[{extra}]'"
    return f"{group} is {option!r}; accepted: {accepted}"


def _unknown_key(error: Exception, keys: Sequence[str] | None) -> str | None:
    """A key or a group that no configuration has."""
    text = str(error)
    group = re.search(r"Could not override '([^']+)'\.\s*No match in the defaults list", text)
    if group:
        return f"unknown group {group[1]}; see --help for groups and keys"
    found = re.search(r"Could not override '([^']+)'", text)
    if not found:
        return None
    accepted = ", ".join(keys) if keys else _accepted(found[1])
    return f"unknown key {found[1]}; accepted: {accepted}"


def _accepted(key: str) -> str:
    """Keys beside the unknown one, where they are fixed."""
    from simulator.settings import GROUPS, KNOWN, SCALARS

    node = key.partition(".")[0]
    if node in KNOWN and "." in key:
        return ", ".join(f"{node}.{name}" for name in KNOWN[node])
    if node == "hydra":
        return "what --cfg hydra shows"
    if node in GROUPS:
        return f"the keys of the chosen {node}; see --cfg job"
    return ", ".join((*GROUPS, *SCALARS))


def _cause(error: Exception) -> str:
    return str(error.__cause__ or "")


def _flat(text: str) -> str:
    return " ".join(text.split())
