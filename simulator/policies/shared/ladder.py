"""A ladder over the live batch size: what to do up to which batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.policies.checks import entries as listed
from traces.common.errors import InputError

NEAR = 1e-4  # of survival: decisions this close to theta are counted and reported
_ENTRY = "{max_batch, theta} or {max_batch, arm: chain}"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder."""

    max_batch: float  # inf on the last rung
    theta: float | None  # survival threshold; None: the plain chain

    @property
    def log_theta(self) -> float:
        """Threshold of log survival; -inf at theta 0."""
        return _log(self.theta)

    @property
    def near_log(self) -> tuple[float, float]:
        """Log survivals between which a node could fall either way on another machine."""
        return _log(self.theta - NEAR), _log(self.theta + NEAR)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def read_ladder(entries: Iterable[Mapping[str, Any]]) -> tuple[Rung, ...]:
    """Rungs by rising batch; the last one has ``max_batch: null`` and covers every larger batch.

    Raises:
        InputError: naming the entry, its value and what is accepted.
    """
    rungs = tuple(
        _rung(f"policy.ladder[{i}]", entry)
        for i, entry in enumerate(listed("ladder", entries, _ENTRY))
    )
    limits = [rung.max_batch for rung in rungs]
    if not rungs or limits[-1] != math.inf or sorted(set(limits)) != limits:
        raise InputError(
            f"policy.ladder has max_batch {limits}; accepted: rising, null in the last entry only"
        )
    return rungs


def rung_at(rungs: tuple[Rung, ...], batch: int) -> Rung:
    """The first rung that reaches `batch`."""
    return next(rung for rung in rungs if batch <= rung.max_batch)


def _rung(where: str, entry: Any) -> Rung:
    keys = set(entry) if isinstance(entry, Mapping) else set()
    if keys not in ({"max_batch", "theta"}, {"max_batch", "arm"}):
        raise InputError(f"{where} is {entry!r}; accepted: {_ENTRY}")
    limit = entry["max_batch"]
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InputError(f"{where}.max_batch is {limit!r}; accepted: at least 1, or null")
    if "arm" in keys and entry["arm"] != "chain":
        raise InputError(f"{where}.arm is {entry['arm']!r}; accepted: chain")
    theta = entry.get("theta")
    number = isinstance(theta, int | float) and not isinstance(theta, bool)
    if "theta" in keys and not (number and 0 <= theta <= 1):
        raise InputError(f"{where}.theta is {theta!r}; accepted: a probability, 0 to 1")
    return Rung(math.inf if limit is None else limit, theta)
