"""`task=tournament`: tune the rivals, play the report split, compare the candidate with them.

Three tables: `tournament.csv`, a line for each cell and rule, and the means of it: over a
deployment's cells, and over all cells by rival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from simulator.studies.contest.entrants import Entrant, Rival
from simulator.studies.contest.plan import MIXTURE, ContestCell, ContestPlan, Deployment, read_plan
from simulator.studies.contest.scores import Contest, Score, geometric
from simulator.studies.report import BEYOND, SIGNS, csv_text, sign, span, with_ends, write_texts
from simulator.studies.store import Store
from traces.common.errors import InputError
from traces.common.intervals import Interval
from traces.common.table import Notes, Part, Table, emit

CELLS, OVERALL, RIVALS = (f"tournament{end}.csv" for end in ("", "_overall", "_rivals"))
WORST = 5  # cells listed
MEANS = ["geometric mean over", "other", "chosen on", "ratio", "95 % interval", "worst", "which"]
MARGIN = 0.99  # of non-inferiority
TUNING, REPORT = "tuning", "report"  # the split on which the best rival was chosen
ONE_SETTING, PER_LOAD, PER_CELL = "one setting", "tuned per load", "best in every cell"

load = read_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Play, print, and write three tables into `folder`.

    Every finished simulation is in `tournament.jsonl` there at once; what it holds is not played
    again.

    Raises:
        InputError: see `read_plan`; a candidate that refuses a recording or a profile.
    """
    plan = read_plan(cfg)
    with Store(folder, "tournament") as store:
        contest = Contest(plan, store)
        cells, overall, everywhere = _played(contest)
    candidate = plan.candidate.policy
    tables = {  # units are in the columns' names, ratios are candidate over other
        CELLS: [_cell(candidate, one) for one in cells],
        OVERALL: [_overall(candidate, one) for one in overall],
        RIVALS: [{"candidate": candidate, **one} for one in everywhere],
    }
    write_texts(folder, {name: csv_text(rows) for name, rows in tables.items()})
    emit(_parts(plan, cells, overall, everywhere), "table")
    for name, reason in contest.refused.items():
        print(f"note: {name}: {reason}, left out there")
    store.say_done(contest.played, "simulations", folder / CELLS)


# ---------------- Rivals tuned on one split, the candidate against them on the other.


@dataclass(frozen=True, slots=True)
class Tuned:
    """A rival on one deployment: best at every load, and best over all of them at one setting."""

    policy: str
    per_load: dict[int, Entrant]  # by concurrency
    logs: dict[int, float]  # log tokens per second of these, mixture of the tuning split
    single: Entrant
    single_log_mean: float  # mean over loads, likewise

    def at(self, load: int, against: str) -> Entrant:
        return self.single if against == ONE_SETTING else self.per_load[load]


@dataclass(frozen=True, slots=True)
class Versus:
    """The candidate and the best other in one cell."""

    cell: ContestCell
    best_by: str
    candidate: Score
    score: Score  # of the other

    @property
    def other(self) -> Entrant:
        return self.score.entrant

    @property
    def ratio(self) -> Interval:
        return geometric([(self.candidate, self.score)])

    @property
    def beyond_table(self) -> bool:
        """Whether a step of either lies outside what was measured (a clamped context does not)."""
        return any(one.share("modelled", window=True) > 0 for one in (self.candidate, self.score))


@dataclass(frozen=True, slots=True)
class Overall:
    """Geometric mean of the ratio over a deployment's loads, and its domains or their mixture."""

    deployment: Deployment
    cells: str  # domains or mixture
    against: str  # ONE_SETTING, PER_LOAD or PER_CELL
    best_by: str
    other: str  # policy, with its setting where there is one
    ratio: Interval
    worst: float  # smallest ratio over the cells


