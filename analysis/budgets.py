"""Runs that sweep a policy's own width: acceptance length and speedup against node budget.

The width is the one numeric setting of a policy that differs between runs equal in all others and
whose name says that it counts nodes (`nodes`, `width`, `length`, `nodes_per_request`, ...).
`packed_tokens` counts the root too, so one is taken off.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare import Block, Comparison, Row
from analysis.intervals import Estimate
from analysis.look import natural
from analysis.metrics import SPEEDUP

_COUNTS_NODES = re.compile(r"node|width|length|budget|packed_tokens")
_WITH_ROOT = "packed_tokens"


@dataclass(frozen=True, slots=True)
class Swept:
    """One policy over several budgets at one load."""

    policy: str
    setting: str  # its other settings where they differ too, else empty
    key: str  # the setting that is swept
    points: tuple[tuple[float, Row], ...]  # (nodes, row), by nodes

    @property
    def name(self) -> str:
        return f"{self.policy}({self.setting})" if self.setting else self.policy

    def estimates(self, metric: str) -> list[tuple[float, Estimate]]:
        """(nodes, value) where there is one."""
        found = [(nodes, row.estimate(metric)) for nodes, row in self.points]
        return [(nodes, one) for nodes, one in found if one is not None]

    @property
    def has_speedup(self) -> bool:
        return bool(self.estimates(SPEEDUP))


def swept_widths(block: Block) -> list[Swept]:
    """Every policy that at least two budgets were tried of, at one load."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in block.rows:
        groups[row.policy].append(row)
    return [one for rows in groups.values() if len(rows) > 1 for one in _sweeps(rows)]


def acceptance_points(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    """By policy, (nodes, acceptance length) of its swept runs at the first load that has them."""
    found: dict[str, list[tuple[float, float]]] = {}
    for block in comparison.blocks:
        for one in swept_widths(block):
            points = [(x, value.mean) for x, value in one.estimates("acceptance_length")]
            if points and one.policy not in found:
                found[one.policy] = points
    return found


def _sweeps(rows: Sequence[Row]) -> list[Swept]:
    settings = [_settings(row) for row in rows]
    differing = {
        key
        for key in {key for one in settings for key in one}
        if len({json.dumps(one.get(key)) for one in settings}) > 1
    }
    key = _width_key(settings, differing)
    if key is None:
        return []
    lines: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row, one in zip(rows, settings, strict=True):
        if _is_count(one.get(key)):
            nodes = one[key] - (key == _WITH_ROOT)
            rest = {name: one.get(name) for name in sorted(differing - {key})}
            text = ", ".join(f"{name}={_text(value)}" for name, value in rest.items())
            if nodes > 0:
                lines[text].append((nodes, row))
    policy = rows[0].policy
    return [
        Swept(policy, text, key, tuple(sorted(points, key=lambda point: point[0])))
        for text, points in sorted(lines.items(), key=lambda item: natural(item[0]))
        if len(points) > 1
    ]


def _width_key(settings: Sequence[dict[str, Any]], differing: set[str]) -> str | None:
    """The setting with the most counts, if any has two."""
    counts = {
        key: len({one[key] for one in settings if _is_count(one.get(key))})
        for key in sorted(differing)
        if _COUNTS_NODES.search(key)
    }
    best = max(counts, key=lambda key: counts[key], default=None)
    return best if best is not None and counts[best] > 1 else None


def _settings(row: Row) -> dict[str, Any]:
    data = row.runs[0].data
    return dict(data.get("policy_config", data["policy_fit"]))


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _text(value: Any) -> str:
    return str(value) if not isinstance(value, dict | list) else "..."
