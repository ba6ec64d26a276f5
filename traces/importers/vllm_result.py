"""Results that vLLM's serving benchmark saves (`vllm bench serve --save-result`) as points.

One object, several of them a line each (`--append-result`), or a list. SGLang's benchmark writes
the same keys but for a few, which keep their own names.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from traces.importers import point_options
from traces.importers.files import Source, printable
from traces.importers.node import Node, is_number
from traces.importers.point_options import Stated
from traces.importers.points import MOST_REQUESTS, Point, positive, rate_of, write_points
from traces.importers.report import Report, counted, read_line

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
_FACTS = ("completed", "failed", "num_prompts", "duration", "backend", "endpoint_type", "date")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a result may leave out."""
    point_options.add_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Import every result as one point.

    Raises:
        InputError: naming file, key path and value.
    """
    sources, stated = point_options.read_options(args)
    points, lines = [], []
    for source in sources:
        found = _read(source, stated)
        points += found
        lines.append(read_line(source, counted(len(found), "result")))
    lacks = (*LACKS, *_unfinished(points), *point_options.load_lacks(points))
    if not any(name in point.metrics for point in points for name in (*_DRAFTS, *_OTHERS)):
        lacks += ("acceptance",)
    write_points(args.out, "vllm-result", stated.source, sources, lacks, points)
    return Report(tuple(lines), lacks, (args.out,))


def _read(source: Source, stated: Stated) -> list[Point]:
    nodes = source.json_objects()
    if not nodes:
        Node(str(source.path), "", []).refuse("at least one result")
    stem = source.path.stem
    labels = [stem] if len(nodes) == 1 else [f"{stem} {number + 1}" for number in range(len(nodes))]
    return [
        stated.added(_point(node, source, label)) for node, label in zip(nodes, labels, strict=True)
    ]


def _point(node: Node, source: Source, label: str) -> Point:
    keys = node.mapping("the result of a serving benchmark, an object")
    metrics = _metrics(node, keys)
    model = keys.get("model_id", keys.get("model"))
    ramp = keys.get("ramp_up_strategy")
    steady = ramp is None or ramp.value is None
    return Point(
        _name(keys.get("label")) or printable(label) or "result",
        metrics,
        file=source.described["name"],
        model=_name(model),
        max_concurrency=_given(keys, "max_concurrency", lambda n: n.whole(1, MOST_REQUESTS)),
        request_rate=_given(keys, "request_rate", rate_of) if steady else None,
        burstiness=_given(keys, "burstiness", positive),
        facts={name: keys[name].value for name in _FACTS if _is_fact(keys.get(name))},
    )


def _metrics(node: Node, keys: dict[str, Node]) -> dict[str, float]:
    metrics = {}
    for key, value in keys.items():
        name = _ALIASES.get(key, key)
        known = name in (*_RATES, *_DRAFTS, *_OTHERS) or _TIMES.fullmatch(name)
        if not known or value.value is None:
            continue
        metrics[name] = value.number()
    if not metrics:
        node.refuse(f"the result of a serving benchmark, with {', '.join(_RATES[:2])} and the like")
    return metrics


def _given(keys: dict[str, Node], name: str, read):
    node = keys.get(name)
    return None if node is None or node.value is None else read(node)


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