def _played(contest: Contest) -> tuple[list[Versus], list[Overall], list[dict[str, Any]]]:
    """Tune, play and compare: cells, means over them, and a line for each rival.

    Raises:
        InputError: a candidate that refuses a deployment, or nobody who plays it.
    """
    plan = contest.plan
    contest.play(  # every setting of every rival at every load; one order table after the other
        (plan.tuning_cell(deployment, concurrency), entrant)
        for deployment, rival in product(plan.deployments, plan.rivals)
        for entrant in plan.entrants(rival, deployment)
        for concurrency in plan.concurrency
    )
    standings = [Standings(contest, deployment) for deployment in plan.deployments]
    contest.play(pair for one in standings for pair in one.pairs())
    cells = [
        one.versus(cell, best_by)
        for one in standings
        for cell in one.cells()
        for best_by in (TUNING, REPORT)
    ]
    overall = [line for one in standings for line in one.overall()]
    return cells, overall, _everywhere(standings)


class Standings:
    """One deployment: its rivals, tuned, and comparisons once the report split is played."""

    def __init__(self, contest: Contest, deployment: Deployment) -> None:
        """Raises InputError where no rival plays the deployment."""
        self.contest, self.plan, self.deployment = contest, contest.plan, deployment
        self.domains = self.plan.domains(deployment)
        self.rivals = [one for one in map(self._tuned, self.plan.rivals) if one is not None]
        if not self.rivals:
            raise InputError(
                f"tournament.rivals: none of them plays {deployment.trace} on "
                f"{deployment.profile}; accepted: at least one that does"
            )

    def _tuned(self, rival: Rival) -> Tuned | None:
        """The best settings, of equal ones the first; None where it refuses in all of them."""
        loads, table = self.plan.concurrency, {}
        for entrant in self.plan.entrants(rival, self.deployment):
            cells = [self.plan.tuning_cell(self.deployment, load) for load in loads]
            scores = [self.contest.score(cell, entrant) for cell in cells]
            if not any(isinstance(score, str) for score in scores):
                table[entrant.key] = entrant, [float(np.log(one.pooled)) for one in scores]
        if not table:
            return None
        entrants, logs = zip(*table.values(), strict=True)
        logs = np.array(logs)  # (settings, loads)
        best, means = logs.argmax(axis=0), logs.mean(axis=1)
        return Tuned(
            policy=rival.policy,
            per_load={load: entrants[i] for load, i in zip(loads, best, strict=True)},
            logs=dict(zip(loads, logs.max(axis=0).tolist(), strict=True)),
            single=entrants[int(means.argmax())],
            single_log_mean=float(means.max()),
        )

    def pairs(self) -> Iterator[tuple[ContestCell, Entrant]]:
        """What must be played on the report split."""
        for load in self.plan.concurrency:
            for entrant in (self.plan.candidate, *self._entrants(load)):
                for domain in self.domains:
                    yield self.plan.report_cell(self.deployment, load, domain), entrant

    def _entrants(self, load: int) -> list[Entrant]:
        """Settings that play at a load, each once: tuned for it, and single ones."""
        both = [one for rival in self.rivals for one in (rival.per_load[load], rival.single)]
        return list({entrant.key: entrant for entrant in both}.values())

    def cells(self, *domains: str) -> list[ContestCell]:
        """Report cells by domain (all of them unless some are named), then load."""
        places = product(domains or self.domains, self.plan.concurrency)
        return [self.plan.report_cell(self.deployment, load, domain) for domain, load in places]

    def versus(self, cell: ContestCell, best_by: str) -> Versus:
        """Against the best rival of the cell, by the tuning split or by the cell itself."""
        ours, theirs = self._pair(cell, self._best(cell, best_by))
        return Versus(cell, best_by, ours, theirs)

    def overall(self) -> Iterator[Overall]:
        """Over the domains' cells and over the mixture's, against the best other of each kind."""
        *domains, mixture = self.domains
        groups = {"domains": self.cells(*domains)} if domains else {}
        groups[MIXTURE] = self.cells(mixture)
        kinds = product((ONE_SETTING, PER_LOAD, PER_CELL), (TUNING, REPORT))
        for (name, cells), (against, best_by) in product(groups.items(), kinds):
            if against == PER_CELL:
                others = [self._best(cell, best_by) for cell in cells]
                label = " ".join(dict.fromkeys(other.policy for other in others))
            else:
                means = [self._log_mean(one, cells, against, best_by) for one in self.rivals]
                rival = self.rivals[int(np.argmax(means))]
                others = [rival.at(cell.concurrency, against) for cell in cells]
                one_setting = against == ONE_SETTING or len(self.plan.concurrency) == 1
                label = f"{rival.policy} {others[0].setting}" if one_setting else rival.policy
            pairs = [self._pair(cell, other) for cell, other in zip(cells, others, strict=True)]
            ratio, worst = geometric(pairs), min(map(_ratio, pairs))
            yield Overall(self.deployment, name, against, best_by, label, ratio, worst)

    def _log_mean(
        self, rival: Tuned, cells: Sequence[ContestCell], against: str, best_by: str
    ) -> float:
        """Mean log tokens per second of a rival, on the tuning split or in these cells."""
        if best_by == TUNING and against == ONE_SETTING:
            return rival.single_log_mean
        if best_by == TUNING:
            return float(np.mean(list(rival.logs.values())))
        scores = [self._score(cell, rival.at(cell.concurrency, against)) for cell in cells]
        return float(np.mean([np.log(score.pooled) for score in scores]))

    def tuned_ratios(self) -> dict[str, list[float]]:
        """Candidate over each rival tuned per load, in every report cell."""
        cells = self.cells()
        return {
            one.policy: [_ratio(self._pair(cell, one.per_load[cell.concurrency])) for cell in cells]
            for one in self.rivals
        }

    def _best(self, cell: ContestCell, best_by: str) -> Entrant:
        load = cell.concurrency
        if best_by == TUNING:
            return max(self.rivals, key=lambda rival: rival.logs[load]).per_load[load]
        return max(self._entrants(load), key=lambda one: self._score(cell, one).pooled)

    def _pair(self, cell: ContestCell, other: Entrant) -> tuple[Score, Score]:
        """The candidate's score, and the other's."""
        return self._score(cell, self.plan.candidate), self._score(cell, other)

    def _score(self, cell: ContestCell, entrant: Entrant) -> Score:
        score = self.contest.score(cell, entrant)
        if isinstance(score, str):
            raise InputError(f"{entrant.policy} {entrant.setting}: {score}")
        return score


