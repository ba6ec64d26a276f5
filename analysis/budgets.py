"""Runs that sweep a policy's own width: acceptance length and speedup against node budget.

The width is the one numeric setting of a policy that differs between runs equal in all others and
whose name says that it counts nodes (`nodes`, `width`, `length`, `nodes_per_request`, ...).
`packed_tokens` counts the root too, so one is taken off.

A setting is a budget where the runs verified about as many nodes per request (`TOLERANCE`). Where
they did not (a policy may use its setting otherwise, or not at all at this load), all points of
the policy stand at the mean of what they verified. Of those that verified the same, the first
stands for all; where all did, the setting has no effect and there is nothing to draw.
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
from analysis.variants import SOURCE, code_of

_COUNTS_NODES = re.compile(r"node|width|length|budget|packed_tokens")
_WITH_ROOT = "packed_tokens"
_VERIFIED = "draft_nodes_per_request"
TOLERANCE = 0.1  # of a setting: near the end of a text fewer nodes are left to verify
_SAME = 0.01  # of the mean nodes: no other budget


@dataclass(frozen=True, slots=True)
class Swept:
    """One policy over several budgets at one load."""

    policy: str
    setting: str  # its other settings where they differ too, else empty
    key: str  # the setting that is swept
    points: tuple[tuple[float, Row], ...]  # (nodes per request, row), by nodes
    exact: bool = True  # whether the nodes are the setting; else the mean of those verified
    idle: tuple[float, ...] = ()  # values that verified as many nodes as another: left out

    @property
    def name(self) -> str:
        return f"{self.policy}({self.setting})" if self.setting else self.policy

    @property
    def note(self) -> str:
        """What a caption says of its points; empty where they all stand at their setting."""
        lost = ", ".join(f"{value + (self.key == _WITH_ROOT):g}" for value in self.idle)
        if lost and not self.points:
            return f"{self.name} is not drawn: {self.key} {lost} changed no number of nodes."
        said = "" if self.exact else f"{self.name}: at the mean nodes verified, not at {self.key}."
        if lost:
            said += f" Without {self.key} {lost}: as many nodes as at another, or none."
        return said

    def estimates(self, metric: str) -> list[tuple[float, Estimate]]:
        """(nodes, value) where there is one."""
        found = [(nodes, row.estimate(metric)) for nodes, row in self.points]
        return [(nodes, one) for nodes, one in found if one is not None]

    @property
    def has_speedup(self) -> bool:
        return bool(self.estimates(SPEEDUP))


def swept_widths(block: Block) -> list[Swept]:
    """Every policy that at least two budgets were tried of, at one load."""
    return [one for one in tried_widths(block) if len(one.points) > 1]


def tried_widths(block: Block) -> list[Swept]:
    """The same with those whose setting has no effect, without points."""
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
            text = ", ".join(_text(name, value) for name, value in rest.items())
            if nodes > 0:
                lines[text].append((nodes, row))
    return [
        _placed(rows[0].policy, text, key, sorted(points, key=lambda point: point[0]))
        for text, points in sorted(lines.items(), key=lambda item: natural(item[0]))
        if len(points) > 1
    ]


def _placed(policy: str, text: str, key: str, points: Sequence[tuple[float, Row]]) -> Swept:
    """Points at their setting if it is what was verified, else at what was."""
    means = [(value, row, row.estimate(_VERIFIED)) for value, row in points]
    known = [(value, row, one.mean) for value, row, one in means if one is not None]
    if all(abs(nodes - value) <= TOLERANCE * value for value, _, nodes in known):
        return Swept(policy, text, key, tuple((value, row) for value, row, _ in known))
    kept: list[tuple[float, Row]] = []
    idle: list[float] = []
    for value, row, nodes in known:
        if not nodes or any(abs(nodes - x) <= _SAME * x for x, _ in kept):
            idle.append(value)
        else:
            kept.append((nodes, row))
    if len(kept) < 2:
        kept, idle = [], [value for value, _, _ in known]
    places = tuple(sorted(kept, key=lambda point: point[0]))
    return Swept(policy, text, key, places, False, tuple(idle))


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
    run = row.runs[0]
    return dict(run.data.get("policy_config", run.data["policy_fit"])) | code_of(run)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _text(name: str, value: Any) -> str:
    shown = "..." if isinstance(value, dict | list) else str(value)
    return f"{name.lstrip('_')}={shown[:8] if name == SOURCE else shown}"
