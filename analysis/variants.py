"""One label per policy; policies of one name with different settings are told apart.

A sweep over a policy's own setting (a chain of 4 and one of 8) gives runs of one name that must
not be averaged as if they were seeds. Their settings are the summary's ``policy_config`` where a
run wrote it, else the fitted values of ``policy_fit``, which may follow the load: so only runs at
one load are compared with each other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

from analysis.summaries import Summary

_LONGEST = 24  # characters of a value in a label


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
    for (policy, _), runs in groups.items():
        differing[policy] |= _differing_keys([_settings(run) for run in runs])
    return {
        run.path: _label(run.policy, _settings(run), differing[run.policy])
        for runs in groups.values()
        for run in runs
    }


def _settings(run: Summary) -> dict[str, str]:
    return dict(_flat(run.data.get("policy_config", run.data["policy_fit"])))


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


def _label(policy: str, settings: dict[str, str], keys: set[str]) -> str:
    shown = [f"{key}={_short(settings[key])}" for key in sorted(keys) if key in settings]
    return f"{policy}({', '.join(shown)})" if shown else policy


def _short(text: str) -> str:
    text = text.strip('"')
    return text if len(text) <= _LONGEST else f"#{crc32(text.encode()):08x}"
