"""Acceptance length against node budget, one curve per order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import fsum

from analysis.compare import Comparison
from analysis.look import policy_name
from analysis.summaries import Summary

_NAMED = 3

Curve = tuple[tuple[int, float], ...]  # (budget, acceptance length), by budget


@dataclass(frozen=True, slots=True)
class Line:
    """The curve of one order, by every policy that verifies in it."""

    name: str
    labels: tuple[str, ...]
    budgets: tuple[int, ...]
    mean: tuple[float, ...]  # over the runs' distinct curves
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def names(self) -> list[str]:
        """The policies behind it, without their settings."""
        return list(dict.fromkeys(map(policy_name, self.labels)))

    @property
    def whole(self) -> bool:
        """Whether all variants of one policy are behind it, and no other policy."""
        return self.name == self.names[0]

    @property
    def points(self) -> list[tuple[int, float]]:
        return list(zip(self.budgets, self.mean, strict=True))

    @property
    def varies(self) -> bool:
        return self.low != self.high


@dataclass(frozen=True, slots=True)
class OrderCurves:
    """All curves of one setting."""

    lines: tuple[Line, ...]
    name: str = "acceptance_length_vs_budget"

    @property
    def sentence(self) -> str:
        return (
            "Acceptance length (tokens per round, the bonus token included) when the first N "
            "nodes of a policy's order are verified in every round, replayed along the recording."
        )

    @property
    def notes(self) -> list[str]:
        found = []
        if any(len(line.labels) > 1 for line in self.lines):
            found.append("Policies with one and the same curve share a line.")
        found += [
            f"{line.name}: {', '.join(line.labels)}."
            for line in self.lines
            if line.name.endswith(" more")
        ]
        varying = ", ".join(line.name for line in self.lines if line.varies)
        if varying:
            found.append(
                f"The order of {varying} follows the load: mean, and band from the lowest to the "
                "highest curve."
            )
        return found


def order_curves(comparison: Comparison) -> OrderCurves:
    """Curves of the summaries; budgets below 1 are left out, policies without an order too."""
    by_label: dict[str, set[Curve]] = {label: set() for label in comparison.labels}
    for block in comparison.blocks:
        for row in block.rows:
            by_label[row.label] |= {_curve(run) for run in row.runs}
    owners: dict[frozenset[Curve], list[str]] = defaultdict(list)
    for label, curves in _without_beginnings(by_label).items():
        owners[frozenset(curves - {()})].append(label)
    lines = [
        _line(_name(labels, comparison.labels), labels, curves)
        for curves, labels in owners.items()
        if curves
    ]
    return OrderCurves(tuple(lines))


def _without_beginnings(by_label: dict[str, set[Curve]]) -> dict[str, set[Curve]]:
    """A variant whose one curve is how another variant's begins has that one's."""
    lone: dict[str, set[Curve]] = defaultdict(set)  # by policy
    for label, curves in by_label.items():
        if len(curves) == 1:
            lone[policy_name(label)] |= curves

    def whole(label: str, curves: set[Curve]) -> set[Curve]:
        if len(curves) != 1 or curves == {()}:
            return curves
        (own,) = curves
        return {max((one for one in lone[policy_name(label)] if one[: len(own)] == own), key=len)}

    return {label: whole(label, curves) for label, curves in by_label.items()}


def _name(labels: list[str], every: list[str]) -> str:
    """The labels that share a curve; a policy all of whose variants do is named once.

    More than `_NAMED` are the first one "and 7 more": a legend has no room for all.
    """
    names = {label: policy_name(label) for label in every}
    split = {names[label] for label in every if label not in labels}
    every = list(dict.fromkeys(one if names[one] in split else names[one] for one in labels))
    return ", ".join(every) if len(every) <= _NAMED else f"{every[0]} and {len(every) - 1} more"


def _curve(run: Summary) -> Curve:
    found = run.data["acceptance_length_by_budget"] or {}
    return tuple(sorted((int(key), float(value)) for key, value in found.items() if int(key) > 0))


def _line(name: str, labels: list[str], curves: frozenset[Curve]) -> Line:
    lengths: dict[int, list[float]] = defaultdict(list)
    for curve in curves:
        for budget, length in curve:
            lengths[budget].append(length)
    budgets = tuple(sorted(lengths))
    values = [lengths[budget] for budget in budgets]
    mean = tuple(fsum(one) / len(one) for one in values)
    return Line(
        name, tuple(labels), budgets, mean, tuple(map(min, values)), tuple(map(max, values))
    )