def _ratio(pair: tuple[Score, Score]) -> float:
    ours, theirs = pair
    return ours.pooled / theirs.pooled


def _everywhere(standings: Sequence[Standings]) -> list[dict[str, Any]]:
    """Rivals that play in all deployments, tuned for every load, over all report cells.

    Geometric mean of the candidate's throughput over theirs; the strongest first.
    """
    found = [one.tuned_ratios() for one in standings]
    lines = []
    for policy in found[0]:
        if all(policy in ratios for ratios in found):
            ratios = np.concatenate([one[policy] for one in found])
            mean = float(np.exp(np.log(ratios).mean()))
            line = {"other": policy, "cells": len(ratios), "ratio": mean}
            lines.append(line | {"worst": float(ratios.min())})
    return sorted(lines, key=lambda line: line["ratio"])


# ---------------- Report.


def _cell(candidate: str, one: Versus) -> dict[str, Any]:
    cell, both = one.cell, {"candidate": one.candidate, "other": one.score}

    def sides(name: str, value) -> dict[str, Any]:
        return {f"{side}_{name}": value(score) for side, score in both.items()}

    return {
        "profile": cell.deployment.profile,
        "trace": cell.deployment.trace,
        "domain": cell.domain,
        "max_concurrency": cell.concurrency,
        "candidate": candidate,
        "candidate_tokens_per_s": one.candidate.pooled,
        "best_other_by_split": one.best_by,
        "other": one.other.policy,
        "other_setting": one.other.setting,
        "other_tokens_per_s": one.score.pooled,
        **with_ends("ratio", one.ratio),
        "prompts": one.candidate.prompts,
        **sides("nodes_per_request", lambda score: score.mean("nodes")),
        **sides("share_modelled", lambda score: score.share("modelled", window=True)),
        **sides("share_clamped", lambda score: score.share("clamped", window=True)),
        "beyond_table": str(one.beyond_table).lower(),
    }


