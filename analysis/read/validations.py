"""Reading ``validation.json``: live measurements and the simulator's predictions, cell by cell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas
from pydantic import Field, model_validator

from analysis.look import policy_rank
from analysis.read.files import Above0, Count, Number, Positive, Schema, Text, checked, node
from traces.common.errors import InputError
from traces.common.json import read_json

FILE_NAME = "validation.json"
METRICS = ("output_throughput", "median_tpot_ms", "step_ms")
PARTS = ("draft", "verify", "host")
_ROUNDING = 1e-3  # an error may be written with fewer digits


def _values(above: Any, from_0: Any) -> Any:
    """Measured or predicted values of a cell."""
    step = node(total=above, **dict.fromkeys(PARTS, from_0))
    return node(output_throughput=above, median_tpot_ms=above, step_ms=step)


_ERRORS = node(median_abs_error=Number, worst_abs_error=Number)
_CELL = node(
    policy=Text,
    concurrency=Positive,
    commits=node(rounds=Count, differing=Count, first=str | None),
    measured=_values(list[Above0], list[Number]),
    predicted=_values(Above0, Number),
    error=node(**dict.fromkeys(METRICS, float)),
    noise=Number | None,
)
_INVERSION = node(
    concurrency=Positive,
    pair=Annotated[list[Text], Field(min_length=2, max_length=2)],
    measured_ratio=Above0,
    interval=Annotated[list[float], Field(min_length=2, max_length=2)],
    predicted_ratio=Above0,
)
_SUMMARY = node(
    noise_floor=Number | None,
    rank_correlation=dict[Annotated[str, Field(pattern=r"^\d+$")], float | None],
    inversions=list[_INVERSION],
    **dict.fromkeys(METRICS, _ERRORS),
)


class _Validation(Schema):
    format: Literal["specdec-validation"]
    version: Literal[1]
    pair: Text
    drafter: Text
    hardware: Text
    device: Text
    dtype: Text
    packing: Text
    temperature: Number
    profile: Text
    host: dict[str, float]
    fitted_on: node(prompts=Count, runs=Count)
    prompts: Positive
    repeats: Positive
    seed: Count
    summary: _SUMMARY
    cells: Annotated[list[_CELL], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self):
        """A value for each repeat, errors that are those of the values, and each cell once."""
        seen = set()
        for at, cell in enumerate(self.cells):
            data, where = cell.model_dump(), f"cells[{at}]"
            measured = data["measured"]
            for name, values in (measured | measured["step_ms"]).items():
                if name != "step_ms" and len(values) != self.repeats:
                    raise ValueError(
                        f"{where}.measured: {len(values)} values of {name}, expected "
                        f"{self.repeats}, one for each repeat"
                    )
            for metric in METRICS:
                # The written error must be the one between the written values: panels draw both.
                live, predicted = _means(data, metric.replace("step_ms", "step_ms.total"))
                error, expected = data["error"][metric], predicted / live - 1
                if abs(error - expected) > _ROUNDING * (1 + abs(expected)):
                    raise ValueError(
                        f"{where}.error.{metric} is {error:.6g}, expected {expected:.6g}: "
                        "predicted over the mean of measured, less 1"
                    )
            if (cell.policy, cell.concurrency) in seen:
                raise ValueError(
                    f"{where} is {cell.policy} at concurrency {cell.concurrency} once more, "
                    "expected one cell for each"
                )
            seen.add((cell.policy, cell.concurrency))
        return self


@dataclass(frozen=True, slots=True)
class Validation:
    """One checked ``validation.json``; ``data`` holds it as written.

    ``cells`` has a row for each policy at a concurrency, by concurrency, then the known policies
    first: ``max_concurrency``, ``policy``, ``requests_differing`` (whose rounds are not the
    replay's), ``noise`` (half the 95 % interval of the live throughput, relative; NaN of one
    repeat); live means and predictions of ``output_throughput`` (tokens/s), ``median_tpot_ms``,
    ``draft_ms``, ``verify_ms`` and ``host_ms``, the latter ending in ``_predicted``; and errors of
    `METRICS`, relative, ending in ``_error``.
    """

    path: Path
    data: Mapping[str, Any] = field(repr=False)
    cells: pandas.DataFrame = field(repr=False)

    @property
    def policies(self) -> list[str]:
        """Every policy once, in the order of tables."""
        return sorted(set(self.cells["policy"]), key=_place)

    @property
    def concurrencies(self) -> list[int]:
        return sorted(set(self.cells["max_concurrency"]))


def _place(policy: str) -> tuple[int, str]:
    return policy_rank(policy), policy


def find_validation(paths: Sequence[str | os.PathLike]) -> Path | None:
    """The validation among what a command line names, None where there is none.

    Raises:
        InputError: it does not stand alone.
    """
    found = [one for one in map(Path, paths) if one.is_file()]
    found += [one / FILE_NAME for one in map(Path, paths) if (one / FILE_NAME).is_file()]
    if found and len(paths) > 1:
        raise InputError(f"{found[0]}: a validation is read alone, got {len(paths)} paths")
    return found[0] if found else None


def read_validation(path: Path) -> Validation:
    """A checked validation; InputError naming the file and the first thing that is wrong."""
    data = read_json(path, "a validation")
    found = data.get("format") if isinstance(data, dict) else None
    if found != "specdec-validation":
        raise InputError(
            f'{path}: format is {found!r}, expected "specdec-validation" (of runs name the folder)'
        )
    checked(_Validation, data, path)
    cells = sorted(data["cells"], key=lambda one: (one["concurrency"], _place(one["policy"])))
    return Validation(path, data, pandas.DataFrame(map(_record, cells)))


def _record(cell: Mapping[str, Any]) -> dict[str, Any]:
    record = {
        "max_concurrency": cell["concurrency"],
        "policy": cell["policy"],
        "requests_differing": cell["commits"]["differing"],
    }
    steps = {f"{part}_ms": f"step_ms.{part}" for part in PARTS}
    for name, key in ({one: one for one in METRICS[:2]} | steps).items():
        record[name], record[f"{name}_predicted"] = _means(cell, key)
        if name == "output_throughput":
            record["noise"] = float("nan") if cell.get("noise") is None else cell["noise"]
    return record | {f"{metric}_error": cell["error"][metric] for metric in METRICS}


def _means(cell: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Mean of measured, and predicted, at a dotted name."""
    measured, predicted = cell["measured"], cell["predicted"]
    for key in name.split("."):
        measured, predicted = measured[key], predicted[key]
    return fsum(measured) / len(measured), predicted
