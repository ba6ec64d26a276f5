"""Results that vLLM's serving benchmark saves (`vllm bench serve --save-result`) as points.

One object, several of them a line each (`--append-result`), or a list. SGLang's benchmark writes
the same keys but for a few, which keep their own names.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence

from traces.common.settings import read
from traces.importers import points as point_options
from traces.importers.files import ImportReport, InputFile, counted, printable, read_line
from traces.importers.node import Node, is_number
from traces.importers.points import OBJECTIVES, Point, Stated, write_points

HELP = "results of vLLM's serving benchmark (--save-result) -> points FILE.json"
LACKS = (
    "engine settings (attention, graphs, drafter, largest batch), unless in its metadata",
    "prompts and temperature",
    "step times (ITL counts gaps between chunks, at the client)",
)
_TIMES = re.compile(r"(mean|median|std|p[0-9]+(\.[0-9]+)?)_(ttft|tpot|itl|e2el)_ms")
_RATES = ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput")
_DRAFTS = ("spec_decode_acceptance_length", "spec_decode_acceptance_rate", "acceptance_length")
# SGLang's: its scheduler counts the bonus token and the root, so the name is kept
_OTHERS = ("accept_length",)
_ALIASES = {
    "request_goodput:": "request_goodput",  # as some versions spell it
    "mean_e2e_latency_ms": "mean_e2el_ms",
    "median_e2e_latency_ms": "median_e2el_ms",
    "std_e2e_latency_ms": "std_e2el_ms",
    "p99_e2e_latency_ms": "p99_e2el_ms",
}
_FACTS = (
    *("completed", "failed", "num_prompts", "duration", "backend", "endpoint_type", "date"),
    OBJECTIVES,  # no result states them but in its --metadata
)
_GOODPUT = "request_goodput"

_LOAD = ("max_concurrency", "request_rate", "burstiness", "ramp_up_strategy")
_NAMES = ("label", "model_id", "model")


add_arguments = point_options.add_arguments


def run(args: argparse.Namespace) -> ImportReport:
    """Import every result as one point.

    Raises:
        InputError: naming file, key path and value.
    """
    sources, stated = point_options.read_options(args)
    points, lines = [], []
    for source in sources:
        found, unused = _read(source, stated)
        points += found
        lines.append(read_line(source, counted(len(found), "result"), unused))
    lacks = (*LACKS, *_unfinished(points))
    silent = [p for p in points if _GOODPUT in p.metrics and p.objectives is None]
    if silent:  # goodput without its objectives is of an unknown question
        where = "" if len(silent) == len(points) else f" ({', '.join(p.label for p in silent)})"
        lacks += (f"objectives of {_GOODPUT}{where}",)
    lacks += tuple(point_options.load_lacks(points))
    if not any(name in point.metrics for point in points for name in (*_DRAFTS, *_OTHERS)):
        lacks += ("acceptance",)
    return write_points(args, stated, sources, lacks, points, lines)


def _read(source: InputFile, stated: Stated) -> tuple[list[Point], set[str]]:
    """The points of a file, and the keys that none of them uses."""
    nodes = source.json_objects()
    if not nodes:
        Node(str(source.path), "", []).refuse("at least one result")
    stem = source.path.stem
    labels = [stem] if len(nodes) == 1 else [f"{stem} {number + 1}" for number in range(len(nodes))]
    points, unused = [], set()
    for node, label in zip(nodes, labels, strict=True):
        keys = node.mapping("the result of a serving benchmark, an object")
        points.append(stated.added(_point(node, keys, source, label)))
        unused |= {key for key in keys if not _is_used(key, keys)}
    return points, unused


def _point(node: Node, keys: dict[str, Node], source: InputFile, label: str) -> Point:
    metrics = {
        _ALIASES.get(key, key): value.number()
        for key, value in keys.items()
        if _is_metric(key) and value.value is not None
    }
    if not metrics:
        node.refuse(f"the result of a serving benchmark, with {', '.join(_RATES[:2])} and the like")
    check_rates(keys)
    loads = ("max_concurrency", "request_rate", "burstiness")
    stated = {name: keys[name].value for name in loads if name in keys}
    values = stated | {
        "label": _name(keys.get("label")) or printable(label) or "result",
        "metrics": metrics,
        "file": source.described["name"],
        "model": _name(keys.get("model_id", keys.get("model"))),
        "facts": {name: keys[name].value for name in _FACTS if _is_fact(keys.get(name))},
    }
    if not _is_steady(keys):
        values["request_rate"] = None
    return read(Point, values, node.below(""), node.source)


def _is_steady(keys: dict[str, Node]) -> bool:
    ramp = keys.get("ramp_up_strategy")
    return ramp is None or ramp.value is None


def _is_used(key: str, keys: dict[str, Node]) -> bool:
    """Whether its value went into the point or was held against others; null says nothing."""
    if keys[key].value is None and key in (*_FACTS, *_LOAD, *_NAMES):
        return True
    if key in _NAMES:
        other = key == "model" and "model_id" in keys
        return _name(keys[key]) is not None and not other
    if key == "request_rate":
        return _is_steady(keys)
    fact = key in _FACTS and _is_fact(keys[key])
    held = any(key in (SECONDS, *names) and rate in keys for rate, names in COUNTED.items())
    return key in _LOAD or fact or _is_metric(key) or held


def _is_metric(key: str) -> bool:
    name = _ALIASES.get(key, key)
    return name in (*_RATES, *_DRAFTS, *_OTHERS) or bool(_TIMES.fullmatch(name))


def _name(node: Node | None) -> str | None:
    text = node.value if node is not None else None
    return printable(text) or None if isinstance(text, str) else None


def _is_fact(node: Node | None) -> bool:
    if node is None:
        return False
    text = isinstance(node.value, str) and node.value.isprintable() and len(node.value) <= 200
    return text or (is_number(node.value) and abs(node.value) < 1e300)


def _unfinished(points: Sequence[Point]) -> list[str]:
    """Requests that count in no latency, by point."""
    lacks = []
    for point in points:
        facts = {name: value for name, value in point.facts.items() if is_number(value)}
        failed = facts.get("failed", 0)
        if "num_prompts" in facts and "completed" in facts:
            failed = max(failed, facts["num_prompts"] - facts["completed"])
        if failed > 0:
            lacks.append(f"requests that failed ({failed:g} of {point.label})")
    return lacks


# ---------------- Rates that a result states beside the counts and the seconds they come from.

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
    seconds = _count_of(keys, SECONDS)
    for rate_name, names in COUNTED.items():
        rate, counts = _count_of(keys, rate_name), [_count_of(keys, name) for name in names]
        if not seconds or rate is None or None in counts:
            continue
        count = sum(counts)
        shortest, longest = _rounded_to(seconds)
        slowest, fastest = _rounded_to(rate)
        least, most = count / longest, count / shortest if shortest > 0 else math.inf
        if fastest < least or slowest > most:
            keys[rate_name].refuse(
                f"({' + '.join(names)}) / {SECONDS}, {count:g} / {seconds:g} = {count / seconds:g}"
            )


def _count_of(keys: Mapping[str, Node], name: str) -> float | None:
    """A number from 0; None where the result has none."""
    value = keys[name].value if name in keys else None
    return value if is_number(value) and 0 <= value < 1e300 else None


def _rounded_to(value: float) -> tuple[float, float]:
    """What may have been rounded to it: 12.45 to 12.55 for 12.5, 11.5 to 12.5 for 12."""
    text = repr(value)
    half = 0.0 if "e" in text else 0.5 * 10.0 ** -len(text.partition(".")[2])
    return value * (1 - _SLACK) - half, value * (1 + _SLACK) + half
