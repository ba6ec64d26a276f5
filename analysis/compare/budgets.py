"""Acceptance length and speedup against node budget: swept widths, and the curves of orders.

A swept width is the one numeric setting of a policy that differs between runs equal in all others
and whose name says that it counts nodes (`nodes`, `width`, `length`, `nodes_per_request`, ...).
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
from dataclasses import dataclass, field
from typing import Any

import pandas

from analysis.compare.comparison import Comparison
from analysis.compare.settings import SOURCE, code_of, differing, policy_settings
from analysis.look import natural, policy_name

TOLERANCE = 0.1  # of a setting: near the end of a text fewer nodes are left to verify
_COUNTS_NODES = re.compile(r"node|width|length|budget|packed_tokens")
_WITH_ROOT = "packed_tokens"
_SAME = 0.01  # of the mean nodes: no other budget
_NAMED = 3  # policies of one curve that are spelled out

Curve = tuple[tuple[int, float], ...]  # (nodes, acceptance length), by nodes


@dataclass(frozen=True, slots=True)
class Swept:
    """One policy over several budgets at one load."""

    policy: str
    setting: str  # its other settings where they differ too, else empty
    key: str  # the setting that is swept
    nodes: pandas.Series = field(repr=False)  # per request, rising, by row of the comparison
    exact: bool = True  # whether the nodes are the setting; else the mean of those verified
    idle: tuple[float, ...] = ()  # values that verified as many nodes as another: left out

    @property
    def name(self) -> str:
        return f"{self.policy}({self.setting})" if self.setting else self.policy

    @property
    def note(self) -> str:
        """What a caption says of its points; empty where they all stand at their setting."""
        lost = ", ".join(f"{value + (self.key == _WITH_ROOT):g}" for value in self.idle)
        if lost and self.nodes.empty:
            return f"{self.name} is not drawn: {self.key} {lost} changed no number of nodes."
        said = "" if self.exact else f"{self.name}: at the mean nodes verified, not at {self.key}."
        if lost:
            said += f" Without {self.key} {lost}: as many nodes as at another, or none."
        return said


def tried_widths(comparison: Comparison, rows: pandas.DataFrame) -> list[Swept]:
    """Every policy that several budgets were tried of at one load, of which `rows` are.

    Those whose setting has no effect are without points.
    """
    data = comparison.runs.drop_duplicates("row").set_index("row")["data"]
    settings = data.map(lambda one: {**policy_settings(one), **code_of(one)})
    verified = comparison.estimates("draft_nodes_per_request")["mean"]
    return [
        one
        for policy, own in rows.groupby("policy", sort=False)
        if len(own) > 1
        for one in _sweeps(policy, settings[own.index], verified)
    ]


def _sweeps(policy: str, settings: pandas.Series, verified: pandas.Series) -> list[Swept]:
    """Of one policy; settings and mean nodes verified by row."""
    keys = differing([
        {key: json.dumps(value) for key, value in one.items() if value is not None}
        for one in settings
    ])  # fmt: skip
    # The setting with the most counts, if any has two.
    counts = {
        key: len({one[key] for one in settings if _is_count(one.get(key))})
        for key in sorted(keys)
        if _COUNTS_NODES.search(key)
    }
    key = max(counts, key=lambda name: counts[name], default=None)
    if key is None or counts[key] < 2:
        return []
    lines: dict[str, dict[int, float]] = defaultdict(dict)
    for row, one in settings.items():
        if _is_count(one.get(key)) and (nodes := one[key] - (key == _WITH_ROOT)) > 0:
            rest = ", ".join(_text(name, one.get(name)) for name in sorted(keys - {key}))
            lines[rest][row] = nodes
    return [
        _placed(policy, text, key, pandas.Series(lines[text]).sort_values(kind="stable"), verified)
        for text in sorted(lines, key=natural)
        if len(lines[text]) > 1
    ]


def _placed(
    policy: str, text: str, key: str, values: pandas.Series, verified: pandas.Series
) -> Swept:
    """Points at their setting if it is what was verified, else at what was."""
    means = verified[values.index].dropna()
    values = values[means.index]
    if ((means - values).abs() <= TOLERANCE * values).all():
        return Swept(policy, text, key, values)
    kept: dict[int, float] = {}
    for row, nodes in means.items():
        if nodes and not any(abs(nodes - one) <= _SAME * one for one in kept.values()):
            kept[row] = nodes
    if len(kept) < 2:
        kept = {}
    idle = tuple(value for row, value in values.items() if row not in kept)
    nodes = pandas.Series(kept, dtype=float).sort_values(kind="stable")
    return Swept(policy, text, key, nodes, False, idle)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _text(name: str, value: Any) -> str:
    shown = "..." if isinstance(value, dict | list) else str(value)
    return f"{name.lstrip('_')}={shown[:8] if name == SOURCE else shown}"


def swept_lengths(comparison: Comparison) -> dict[str, pandas.DataFrame]:
    """By policy, ``x`` (nodes) and ``y`` (acceptance length) at the first load that sweeps it."""
    lengths = comparison.estimates("acceptance_length")["mean"]
    found: dict[str, pandas.DataFrame] = {}
    for _, rows in comparison.blocks:
        for one in tried_widths(comparison, rows):
            own = pandas.DataFrame({"x": one.nodes, "y": lengths[one.nodes.index]}).dropna()
            if len(one.nodes) > 1 and len(own) and one.policy not in found:
                found[one.policy] = own
    return found


# ---------------------------------------------------------------- curves of orders


@dataclass(frozen=True, slots=True)
class OrderCurve:
    """Acceptance length when the first N nodes of an order are verified in every round.

    ``points`` has ``x`` (nodes), and over the runs' distinct curves ``y`` (mean), ``low`` and
    ``high`` (least and largest).
    """

    name: str
    labels: tuple[str, ...]  # of every policy that verifies in this order
    points: pandas.DataFrame = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The policies behind it, without their settings."""
        return list(dict.fromkeys(map(policy_name, self.labels)))

    @property
    def varies(self) -> bool:
        return bool((self.points["low"] != self.points["high"]).any())


