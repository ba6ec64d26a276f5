"""Settings that are given and change nothing; `idle_rules` has the table of what each needs.

Nothing is refused for them, so that one file of settings serves several tasks; who gives one is
told so before the work begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from simulator.cli.given import given
from simulator.cli.idle_rules import PUBLISHED, READ_BY, RULES, Config, value_at
from simulator.studies.contest.command_line import written

SHOWN = 3  # values of a swept setting


def idle(configs: Sequence[Config]) -> Iterator[str]:
    """A line for every reason why settings of the jobs `configs` change nothing in any of them."""
    values = _values(configs)
    reasons: dict[str, list[str]] = {}
    for key in values:
        why = _why_idle(key, configs)
        if why is not None:
            reasons.setdefault(why, []).append(key)
    for why, keys in reasons.items():
        shown = [f"{key}={_shown(values[key])}" for key in _outermost(keys)]
        yield f"no effect of {', '.join(shown)}; {why}"


def _values(configs: Iterable[Config]) -> dict[str, list[Any]]:
    """What the jobs set, by key: the different values."""
    found: dict[str, list[Any]] = {}
    for config in configs:
        for key, value in given(config).items():
            known = found.setdefault(key, [])
            if value not in known:
                known.append(value)
    return found


def _why_idle(key: str, configs: Sequence[Config]) -> str | None:
    """The first job's reason; None where one of the jobs would look at it."""
    found = [_reason(key, config) for config in configs]
    return None if None in found else found[0]


def _reason(key: str, config: Config) -> str | None:
    task, group = config.get("task", "run"), key.partition(".")[0]
    readers = READ_BY[key if key in READ_BY else group].split()
    if task not in readers:
        return f"task={task} does not read it, task={readers[0]} does"
    table = value_at(config, "published.table")
    if task == "published" and group not in (task, *PUBLISHED.get(table, ())):
        return f"published.table={table} does not read it"
    for rule in RULES:
        below = any(one.endswith(".") and key.startswith(one) for one in rule.keys)
        if (key in rule.keys or below) and not rule.counts(config):
            return f"what would make it count: {rule.where}"
    return None


def _outermost(keys: Sequence[str]) -> list[str]:
    """Without keys of a group that is itself among them."""
    groups = [key for key in keys if "." not in key]
    return [key for key in keys if key in groups or key.partition(".")[0] not in groups]


def _shown(values: Sequence[Any]) -> str:
    more = ",..." if len(values) > SHOWN else ""
    return ",".join(map(written, values[:SHOWN])) + more
