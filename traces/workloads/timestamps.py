"""Dates with a time of day, as nanoseconds since 1970."""

from __future__ import annotations

import re

import numpy as np

from traces.workloads.cells import Column

DATE = (
    "a date and time such as 2023-11-16 18:15:46.6805900 or 2024-05-10T00:00:00.009930+00:00,"
    " 1970 to 2199, up to nine decimals"
)
_DATE = re.compile(  # the day and second, the decimals, the zone
    r"\s*((?:19[7-9]\d|2[01]\d\d)-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?"
    r"\s?(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?\s*",
    re.ASCII,
)


def date_texts(column: Column) -> np.ndarray:
    """(n,) int64 nanoseconds since 1970 in UTC; a date without a zone counts as UTC.

    Decimals beyond microseconds are kept: traces of Azure carry ticks of 100 ns.
    """
    parts = [_parts(cell) for cell in column.cells]
    values = _nanoseconds(parts) if all(parts) else None
    return values if values is not None else column.each(_one_date, np.int64, DATE)


def _parts(cell: str) -> tuple[str | None, ...] | None:
    """Day and second, decimals and zone of a date."""
    match = _DATE.fullmatch(cell)
    return match and match.groups()


def _one_date(cell: str) -> int | None:
    parts = _parts(cell)
    values = _nanoseconds([parts]) if parts else None
    return None if values is None else values[0]


def _nanoseconds(parts: list[tuple[str | None, ...]]) -> np.ndarray | None:
    """None where one is no date of the calendar, as the 31st of a short month."""
    seconds, decimals, zones = zip(*parts)
    try:
        since_1970 = np.array(seconds, dtype="datetime64[s]").astype(np.int64)
    except ValueError:
        return None
    below = np.fromiter((int((d or "0").ljust(9, "0")) for d in decimals), np.int64, len(decimals))
    ahead_of = {zone: _seconds_ahead(zone) for zone in set(zones)}
    ahead = np.fromiter((ahead_of[zone] for zone in zones), np.int64, len(zones))
    return (since_1970 - ahead) * 10**9 + below


def _seconds_ahead(zone: str | None) -> int:
    """Seconds by which a zone such as +02:00 is ahead of UTC."""
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = 3600 * int(digits[:2]) + 60 * int(digits[2:])
    return -seconds if zone[0] == "-" else seconds
