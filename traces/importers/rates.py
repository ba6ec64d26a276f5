"""Rates that a benchmark's result states beside the counts and the seconds they come from."""

from __future__ import annotations

import math
from collections.abc import Mapping

from traces.importers.node import Node, is_number

SECONDS = "duration"
COUNTED = {  # a rate is the sum of these over `duration`, in vLLM's and in SGLang's benchmark
    "request_throughput": ("completed",),
    "output_throughput": ("total_output_tokens",),
    "total_token_throughput": ("total_input_tokens", "total_output_tokens"),
}
_SLACK = 1e-6  # relative: sums of floats


def check_rates(keys: Mapping[str, Node]) -> None:
    """Hold every rate against its counts, as far as the result has them.

    Raises:
        InputError: a rate that is not their quotient, whatever the last digit of rate and seconds
            was rounded to.
    """
    seconds = _number(keys, SECONDS)
    for rate_name, names in COUNTED.items():
        rate, counts = _number(keys, rate_name), [_number(keys, name) for name in names]
        if not seconds or rate is None or None in counts:
            continue
        count = sum(counts)
        shortest, longest = _ends(seconds)
        slowest, fastest = _ends(rate)
        least, most = count / longest, count / shortest if shortest > 0 else math.inf
        if fastest < least or slowest > most:
            keys[rate_name].refuse(
                f"({' + '.join(names)}) / {SECONDS}, {count:g} / {seconds:g} = {count / seconds:g}"
            )


def is_checked(key: str, keys: Mapping[str, Node]) -> bool:
    """Whether `check_rates` holds one of the result's rates against it."""
    return any(key in (SECONDS, *names) and rate in keys for rate, names in COUNTED.items())


def _number(keys: Mapping[str, Node], name: str) -> float | None:
    """A number from 0; None where the result has none."""
    value = keys[name].value if name in keys else None
    return value if is_number(value) and 0 <= value < 1e300 else None


def _ends(value: float) -> tuple[float, float]:
    """What may have been rounded to it: 12.45 to 12.55 for 12.5, 11.5 to 12.5 for 12."""
    text = repr(value)
    half = 0.0 if "e" in text else 0.5 * 10.0 ** -len(text.partition(".")[2])
    return value * (1 - _SLACK) - half, value * (1 + _SLACK) + half
