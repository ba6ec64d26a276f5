"""The page of a report: its sections in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.compare import Comparison
from analysis.figure.parts import Drawing
from analysis.html import Html, details, join, listing, table, tag, terms
from analysis.inputs import Inputs
from analysis.metrics import Metric
from analysis.notes import notes, setting_title
from analysis.report_figures import figures
from analysis.report_style import CSS
from analysis.report_tables import block_section, configurations, run_list
from analysis.validation_text import facts
from analysis.warn import warnings

# Nothing may be fetched, whatever the files that are shown here hold.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class Content:
    """What the page is made of."""

    inputs: Inputs
    drawn: Sequence[Drawing]
    left_out: Sequence[str]  # lines on figures that could not be drawn
    metrics: Sequence[Metric]
    title: str | None
    command: str


def page(content: Content) -> str:
    """The whole document."""
    title = content.title or _title(content.inputs)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", title),
        tag("style", Html(CSS)),
    )
    parts = list(_sections(content))
    contents = tag(
        "nav", tag("ul", [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in parts])
    )
    sections = [tag("section", tag("h2", name), body, id=key) for key, name, body in parts]
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", _summary(content.inputs), class_="lead")),
        contents,
        tag("main", sections),
        tag("footer", tag("p", "Written by ", tag("code", content.command))),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _title(inputs: Inputs) -> str:
    names = list(dict.fromkeys(setting_title(one) for one in inputs.comparisons))
    return "; ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "") or (
        "Measurements"
    )


def _summary(inputs: Inputs) -> str:
    runs = inputs.summaries
    parts = []
    if runs:
        loads = {block.load for one in inputs.comparisons for block in one.blocks}
        seeds = {run.seed for run in runs}
        parts.append(
            f"{_count(len(runs), 'run')}: {_count(len(inputs.labels), 'policy', 'policies')}, "
            f"{_count(len(loads), 'load')}, {_count(len(seeds), 'seed')}"
        )
    for kind, word in ((inputs.validations, "validation"), (inputs.calibrations, "calibration")):
        if kind:
            parts.append(_count(len(kind), word))
    return "; ".join(parts) + "." if parts else ""


def _count(number: int, word: str, many: str = "") -> str:
    return f"{number} {word if number == 1 else many or word + 's'}"


def _sections(content: Content) -> Iterator[tuple[str, str, Html]]:
    """(identifier, heading, body)."""
    several = len(content.inputs.comparisons) > 1
    for number, one in enumerate(content.inputs.comparisons):
        key = f"setting-{number}"
        name = setting_title(one) if several else "Comparison"
        yield key, name, _setting(content, one)
    rest = [one for one in content.drawn if one.comparison is None]
    if rest:
        yield "more-figures", "Profiles, drafts and measurements", figures(rest)
    for number, one in enumerate(content.inputs.validations):
        yield f"validation-{number}", "Predicted against live", terms(facts(one))
    if content.left_out:
        yield "left-out", "Figures left out", listing(content.left_out)


def _setting(content: Content, one: Comparison) -> Html:
    mine = [drawing for drawing in content.drawn if drawing.comparison is one]
    found = warnings(one)
    return join(
        [
            tag("h3", "Before you read on") if found else "",
            tag("div", listing(found), class_="warn", role="note") if found else "",
            tag("h3", "Figures") if mine else "",
            figures(mine),
            tag("h3", "Tables"),
            [block_section(block, content.metrics) for block in one.blocks],
            tag("p", "Bold: best mean of its column. ±: half of a 95 % interval over seeds."),
            tag("h3", "What it rests on"),
            terms([*notes(one), *_provenance(one)]),
            tag("h3", "Configurations"),
            configurations(one),
            details("Every run", run_list(one)),
        ]
    )


def _provenance(one: Comparison) -> Iterator[tuple[str, object]]:
    data = one.runs[0].data
    yield "content hash", one.trace["content_hash"]
    for key in ("recording", "latency", "server"):
        node = {"recording": one.trace, "latency": one.latency}.get(key, data.get(key)) or {}
        rows = [(name, _shown(value)) for name, value in sorted(node.items())]
        folded = details(f"{len(rows)} settings", table(("key", "value"), rows, (0, 1)))
        yield f"all of {key}", folded
    works = sorted({str(run.data["workload"]) for run in one.runs if run.data.get("workload")})
    if works:
        yield "workload", "; ".join(works[:3])


def _shown(value: object) -> str:
    return "" if value is None else str(value)
