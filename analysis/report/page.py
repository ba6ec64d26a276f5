"""What the page of a report shows: filled into the template ``page.html.j2`` beside this file.

The page needs nothing beside itself: figures are inside it as SVG, nothing is fetched, and there is
no script in it.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from analysis.compare.comparison import Comparison
from analysis.compare.metrics import Metric
from analysis.compare.settings import differing
from analysis.figures.draw import METADATA, Drawing, Inputs
from analysis.figures.drawing import style
from analysis.look import in_order, look_of, natural, policy_name
from analysis.text.notes import notes, warnings
from analysis.text.tables import tables
from analysis.text.validation import counted, facts
from traces.common.errors import InputError
from traces.common.table import Table
from traces.common.yaml import load_yaml

ORDER = (
    "throughput", "pareto", "goodput", "domains", "budget", "acceptance", "nodes", "time",
    "latency", "prefix_mass", "reliability", "live",
)  # fmt: skip
CONFIG_FILE = Path(".hydra", "config.yaml")
_OF_SUMMARY = (
    "policy", "policy_config", "policy_code", "trace", "latency", "server", "max_concurrency",
    "request_rate", "burstiness", "ramp", "num_prompts", "seed", "goodput", "workload",
)  # fmt: skip
_RUN_COLUMNS = ("folder", "policy", "load", "seed", "requests", "output tokens/s", "config hash")

Flat = dict[str, str]  # dotted key, value as JSON


def page(
    inputs: Inputs,
    drawn: Sequence[Drawing],
    left_out: Sequence[str],
    metrics: Sequence[Metric],
    title: str | None,
    command: str,
) -> str:
    """The whole document; `left_out`: lines on figures that could not be drawn."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals |= {"colour": lambda label: look_of(policy_name(label)).colour}
    environment.filters["svg"] = _svg
    names = list(dict.fromkeys(one.title for one in inputs.comparisons))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    settings = [_setting(one, drawn, metrics) for one in inputs.comparisons]
    if len(settings) == 1:
        settings[0]["title"] = "Comparison"
    return environment.get_template("page.html.j2").render(
        title=title or "; ".join(names[:2]) + more or "Measurements",
        summary=_summary(inputs),
        settings=settings,
        others=[one for one in drawn if one.comparison is None],
        validations=[facts(one) for one in inputs.validations],
        left_out=left_out,
        command=command,
    )


def _shown(value: Any) -> Any:
    """A text that cannot become markup; what no document may hold is shown as ?."""
    if isinstance(value, Markup):
        return value
    return escape("".join(c if c.isprintable() or c in "\n\t" else "?" for c in str(value)))


def _svg(drawing: Drawing) -> str:
    """The drawing as SVG in an address, the same bytes each time."""
    out = BytesIO()
    with style():
        drawing.figure.savefig(out, format="svg", metadata=METADATA["svg"])
    return Markup(f"data:image/svg+xml;base64,{b64encode(out.getvalue()).decode('ascii')}")


def _summary(inputs: Inputs) -> str:
    parts = []
    if inputs.comparisons:
        labels = {label for one in inputs.comparisons for label in one.labels}
        loads = {load for one in inputs.comparisons for load in one.rows["load"]}
        parts.append(
            f"{counted(len(inputs.runs), 'run')}: {counted(len(labels), 'policy', 'policies')}, "
            f"{counted(len(loads), 'load')}, {counted(inputs.runs['seed'].nunique(), 'seed')}"
        )
    for kind, word in ((inputs.validations, "validation"), (inputs.calibrations, "calibration")):
        parts += [counted(len(kind), word)] if kind else []
    return "; ".join(parts) + "." if parts else ""


def _setting(
    one: Comparison, drawn: Sequence[Drawing], metrics: Sequence[Metric]
) -> dict[str, Any]:
    """What the section of one setting shows."""
    shared, by_label, without_file = read_configs(one)
    nodes = {"recording": one.trace, "latency": one.latency, "server": one.first.get("server")}
    works = {str(data["workload"]) for data in one.runs["data"] if data.get("workload")}
    return {
        "title": one.title,
        "warnings": warnings(one),
        "figures": [drawing for drawing in drawn if drawing.comparison is one],
        "tables": tables(one, metrics),
        "facts": notes(one),
        "provenance": [(name, _keys(node or {})) for name, node in nodes.items()],
        "content_hash": one.trace["content_hash"],
        "configs": [
            ("Shared by every run", _lines({key: [one] for key, one in shared.items()})),
            *((label, _lines(own)) for label, own in by_label.items()),
        ],
        "without_file": without_file,
        "runs": _runs(one),
        "works": sorted(works),
    }


def _keys(node: Mapping[str, Any]) -> Table:
    rows = [[key, "" if value is None else str(value)] for key, value in node.items()]
    return Table(("key", "value"), sorted(rows), align="ll")


def _lines(values: Mapping[str, Sequence[str]]) -> str:
    lines = [f"{key}: {' | '.join(one)}" for key, one in sorted(values.items())]
    return "\n".join(lines) or "nothing"


def _runs(comparison: Comparison) -> Table:
    """Every run with its folder, below the one that holds them all."""
    paths = [str(path.parent) for path in comparison.runs["path"]]
    root = os.path.commonpath(paths) if len(paths) > 1 else os.path.dirname(paths[0])
    rows = [
        [
            os.path.relpath(run.path.parent, root),
            run.label,
            run.load.title,
            str(run.seed),
            str(run.num_prompts),
            f"{run.output_throughput:.1f}",
            str(run.data.get("config_hash") or "")[:16],
        ]
        for run in comparison.runs.itertuples()
    ]
    return Table(_RUN_COLUMNS, rows, align="lllrrrl")


# ---------------------------------------------------------------- configurations


def read_configs(comparison: Comparison) -> tuple[Flat, dict[str, dict[str, list[str]]], int]:
    """Every run's configuration: what all share, and by label the values of keys that differ.

    Last comes how many runs' folders lack a configuration: theirs is read from the summary.

    Raises:
        InputError: a configuration that is damaged.
    """
    runs, missing = comparison.runs, 0
    found: list[tuple[str, Flat]] = []
    for label, path, data in zip(runs["label"], runs["path"], runs["data"], strict=True):
        file = path.parent / CONFIG_FILE
        missing += not file.is_file()
        node = {key: data[key] for key in _OF_SUMMARY if key in data}
        found.append((label, dict(_flat(_read(file) if file.is_file() else node))))
    apart = differing([flat for _, flat in found])
    own: dict[str, dict[str, set[str]]] = {label: {} for label in in_order(runs["label"])}
    for label, flat in found:
        for key in flat.keys() & apart:
            own[label].setdefault(key, set()).add(flat[key])
    by_label = {
        label: {key: sorted(values, key=natural) for key, values in one.items()}
        for label, one in own.items()
    }
    shared = {key: text for key, text in found[0][1].items() if key not in apart}
    return shared, by_label, missing


def _read(path: Path) -> Mapping[str, Any]:
    try:
        node = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: unreadable, expected the configuration of a run") from error
    if not isinstance(node, dict):
        raise InputError(f"{path}: holds {node!r:.40}, expected the configuration of a run")
    return node


def _flat(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, default=str, ensure_ascii=False)
