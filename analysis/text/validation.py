"""A validation in words: its table, what was measured and predicted, and who was ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas

from analysis.compare.metrics import estimate
from analysis.read.validations import Validation
from analysis.text.tables import records_of
from traces.common.table import BLANK, Notes, Part, Table, Title

_TITLES = ("requests\nin flight", "policy", "rounds\nas replayed", "live\n(tokens/s)",
           "predicted\n(tokens/s)", "error\n(%)", "noise\n(± %)", "TPOT p50\nerror (%)",
           "round\nerror (%)")  # fmt: skip
_METRICS = {"output_throughput": "throughput", "median_tpot_ms": "TPOT p50", "step_ms": "round"}


def page(validation: Validation) -> list[Part]:
    """The table of all cells, in CSV in the units of the file, and what it rests on."""
    data, cells = validation.data, validation.cells
    rows = [_row(cell) for _, cell in cells.iterrows()]
    align = "rll" + "r" * (len(_TITLES) - 3)
    table = Table(_TITLES, rows, records_of(cells), align=align, label="tab:live")
    title = f"{data['pair']} on {data['hardware']}: predicted against live"
    return [Title(title), table, Notes(facts(validation))]


def _row(cell: pandas.Series) -> list[str]:
    differing = cell["requests_differing"]
    return [
        str(cell["max_concurrency"]),
        cell["policy"],
        f"no: {counted(differing, 'request')}" if differing else "yes",
        f"{cell['output_throughput']:.1f}",
        f"{cell['output_throughput_predicted']:.1f}",
        f"{100 * cell['output_throughput_error']:+.1f}",
        BLANK if pandas.isna(cell["noise"]) else f"{100 * cell['noise']:.1f}",
        f"{100 * cell['median_tpot_ms_error']:+.1f}",
        f"{100 * cell['step_ms_error']:+.1f}",
    ]


def facts(validation: Validation) -> list[tuple[str, str]]:
    """Heading and text of what was measured, what was predicted, and how far they are apart."""
    data, found = validation.data, ahead(validation)
    fitted, summary = data["fitted_on"], data["summary"]
    live = f"{data['hardware']} ({data['device']}, {data['dtype']}), {data['packing']} packing"
    counts = f"{counted(data['prompts'], 'prompt')}, {counted(data['repeats'], 'repeat')}"
    terms = [f"{name} {value * 1e6:.4g} us" for name, value in data["host"].items() if value]
    fit = f"fitted on {counted(fitted['prompts'], 'prompt')} ({counted(fitted['runs'], 'run')})"
    errors = (
        f"{name} median {100 * summary[metric]['median_abs_error']:.1f} %, worst "
        f"{100 * summary[metric]['worst_abs_error']:.1f} %"
        for metric, name in _METRICS.items()
    )
    noise, floor = "unknown from one repeat", summary.get("noise_floor")
    if floor is not None:
        noise = (
            f"95 % Student-t intervals of the mean over {data['repeats']} repeats (A/A); median "
            f"half-width {100 * floor:.1f} % of throughput"
        )
    other = validation.cells[validation.cells["requests_differing"] > 0]
    named = ", ".join(f"{one.policy} at {one.max_concurrency}" for one in other.itertuples())
    rounds = f"not all as the simulator replays them: {named}"
    lines = [
        ("pair", f"{data['pair']}, drafter {data['drafter']}, temperature {data['temperature']:g}"),
        ("live", f"{live}; {counts}, seed {data['seed']}"),
        ("predicted",
         f"latency profile {data['profile']}; host terms {', '.join(terms) or 'all 0'}, {fit}"),
        ("error", "; ".join(errors)),
        ("order", _order(data)),
        ("noise", noise),
        ("rounds", rounds if named else "every live round as the simulator replays it"),
    ]  # fmt: skip
    if found is not None:
        each = "; ".join(f"at {load} {ratio}" for load, ratio in found.at.items())
        over = "; ".join(map(str, found.over_all))
        lines.append(("fastest", f"{found.policy} over all loads: {over}"))
        lines.append(("by load", f"{found.policy} against the fastest other one: {each}"))
    return lines


def counted(number: int, word: str, many: str = "") -> str:
    """`1 run`, `2 runs`; `many` where it is not the word with an s."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def _order(data: Mapping[str, Any]) -> str:
    found = data["summary"]["inversions"]
    named = "; ".join(
        f"{one['pair'][0]} over {one['pair'][1]} at {one['concurrency']}: live "
        f"{one['measured_ratio']:.3f}, predicted {one['predicted_ratio']:.3f}"
        for one in found
    )
    ranks = ", ".join(
        f"{BLANK if rho is None else format(rho, '.2f')} at {size}"
        for size, rho in data["summary"]["rank_correlation"].items()
    )
    counted = "unknown from one repeat" if data["repeats"] < 2 else f"{len(found) or 'none'}"
    counted += f" ({named})" if named else ""
    return f"inversions beyond noise: {counted}; rank correlation {ranks or BLANK}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Throughput of one policy over another's, geometric mean over loads.

    Repeats run the policies in turn, so they are paired: the interval is Student-t over the
    repeats' log ratios.
    """

    over: str
    live: float
    low: float | None  # 95 %, None with one repeat
    high: float | None
    predicted: float

    def __str__(self) -> str:
        between = "" if self.low is None else f"{self.low:.3f} to {self.high:.3f}; "
        return f"{self.live:.3f} times {self.over} ({between}predicted {self.predicted:.3f})"


@dataclass(frozen=True, slots=True)
class Ahead:
    """The policy of the largest geometric mean over all loads, and its ratios."""

    policy: str
    over_all: tuple[Ratio, ...]  # over each other policy, the strongest first
    at: dict[int, Ratio]  # over the fastest other one at each load


def ahead(validation: Validation) -> Ahead | None:
    """None with one policy, or where a policy was not run at every load."""
    cells = {(one["policy"], one["concurrency"]): one for one in validation.data["cells"]}
    policies, loads = validation.policies, validation.concurrencies
    if len(policies) < 2 or any(key not in cells for key in product(policies, loads)):
        return None
    live = {
        key: np.log(one["measured"]["output_throughput"]) for key, one in cells.items()
    }  # (repeats,)
    told = {key: np.log(one["predicted"]["output_throughput"]) for key, one in cells.items()}

    def strength(policy: str, at: Sequence[int]) -> float:
        return np.mean([live[policy, load] for load in at])

    def ratio(other: str, at: Sequence[int]) -> Ratio:
        logs = np.mean([live[best, load] - live[other, load] for load in at], axis=0)
        predicted = np.exp(np.mean([told[best, load] - told[other, load] for load in at]))
        found = estimate(logs)
        ends = (None, None) if len(logs) == 1 else np.exp(found[["low", "high"]])
        return Ratio(other, float(np.exp(found["mean"])), *ends, float(predicted))

    best = max(policies, key=lambda policy: strength(policy, loads))
    others = sorted(set(policies) - {best}, key=lambda policy: -strength(policy, loads))
    fastest = {load: max(others, key=lambda one: strength(one, [load])) for load in loads}
    at = {load: ratio(other, [load]) for load, other in fastest.items()}
    return Ahead(best, tuple(ratio(other, loads) for other in others), at)
