"""Reading the verify times of a latency profile: `traces/latency/README.md` describes its files."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import traces
from traces.common.errors import InputError
from traces.common.json import first_twice

SHIPPED = Path(traces.__file__).parent / "latency"
_COLUMNS = ("batch", "kv_prefix_tokens")
_PER_REQUEST, _TOTAL = "packed_tokens_per_request", "packed_tokens_total"


@dataclass(frozen=True, slots=True)
class Slice:
    """Verify times of one batch size and KV prefix, by packed tokens of the whole step."""

    batch: str  # a number, or "any"
    prefix: int | None
    tokens: tuple[int, ...]  # (n,) rising
    verify_ms: tuple[float, ...]  # (n,)
    eager: tuple[bool, ...]  # (n,)

    def at(self, tokens: int) -> float | None:
        """Milliseconds at `tokens`, on the line between neighbours; None outside the table."""
        import numpy as np

        if not self.tokens[0] <= tokens <= self.tokens[-1]:
            return None
        return float(np.interp(tokens, self.tokens, self.verify_ms))


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile."""

    name: str
    header: dict[str, Any]
    slices: tuple[Slice, ...]  # by batch, then prefix

    @property
    def source(self) -> str:
        parts = [self.header.get("hardware"), self.header.get("model"), self.header.get("source")]
        return ", ".join(" ".join(str(part).split()) for part in parts if part)

    def shown(self) -> list[Slice]:
        """Every prefix of a lone batch size; else a slice of each, at the commonest prefix."""
        if len({one.batch for one in self.slices}) == 1:
            return list(self.slices)
        counts: dict[int | None, int] = defaultdict(int)
        for one in self.slices:
            counts[one.prefix] += 1
        order = sorted(counts, key=lambda prefix: (-counts[prefix], prefix or 0))
        best: dict[str, Slice] = {}
        for prefix in order:
            for one in self.slices:
                if one.prefix == prefix:
                    best.setdefault(one.batch, one)
        return sorted(best.values(), key=lambda one: (len(one.batch), one.batch))


def shipped_profile(name: str) -> Path | None:
    """The shipped table of that name; None where there is none.

    A summary's text names it, so it is no path: other tables are named on the command line.
    """
    known = {path.stem: path for path in SHIPPED.glob("*.csv") if "." not in path.stem}
    return known.get(name)


def read_profile(path: Path) -> Profile:
    """A profile's header and table.

    Raises:
        InputError: a table or header that is missing or damaged, by file and line.
    """
    header = _header(path.with_suffix(".yaml"))
    groups: dict[tuple[str, int | None], list[tuple[int, float, bool]]] = defaultdict(list)
    for number, row in enumerate(_rows(path), start=2):
        try:
            key, point = _point(row, header)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: line {number}: {error!r}, expected a row of times") from None
        groups[key].append(point)
    try:
        slices = [_slice(key, sorted(points)) for key, points in sorted(groups.items(), key=_order)]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not slices:
        raise InputError(f"{path}: no rows, expected verify times")
    return Profile(path.stem, header, tuple(slices))


def _order(item: tuple[tuple[str, int | None], Any]) -> tuple:
    (batch, prefix), _ = item
    return batch == "any", len(batch), batch, prefix or 0


def _slice(key: tuple[str, int | None], points: Sequence[tuple[int, float, bool]]) -> Slice:
    tokens, times, eager = zip(*points, strict=True)
    twice = first_twice(tokens)
    if twice is not None:
        raise InputError(f"batch {key[0]}: two times of {twice} tokens, expected one")
    return Slice(*key, tokens, times, eager)


def _point(row: dict[str, str], header: dict) -> tuple[tuple, tuple[int, float, bool]]:
    fixed = header.get("fixed") or {}
    batch, prefix = (row.get(name) or fixed.get(name) for name in _COLUMNS)
    batch = str(batch if batch is not None else 1)
    tokens = int(row[_TOTAL]) if _TOTAL in row else int(row[_PER_REQUEST]) * int(batch)
    verify_ms = float(row["verify_ms"])
    if not (isfinite(verify_ms) and verify_ms > 0 and 0 < tokens < 2**53):
        raise ValueError(f"{tokens} tokens in {verify_ms} ms")
    key = batch, None if prefix is None else int(prefix)
    return key, (tokens, verify_ms, row.get("regime") == "eager")


def _rows(path: Path) -> Iterable[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, names = list(reader), list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: unreadable ({error}), expected a table of times") from error
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path}: column {twice!r:.60} is there twice, expected once")
    if rows and None in rows[0]:
        raise InputError(f"{path}: line 2 has more values than columns, expected as many")
    wanted = "verify_ms" in (rows[0] if rows else {})
    if not wanted or not {_PER_REQUEST, _TOTAL} & set(rows[0]):
        found = " ".join(", ".join(names).split())[:200] or "none"
        raise InputError(
            f"{path}: columns {found}; accepted: {_PER_REQUEST} or {_TOTAL}, and verify_ms"
        )
    return rows


def _header(path: Path) -> dict[str, Any]:
    from traces.common.yaml import load_yaml

    try:
        node = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{path}: unreadable ({reason}), expected a profile's header") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds {node!r:.40}, expected a profile's header")
    if not isinstance(node.get("fixed") or {}, dict):
        raise InputError(f"{path}: fixed is {node['fixed']!r:.40}, expected a mapping")
    return node
