"""The composed configurations of runs: what all share, and what each policy has of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.compare import Comparison
from analysis.look import in_order, natural
from analysis.summaries import Summary
from traces.common.errors import InputError

FILE_NAME = Path(".hydra", "config.yaml")
_OF_SUMMARY = (
    "policy", "policy_config", "policy_code", "trace", "latency", "server", "max_concurrency",
    "request_rate", "burstiness", "ramp", "num_prompts", "seed", "goodput", "workload",
)  # fmt: skip

Flat = dict[str, str]  # dotted key, value as JSON


@dataclass(frozen=True, slots=True)
class Configs:
    """Of several runs."""

    shared: Flat
    by_label: dict[str, dict[str, list[str]]]  # keys that differ: their values over its runs
    without_file: int  # runs whose folder lacks a configuration: read from the summary


def read_configs(comparison: Comparison) -> Configs:
    """Every run's configuration, sorted into what is the same in all and what is not.

    Raises:
        InputError: a configuration that is damaged.
    """
    found: list[tuple[str, Flat]] = []
    missing = 0
    for block in comparison.blocks:
        for row in block.rows:
            for run in row.runs:
                flat = _of_folder(run)
                missing += flat is None
                found.append((row.label, _of_summary(run) if flat is None else flat))
    shared = _shared([flat for _, flat in found])
    own: dict[str, dict[str, set[str]]] = {}
    for label, flat in found:
        values = own.setdefault(label, {})
        for key, value in flat.items():
            if key not in shared:
                values.setdefault(key, set()).add(value)
    by_label = {
        label: {key: sorted(own[label][key], key=natural) for key in own[label]}
        for label in in_order(own)
    }
    return Configs(shared, by_label, missing)


def _shared(every: Sequence[Flat]) -> Flat:
    first = every[0]
    same = {key for key in first if all(one.get(key) == first[key] for one in every)}
    return {key: first[key] for key in first if key in same}


def _of_folder(run: Summary) -> Flat | None:
    from traces.common.yaml import load_yaml

    path = run.path.parent / FILE_NAME
    if not path.is_file():
        return None
    try:
        node = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: unreadable, expected the configuration of a run") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds {node!r:.40}, expected the configuration of a run")
    return dict(_flat(node))


def _of_summary(run: Summary) -> Flat:
    return dict(_flat({key: run.data[key] for key in _OF_SUMMARY if key in run.data}))


def _flat(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, default=str, ensure_ascii=False)
