"""Reading ``bounds.json``: what no policy exceeds, per batch size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.checks import MAPPING, NUMBER, POSITIVE, TEXT, check_key
from traces.common.errors import InputError
from traces.common.json import read_json

FORMAT, VERSION = "specdec-bounds", 1
_IDENTITY = {"trace.content_hash": TEXT, "trace.recording": TEXT, "latency.profile": TEXT}


@dataclass(frozen=True, slots=True)
class Bounds:
    """One checked ``bounds.json``; ``data`` holds it as written."""

    path: Path
    data: dict[str, Any] = field(repr=False)
    rates: dict[int, dict[str, float]]  # tokens/s by batch size, then by bound

    def of(self, batch: int) -> tuple[float, float, float]:
        """Tokens/s of plain decoding, of the bound in the order, and of the bound of free nodes.

        A lone request has its own schedules (O2, O3); a batch has O5 of both kinds.
        """
        found = self.rates[batch]
        names = ("o2", "o3") if batch == 1 else ("o5", "o5_free")
        return found["plain"], *(found[name] for name in names)


def read_bounds(path: Path) -> Bounds:
    """Checked bounds; InputError naming the file and the first thing that is wrong."""
    data = read_json(path, "bounds")
    try:
        return Bounds(path, data, _rates(data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _rates(data: Any) -> dict[int, dict[str, float]]:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f'not bounds, expected format "{FORMAT}"')
    if data.get("version") != VERSION:
        raise InputError(f"version {data.get('version')!r} is not supported, expected {VERSION}")
    for name, check in ({"trace": MAPPING, "latency": MAPPING} | _IDENTITY).items():
        check_key(data, name, check)
    check_key(data, "batches", (lambda value: isinstance(value, list) and value, "a list"))
    found = [_batch(entry, f"batches[{at}].") for at, entry in enumerate(data["batches"])]
    sizes = [batch for batch, _ in found]
    for at, batch in enumerate(sizes):
        if batch in sizes[:at]:
            raise InputError(f"batches[{at}].batch is {batch} once more, expected each size once")
    return dict(found)


def _batch(entry: Any, where: str) -> tuple[int, dict[str, float]]:
    entry = entry if isinstance(entry, dict) else {}
    check_key(entry, "batch", POSITIVE, where)
    alone = ("o2", "o3") if entry["batch"] == 1 else ()
    names = ("plain", *alone, "o5", "o5_free")
    for name in names:
        check_key(entry, f"bounds.{name}.output_throughput", NUMBER, where)
    rates = {name: float(entry["bounds"][name]["output_throughput"]) for name in names}
    return entry["batch"], rates
