"""Rivals and the settings that each of them may be tuned over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from simulator.policies.loading import make_policy, policy_name
from simulator.studies.options import is_path, names, read_option
from traces.common.errors import InputError
from traces.common.files import below
from traces.common.settings import Section, key, read

UNCHANGED = "published"  # setting of a policy as its YAML has it
DEPTHS = "1..D"  # in a grid: every draft depth of the recording
Values = Annotated[list[Any], Field(min_length=1)] | Literal[DEPTHS]


class ListedPolicy(Section):
    """A policy of a list, and what to try in place of its settings."""

    policy: str = key(accepted="a policy's name, or a YAML file")
    grid: dict[str, Values] | None = key(None, accepted=f"{{setting: [values]}}, or {DEPTHS}")


@dataclass(frozen=True, slots=True)
class Entrant:
    """One policy with all its settings."""

    policy: str
    setting: str  # what the grid changed
    node: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Equal for equal policies, whatever they are called."""
        return json.dumps({k: v for k, v in self.node.items() if k != "name"}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy's YAML and the values to try in place of its own, every combination."""

    policy: str
    node: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    where: str

    def entrants(self, depths: int, unchanged: str = UNCHANGED) -> list[Entrant]:
        """The YAML's own settings, called `unchanged`, and every combination, equal ones once.

        Raises:
            InputError: settings that the policy refuses.
        """
        lists = [range(1, depths + 1) if v == DEPTHS else v for v in self.grid.values()]
        tried = product(*lists) if lists else ()
        found = {}
        for changed in ({}, *(dict(zip(self.grid, values, strict=True)) for values in tried)):
            label = ", ".join(f"{key}={_short(value)}" for key, value in changed.items())
            entrant = Entrant(self.policy, label or unchanged, {**self.node, **changed})
            if entrant.key in found:
                continue
            try:
                make_policy(entrant.node)
            except InputError as error:
                where = f"{self.where}, {entrant.policy} {entrant.setting}"
                raise InputError(f"{where}: {error}") from None
            found[entrant.key] = entrant
        return list(found.values())


def _short(value: Any) -> str:
    """A ladder of one rung is its theta; other values are as they are."""
    if isinstance(value, list):
        return "+".join(map(_short, value))
    if isinstance(value, Mapping):
        return ":".join(_short(item) for item in value.values() if item is not None)
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_rivals(value: Any, where: str = "tournament.rivals") -> list[Rival]:
    """The rivals that the key `where` names.

    value: the name of a file in conf/tournament, or a list of policies, ``{policy, grid}`` and
        such names, which stand for all rivals of their file.

    Raises:
        InputError: anything else, or an unknown policy.
    """
    if isinstance(value, str):
        return _read_file(value, where)
    _check_list(value, where)
    rivals: list[Rival] = []
    for index, entry in enumerate(value):
        at = f"{where}[{index}]"
        if isinstance(entry, str) and entry in names("tournament"):
            rivals += _read_file(entry, at)
            continue
        entry = read(ListedPolicy, {"policy": entry} if isinstance(entry, str) else entry, f"{at}.")
        node = read_option("policy", entry.policy, f"{at}.policy")
        rivals.append(Rival(policy_name(node), node, entry.grid or {}, at))
    policies = [rival.policy for rival in rivals]
    twice = [policy for policy in policies if policies.count(policy) > 1]
    if twice:
        raise InputError(f"{where}: {twice[0]} stands there twice; accepted: one grid for each")
    return rivals


def _read_file(name: str, where: str) -> list[Rival]:
    value = read_option("tournament", name, where).get("rivals")
    _check_list(value, where)
    # A name in a file is a policy's, and never that of another file.
    entries = [{"policy": entry} if isinstance(entry, str) else entry for entry in value]
    for index, entry in enumerate(entries):
        policy = entry.get("policy") if isinstance(entry, Mapping) else None
        if is_path(policy) and below(policy, Path(), Path(name).parent) is None:
            raise InputError(
                f"{where}[{index}].policy is {policy!r:.80} in {name}; accepted: a policy's name, "
                "or a YAML file below that file's folder or the working one"
            )
    return read_rivals(entries, where)


def _check_list(value: Any, where: str) -> None:
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{where} is {value!r}; accepted: a list of {{policy, grid}}, or a file's name of "
            f"{', '.join(names('tournament'))}"
        )
