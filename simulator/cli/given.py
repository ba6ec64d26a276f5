"""What a configuration sets: values that are neither the default's nor the chosen options' own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from simulator.engine.settings import GROUPS, OF_TASKS, OPTIONAL, SCALARS
from simulator.studies.contest.entrants import CONF, names, read_option

# What a group's option is called by, or the file in its place.
_CALLED = {
    "policy": ("name",),
    "trace": ("recording",),
    "latency": ("name", "profile"),
    "workload": ("name",),
    "server": (),
}
_SILENT = ("_target_", "at_temperature", "provenance")  # part of an option, never set by itself


def given(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting that `config`, as composed, does not have by default, by its key.

    A group's option is one setting, the group's; a key of it is another where its value is not
    the option's own.
    """
    default, found = defaults(), {}
    for group in (*GROUPS, *OPTIONAL):
        found |= _of_group(group, config.get(group) or {}, default[group])
    for key in SCALARS:
        if key in config and key != "task" and config[key] != default.get(key):
            found[key] = config[key]
    for task in OF_TASKS:
        found |= dict(_changed(task, config.get(task) or {}, default[task]))
    return found


@cache
def defaults() -> dict[str, Any]:
    """The configuration of ``python -m simulator`` without a word."""
    from omegaconf import OmegaConf

    file = OmegaConf.load(CONF / "config.yaml")
    own = OmegaConf.masked_copy(file, [key for key in file if key not in ("defaults", "hydra")])
    chosen = {}
    for entry in OmegaConf.to_container(file.defaults):
        chosen |= entry if isinstance(entry, dict) else {}
    options = {group: _option(group, chosen[group]) for group in (*GROUPS, *OPTIONAL)}
    return {**OmegaConf.to_container(own, resolve=True), **options}


@cache
def _option(group: str, name: str) -> dict[str, Any]:
    return read_option(group, name, group)


def _of_group(group: str, node: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    called, usual = (_called(group, one) for one in (node, default))
    found = {} if called == usual else {group: called}
    base = _option(group, called) if called in names(group) else default
    if group == "policy" and called not in names(group):
        return found  # a user's own: its own values are not known
    skipped = (*_CALLED[group], *_SILENT, "name")
    own = {key: value for key, value in node.items() if key not in skipped}
    return found | dict(_changed(group, own, base))


def _called(group: str, node: Mapping[str, Any]) -> Any:
    """The option's name, or the file's."""
    called = next((node[key] for key in _CALLED[group] if node.get(key) is not None), None)
    if group != "trace":
        return called
    options = (name for name in names(group) if _option(group, name)["recording"] == called)
    return next(options, called)


def _changed(path: str, node: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator:
    for key, value in node.items():
        at, before = f"{path}.{key}", base.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            yield from _changed(at, value, before)
        elif value != before:
            yield at, value
