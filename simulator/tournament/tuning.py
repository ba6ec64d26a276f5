"""The best setting of every rival, on the tuning split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from simulator.tournament.plan import MIXTURE, Deployment, Plan
from simulator.tournament.rivals import Entrant
from simulator.tournament.scores import Cell, Score, Scores


@dataclass(frozen=True, slots=True)
class Tuned:
    """A rival on one deployment: best at every load, and best over all of them at one setting."""

    policy: str
    per_load: dict[int, Entrant]  # by concurrency
    tuning_tokens_s: dict[int, float]  # of these, mixture of the tuning split
    single: Entrant
    single_log_mean: float  # mean over loads of log tokens per second, tuning split


@dataclass(frozen=True, slots=True)
class Field:
    """All tuned rivals of a deployment, and why others or some of their settings are missing."""

    rivals: tuple[Tuned, ...]
    refused: dict[str, str] = field(default_factory=dict)

    def entrants(self, concurrency: int) -> list[Entrant]:
        """Settings to play at a load, each once: tuned for it, and single ones."""
        both = [e for r in self.rivals for e in (r.per_load[concurrency], r.single)]
        return list({entrant.key: entrant for entrant in both}.values())


def tuning_pairs(plan: Plan) -> Iterator[tuple[Cell, Entrant]]:
    """Every setting of every rival at every load; one order table after the other."""
    for deployment in plan.deployments:
        for rival in plan.rivals:
            for entrant in _others(plan, rival, deployment):
                for concurrency in plan.concurrency:
                    yield _cell(plan, deployment, concurrency), entrant


def tune(plan: Plan, scores: Scores, deployment: Deployment) -> Field:
    """The best settings; a rival that refuses the deployment in all of them is left out.

    Equal ones: the first of the grid.
    """
    found, refused = [], {}
    for rival in plan.rivals:
        entrants = _others(plan, rival, deployment)
        logs = {}
        for entrant in entrants:
            per_load = [_log(plan, scores, deployment, k, entrant) for k in plan.concurrency]
            reasons = [one for one in per_load if isinstance(one, str)]
            if reasons:
                refused[f"{entrant.policy} {entrant.setting}"] = reasons[0]
            else:
                logs[entrant.key] = per_load
        playing = [entrant for entrant in entrants if entrant.key in logs]
        if playing:
            table = np.array([logs[entrant.key] for entrant in playing])  # (settings, loads)
            found.append(_tuned(plan, rival.policy, playing, table))
    return Field(tuple(found), refused)


def _others(plan: Plan, rival, deployment: Deployment) -> list[Entrant]:
    """A candidate does not play against itself."""
    entrants = rival.entrants(deployment.recording.depths)
    return [entrant for entrant in entrants if entrant.key != plan.candidate.key]


def _tuned(plan: Plan, policy: str, entrants: list[Entrant], table: np.ndarray) -> Tuned:
    best, means = table.argmax(axis=0), table.mean(axis=1)
    return Tuned(
        policy=policy,
        per_load={k: entrants[i] for k, i in zip(plan.concurrency, best, strict=True)},
        tuning_tokens_s=dict(
            zip(plan.concurrency, np.exp(table.max(axis=0)).tolist(), strict=True)
        ),
        single=entrants[int(means.argmax())],
        single_log_mean=float(means.max()),
    )


def _log(plan, scores: Scores, deployment, concurrency: int, entrant: Entrant) -> float | str:
    score = scores.of(_cell(plan, deployment, concurrency), entrant)
    return float(np.log(score.tokens_s)) if isinstance(score, Score) else score


def _cell(plan: Plan, deployment: Deployment, concurrency: int) -> Cell:
    return Cell(deployment, plan.split_tune, MIXTURE, concurrency)