def order_curves(comparison: Comparison) -> list[OrderCurve]:
    """Curves of the summaries, one an order; policies without an order are left out.

    A variant whose one curve is how another variant's begins has that one's.
    """
    curves = comparison.runs["data"].map(
        lambda data: tuple(sorted(
            (int(nodes), float(length))
            for nodes, length in (data["acceptance_length_by_budget"] or {}).items()
            if int(nodes) > 0
        ))
    )  # fmt: skip
    by_label = curves.groupby(comparison.runs["label"]).agg(set)[comparison.labels]
    lone: dict[str, set[Curve]] = defaultdict(set)  # by policy
    for label, own in by_label.items():
        if len(own) == 1:
            lone[policy_name(label)] |= own
    owners: dict[frozenset[Curve], list[str]] = defaultdict(list)
    for label, own in by_label.items():
        found = own - {()}
        if len(own) == len(found) == 1:
            (curve,) = own
            longer = (one for one in lone[policy_name(label)] if one[: len(curve)] == curve)
            found = {max(longer, key=len)}
        owners[frozenset(found)].append(label)
    return [
        OrderCurve(_name(labels, comparison.labels), tuple(labels), _points(own))
        for own, labels in owners.items()
        if own
    ]


def _points(curves: frozenset[Curve]) -> pandas.DataFrame:
    every = pandas.DataFrame([point for one in curves for point in one], columns=["x", "y"])
    lengths = every.groupby("x")["y"]
    return lengths.agg(y="mean", low="min", high="max").reset_index()


def _name(labels: list[str], every: list[str]) -> str:
    """The labels that share a curve; a policy all of whose variants do is named once.

    More than `_NAMED` are the first one "and 7 more": a legend has no room for all.
    """
    names = {label: policy_name(label) for label in every}
    split = {names[label] for label in every if label not in labels}
    every = list(dict.fromkeys(one if names[one] in split else names[one] for one in labels))
    return ", ".join(every) if len(every) <= _NAMED else f"{every[0]} and {len(every) - 1} more"