def _overall(candidate: str, one: Overall) -> dict[str, Any]:
    return {
        "profile": one.deployment.profile,
        "trace": one.deployment.trace,
        "cells": one.cells,
        "candidate": candidate,
        "against": one.against,
        "best_other_by_split": one.best_by,
        "other": one.other,
        **with_ends("ratio", one.ratio),
        "worst_ratio": one.worst,
    }


def _parts(
    plan: ContestPlan,
    cells: Sequence[Versus],
    overall: Sequence[Overall],
    everywhere: Sequence[dict[str, Any]],
) -> Iterator[Part]:
    """Ratios are candidate over the best other, tokens per second, with 95 % intervals."""
    harsh = [one for one in cells if one.best_by == REPORT]
    for deployment in plan.deployments:
        yield _by_load(plan, deployment, harsh)
        means = [
            [
                one.cells,
                one.against,
                one.best_by,
                f"{one.ratio.value:.3f}",
                span(one.ratio),
                f"{one.worst:.3f}",
                one.other,
            ]
            for one in overall
            if one.deployment is deployment
        ]
        yield Table(MEANS, means, align="lllrrrl")
    yield Notes([("", SIGNS + (BEYOND if any(one.beyond_table for one in harsh) else ""))])
    yield _worst(harsh)
    rows = [
        [one["other"], str(one["cells"]), f"{one['ratio']:.3f}", f"{one['worst']:.3f}"]
        for one in everywhere
    ]
    yield Table(["rival, tuned per load", "cells", "ratio", "worst"], rows)
    values = [one.ratio.value for one in harsh]
    below = sum(sign(one.ratio) == "-" for one in harsh)
    summary = (
        f"best other of every cell: geometric mean {geometric_mean(values):.3f}, {min(values):.3f} "
        f"to {max(values):.3f}; of {len(values)} cells {sum(v < 1 for v in values)} below 1 "
        f"({below} with the interval), {sum(v < MARGIN for v in values)} below {MARGIN:g}"
    )
    yield Notes([("", summary)])


def _by_load(plan: ContestPlan, deployment: Deployment, cells: Sequence[Versus]) -> Table:
    rows: dict[str, dict[int, str]] = {}
    for one in cells:
        if one.cell.deployment is deployment:
            mark = sign(one.ratio) + ("m" if one.beyond_table else " ")
            row = rows.setdefault(one.cell.domain, {})
            row[one.cell.concurrency] = f"{one.ratio.value:.3f}{mark}"
    return Table(
        ["domain", *map(str, plan.concurrency)],
        [[domain, *(row[load] for load in plan.concurrency)] for domain, row in rows.items()],
        caption=f"{deployment.trace} on {deployment.profile}: {plan.candidate.policy} / best tuned "
        "other of the cell itself, tokens per second",
    )


def _worst(cells: Sequence[Versus]) -> Table:
    rows = []
    for one in sorted(cells, key=lambda one: one.ratio.value)[:WORST]:
        cell, other = one.cell, one.other
        where = f"{cell.deployment.profile}, {cell.deployment.trace}, {cell.domain}"
        place = f"{where}, concurrency {cell.concurrency}"
        ratio = f"{one.ratio.value:.3f}", span(one.ratio)
        rows.append([place, *ratio, f"{other.policy} {other.setting}"])
    return Table(["worst cells", "ratio", "95 % interval", "other"], rows, align="lrrl")
