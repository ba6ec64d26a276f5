"""Reading ``bounds.json``: what no policy exceeds, per batch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from analysis.read.files import Number, Positive, Schema, Text, checked, node
from traces.common.errors import InputError
from traces.common.json import read_json

_RATE = node(output_throughput=Number)


class _Batch(Schema):
    batch: Positive
    bounds: node(plain=_RATE, o5=_RATE, o5_free=_RATE, o2=_RATE | None, o3=_RATE | None)

    @model_validator(mode="after")
    def _of_one(self):
        if self.batch == 1 and None in (self.bounds.o2, self.bounds.o3):
            raise ValueError("is of batch 1: bounds.o2 or bounds.o3 is missing")
        return self


class _File(Schema):
    format: Literal["specdec-bounds"]
    version: Literal[1]
    trace: node(content_hash=Text, recording=Text)
    latency: node(profile=Text)
    batches: Annotated[list[_Batch], Field(min_length=1)]

    @model_validator(mode="after")
    def _once(self):
        sizes = [one.batch for one in self.batches]
        for at, batch in enumerate(sizes):
            if batch in sizes[:at]:
                raise ValueError(
                    f"batches[{at}].batch is {batch} once more, expected each size once"
                )
        return self


@dataclass(frozen=True, slots=True)
class Bounds:
    """One checked ``bounds.json``; ``data`` holds it as written.

    ``rates`` has tokens/s by batch size: of plain decoding, of the bound in the order, and of the
    bound of free nodes. A lone request has its own schedules (O2, O3), a batch O5 of both kinds.
    """

    path: Path
    data: Mapping[str, Any] = field(repr=False)
    rates: dict[int, tuple[float, float, float]]


def read_bounds(path: Path) -> Bounds:
    """Checked bounds; InputError naming the file and the first thing that is wrong."""
    data = read_json(path, "bounds")
    if not isinstance(data, dict) or data.get("format") != "specdec-bounds":
        raise InputError(f'{path}: not bounds, expected format "specdec-bounds"')
    rates = {}
    for one in checked(_File, data, path).batches:
        own = one.bounds
        order, free = (own.o2, own.o3) if one.batch == 1 else (own.o5, own.o5_free)
        rates[one.batch] = tuple(rate.output_throughput for rate in (own.plain, order, free))
    return Bounds(path, data, rates)
