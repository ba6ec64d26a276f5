"""One label per policy; policies of one name with different settings or sources are told apart.

A sweep over a policy's own setting (a chain of 4 and one of 8) gives runs of one name that must
not be averaged as if they were seeds; nor must those of a policy that was edited in between, or of
two classes of one name. Their settings are the summary's ``policy_config`` where a run wrote it,
else the fitted values of ``policy_fit``, which may follow the load: so only runs at one load are
compared with each other. Class and source are those of ``policy_code``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from analysis.summaries import Summary

CLASS, SOURCE = "_class", "_source"  # beside a policy's settings, of which none begins with _
_LONGEST = 24  # characters of a value in a label
_HASH = 8


def label_policies(
    summaries: Iterable[Summary], load: Callable[[Summary], Hashable]
) -> dict[Path, str]:
    """Label of every run by its path: the policy's name, and what sets it apart.

    Args:
        summaries: the runs.
        load: what two runs share when they differ in policy and seed alone.
    """
    groups: dict[Hashable, list[Summary]] = defaultdict(list)
    for run in summaries:
        groups[run.policy, load(run)].append(run)
    differing: dict[str, set[str]] = defaultdict(set)
    settings: dict[str, list[dict[str, str]]] = defaultdict(list)
    for (policy, _), runs in groups.items():
        own = [_settings(run) for run in runs]
        differing[policy] |= _differing_keys(own)
        settings[policy] += own
    shown = {name: _needed(keys, settings[name]) for name, keys in differing.items()}
    shorter = {name: _short_classes(own) for name, own in settings.items()}
    return {
        run.path: _label(run.policy, _settings(run), shown[run.policy], shorter[run.policy])
        for runs in groups.values()
        for run in runs
    }


def code_of(run: Summary) -> dict[str, str]:
    """The policy's class and the sha256 of its source, as far as the summary says."""
    code = run.data.get("policy_code") or {}
    found = {CLASS: code.get("target"), SOURCE: code.get("sha256")}
    return {key: value for key, value in found.items() if value}


def _settings(run: Summary) -> dict[str, str]:
    return dict(_flat(run.data.get("policy_config", run.data["policy_fit"]))) | code_of(run)


def _flat(node: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Dotted key and JSON text of every leaf; keys that start with _ are Hydra's own."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif not key.startswith("_"):
            yield prefix + key, json.dumps(value)


def _differing_keys(settings: list[dict[str, str]]) -> set[str]:
    keys = {key for one in settings for key in one}
    return {key for key in keys if len({one.get(key) for one in settings}) > 1}


def _needed(keys: set[str], settings: Sequence[dict[str, str]]) -> set[str]:
    """Without the source where the class says which."""
    sources: dict[str | None, set[str | None]] = defaultdict(set)
    for one in settings:
        sources[one.get(CLASS)].add(one.get(SOURCE))
    told = CLASS in keys and all(len(own) == 1 for own in sources.values())
    return keys - {SOURCE} if told else keys


def _short_classes(settings: Sequence[dict[str, str]]) -> dict[str, str]:
    """Of a policy's classes, the last part of each name while that tells them apart."""
    classes = {one[CLASS] for one in settings if CLASS in one}
    last = {name: name.rpartition(".")[2] for name in classes}
    return last if len(set(last.values())) == len(classes) else {name: name for name in classes}


def _label(policy: str, settings: dict[str, str], keys: set[str], classes: dict[str, str]) -> str:
    def value(key: str) -> str:
        if key == CLASS:
            return classes[settings[key]]
        return settings[key][:_HASH] if key == SOURCE else _short(settings[key])

    shown = [f"{key.lstrip('_')}={value(key)}" for key in sorted(keys) if key in settings]
    return f"{policy}({', '.join(shown)})" if shown else policy


def _short(text: str) -> str:
    text = text.strip('"')
    return text if len(text) <= _LONGEST else f"#{crc32(text.encode()):08x}"
