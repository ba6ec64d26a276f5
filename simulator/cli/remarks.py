"""Settings that are given and change nothing: a line each, before the work begins.

Nothing is refused for them, so that one file of settings serves several tasks. What reads a key,
and when it counts, stands where the key is declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from simulator.cost.settings import LatencySettings
from simulator.engine.settings import GROUPS, OPTIONAL, SCALARS
from simulator.studies.contest.command_line import written
from simulator.studies.options import default_config, names, read_option
from simulator.studies.settings import SECTIONS, Configuration, names_csv
from traces.common.settings import (
    Condition,
    Config,
    Meta,
    Section,
    given,
    meta_of,
    section_of,
    value_at,
)

SHOWN = 3  # values of a swept setting
# What a group's option is called by, or the file in its place.
_CALLED = {
    "policy": ("name",),
    "trace": ("recording",),
    "latency": ("name", "profile"),
    "workload": ("name",),
    "server": (),
}
_SILENT = ("_target_", "at_temperature", "provenance", "name")  # never set by themselves
# What a table of `task=published` reads; the default one nothing.
_PLAYED = ("trace", "temperature", "latency", "server", "workload", "num_prompts", "seed")
PUBLISHED = {
    "cast_mass": ("trace", "temperature"),
    "dspark_lengths": ("trace", "temperature", "latency"),
    "treespark_budget": ("trace", "temperature", "latency"),
    "treespark_load": _PLAYED,
    "treespark_theta": (*_PLAYED, "max_concurrency"),
    "dspark_cliff": _PLAYED,
}
_NO_WIDTH = Condition(
    "policy.width=null, or measured",
    lambda config: not isinstance(value_at(config, "policy.width"), int),
)
_BEST_FIRST = Condition(
    "policy.widths=null and policy.branching=null",
    lambda config: not given("policy.widths", "policy.branching").holds(config),
)
# Policies declare their settings as arguments; these are the shipped ones'.
POLICY_SETTINGS = {
    "force_calibration": given("policy.calibration"),
    "mass_curve": _NO_WIDTH,
    "charge_draft": _NO_WIDTH,
    "nodes": _BEST_FIRST,
    "branch": _BEST_FIRST,
    "tail_chain": given("policy.widths"),
}


def remarks(configs: Sequence[Config]) -> Iterator[str]:
    """A line for every reason why settings of the jobs `configs` change nothing in any of them."""
    values: dict[str, list[Any]] = {}
    for config in configs:
        for key, value in set_in(config).items():
            known = values.setdefault(key, [])
            known += [] if value in known else [value]
    reasons: dict[str, list[str]] = {}
    for key in values:
        found = [_reason(key, config) for config in configs]
        if None not in found:
            reasons.setdefault(found[0], []).append(key)
    for why, keys in reasons.items():
        whole = [key for key in keys if "." not in key]  # groups; their keys are not said again
        outer = [key for key in keys if key in whole or key.partition(".")[0] not in whole]
        yield f"no effect of {', '.join(f'{key}={_shown(values[key])}' for key in outer)}; {why}"


def _shown(values: Sequence[Any]) -> str:
    more = ",..." if len(values) > SHOWN else ""
    return ",".join(map(written, values[:SHOWN])) + more


# ---------------- Why a setting does not count.


def _reason(key: str, config: Config) -> str | None:
    """None where it counts."""
    task, group = config.get("task", "run"), key.partition(".")[0]
    declared = _declared(key)
    readers = next((one.read_by for one in reversed(declared) if one.read_by), group).split()
    if task not in readers:
        return f"task={task} does not read it, task={readers[0]} does"
    table = value_at(config, "published.table")
    if task == "published" and group not in (task, *PUBLISHED.get(table, ())):
        return f"published.table={table} does not read it"
    own = POLICY_SETTINGS.get(key.removeprefix("policy.")) if group == "policy" else None
    conditions = [own] if own else []
    conditions += [one for meta in declared for one in meta.counts] + _free(key, task)
    failed = (one for one in conditions if not one.holds(config))
    return next((f"what would make it count: {one.words}" for one in failed), None)


def _declared(key: str) -> list[Meta]:
    """What is declared of a key and of the group it is in, the group's first."""
    group, *path = key.split(".")
    found = [] if group in SECTIONS else [meta_of(Configuration, group)]
    model: type[Section] | None = SECTIONS.get(group)
    model = LatencySettings if group == "latency" else model or section_of(Configuration, group)
    for name in path:
        if model is None or name not in model.model_fields:
            break
        found.append(meta_of(model, name))
        model = section_of(model, name)
    return found


def _free(key: str, task: str) -> list[Condition]:
    """That no key of the task stands in the place of this one."""
    section, group = SECTIONS.get(task), key.partition(".")[0]
    places = {key, group if group in ("policy", "latency") else key}  # their keys go with them
    by = [
        f"{task}.{name}"
        for name in (section.model_fields if section else ())
        if places & set(meta_of(section, name).replaces.split())
    ]

    def holds(config: Config) -> bool:
        others = [value_at(config, one) for one in by]
        return any(one is None or (group == "latency" and names_csv(one)) for one in others)

    more = ", or a .csv there" if group == "latency" else ""
    return [Condition(" or ".join(f"{one}=null" for one in by) + more, holds)] if by else []


# ---------------- What a configuration sets.


def set_in(config: Config) -> dict[str, Any]:
    """Every setting that `config`, as composed, does not have by default, by its key.

    A group's option is one setting, the group's; a key of it is another where its value is not
    the option's own.
    """
    default, found = defaults(), {}
    for group in (*GROUPS, *OPTIONAL):
        node = config.get(group) or {}
        called, usual = _called(group, node), _called(group, default[group])
        if called != usual:
            found[group] = called
        shipped = called in names(group)
        if group == "policy" and not shipped:
            continue  # a user's own: its own values are not known
        base = _option(group, called) if shipped else default[group]
        skipped = (*_CALLED[group], *_SILENT)
        own = {key: value for key, value in node.items() if key not in skipped}
        found |= _changed(group, own, base)
    for key in SCALARS:
        if key in config and key != "task" and config[key] != default.get(key):
            found[key] = config[key]
    for task in SECTIONS:
        found |= _changed(task, config.get(task) or {}, default[task])
    return found


defaults = cache(default_config)


@cache
def _option(group: str, name: str) -> dict[str, Any]:
    return read_option(group, name, group)


def _called(group: str, node: Config) -> Any:
    """The option's name, or the file's."""
    called = next((node[key] for key in _CALLED[group] if node.get(key) is not None), None)
    if group != "trace":
        return called
    options = (name for name in names(group) if _option(group, name)["recording"] == called)
    return next(options, called)


def _changed(path: str, node: Config, base: Config) -> dict[str, Any]:
    """Values that are not those of `base`, by their key below `path`."""
    found = {}
    for key, value in node.items():
        at, before = f"{path}.{key}", base.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            found |= _changed(at, value, before)
        elif value != before:
            found[at] = value
    return found
