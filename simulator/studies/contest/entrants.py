"""Rivals and the settings that each of them may be tuned over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from simulator.policies.loading import make_policy, policy_name
from simulator.studies.options import is_path, names, read_option
from traces.common.errors import InputError
from traces.common.files import below

UNCHANGED = "published"  # setting of a policy as its YAML has it
DEPTHS = "1..D"  # in a grid: every draft depth of the recording


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
        found = {}
        for changed in ({}, *self._combinations(depths)):
            node = {**self.node, **changed}
            entrant = Entrant(self.policy, _label(changed) or unchanged, node)
            if entrant.key not in found:
                self._checked(entrant)
                found[entrant.key] = entrant
        return list(found.values())

    def _combinations(self, depths: int) -> Iterator[dict[str, Any]]:
        if not self.grid:
            return
        lists = [range(1, depths + 1) if v == DEPTHS else v for v in self.grid.values()]
        for values in product(*lists):
            yield dict(zip(self.grid, values, strict=True))

    def _checked(self, entrant: Entrant) -> None:
        try:
            make_policy(entrant.node)
        except InputError as error:
            raise InputError(f"{self.where}, {entrant.policy} {entrant.setting}: {error}") from None


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
        file = isinstance(entry, str) and entry in names("tournament")
        rivals += _read_file(entry, at) if file else [_read_rival(at, entry)]
    twice = [r.policy for i, r in enumerate(rivals) if r.policy in [q.policy for q in rivals[:i]]]
    if twice:
        raise InputError(f"{where}: {twice[0]} stands there twice; accepted: one grid for each")
    return rivals


def _read_file(name: str, where: str) -> list[Rival]:
    value = read_option("tournament", name, where).get("rivals")
    _check_list(value, where)
    entries = [_whole_entry(entry) for entry in value]
    for index, entry in enumerate(entries):
        policy = entry.get("policy") if isinstance(entry, Mapping) else None
        if is_path(policy) and below(policy, Path(), Path(name).parent) is None:
            raise InputError(
                f"{where}[{index}].policy is {policy!r:.80} in {name}; accepted: a policy's name, "
                "or a YAML file below that file's folder or the working one"
            )
    return read_rivals(entries, where)


def _whole_entry(entry: Any) -> Any:
    """A policy's name as an entry of its own: in a file it never means another file."""
    return {"policy": entry} if isinstance(entry, str) else entry


def _check_list(value: Any, where: str) -> None:
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{where} is {value!r}; accepted: a list of {{policy, grid}}, or a file's name of "
            f"{', '.join(names('tournament'))}"
        )


def _read_rival(where: str, entry: Any) -> Rival:
    if isinstance(entry, str):
        entry = {"policy": entry}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("policy"), str):
        raise InputError(f"{where} is {entry!r}; accepted: a policy's name, or {{policy, grid}}")
    unknown = [key for key in entry if key not in ("policy", "grid")]
    if unknown:
        raise InputError(f"unknown key {where}.{unknown[0]}; accepted: policy, grid")
    name, grid = entry["policy"], _read_grid(f"{where}.grid", entry.get("grid"))
    if name not in names("policy") and not is_path(name):
        raise InputError(
            f"{where}.policy is {name!r}; accepted: {', '.join(names('policy'))}, or a YAML file"
        )
    node = read_option("policy", name, f"{where}.policy")
    return Rival(policy_name(node), node, grid, where)


def _read_grid(where: str, grid: Any) -> dict[str, Sequence[Any]]:
    if grid is None:
        return {}
    if not isinstance(grid, Mapping):
        raise InputError(f"{where} is {grid!r}; accepted: {{setting: [values]}}")
    for key, values in grid.items():
        if not isinstance(key, str):
            raise InputError(f"{where} has the key {key!r:.40}; accepted: names of settings")
        if values != DEPTHS and not (isinstance(values, list) and values):
            raise InputError(
                f"{where}.{key} is {values!r}; accepted: a list of values, or {DEPTHS}"
            )
    return dict(grid)


def _label(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_short(value)}" for key, value in changed.items())


def _short(value: Any) -> str:
    """A ladder of one rung is its theta; other values are as they are."""
    if isinstance(value, list):
        return "+".join(map(_short, value))
    if isinstance(value, Mapping):
        return ":".join(_short(item) for item in value.values() if item is not None)
    return str(value).lower() if isinstance(value, bool) else str(value)
