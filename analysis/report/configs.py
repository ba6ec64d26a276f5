"""The composed configurations of runs: what all share, and what each policy has of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.compare.comparison import Comparison
from analysis.compare.settings import differing
from analysis.look import in_order, natural
from traces.common.errors import InputError
from traces.common.yaml import load_yaml

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
    runs, missing = comparison.runs, 0
    found: list[tuple[str, Flat]] = []
    for label, path, data in zip(runs["label"], runs["path"], runs["data"], strict=True):
        node = _of_folder(path.parent / FILE_NAME)
        missing += node is None
        if node is None:
            node = {key: data[key] for key in _OF_SUMMARY if key in data}
        found.append((label, dict(_flat(node))))
    apart = differing([flat for _, flat in found])
    own: dict[str, dict[str, set[str]]] = {label: {} for label in in_order(runs["label"])}
    for label, flat in found:
        for key in flat.keys() & apart:
            own[label].setdefault(key, set()).add(flat[key])
    by_label = {
        label: {key: sorted(values, key=natural) for key, values in one.items()}
        for label, one in own.items()
    }
    first = found[0][1]
    return Configs({key: first[key] for key in first if key not in apart}, by_label, missing)


def _of_folder(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        node = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: unreadable, expected the configuration of a run") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds {node!r:.40}, expected the configuration of a run")
    return node


def _flat(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, default=str, ensure_ascii=False)
