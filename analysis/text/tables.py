"""The tables of a comparison: one for each load, a row for each policy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from analysis.compare.comparison import Comparison
from analysis.compare.loads import Load
from analysis.compare.metrics import SPEEDUP, Metric
from analysis.read.runs import SOURCES
from analysis.text.notes import notes, percent
from traces.common.table import BLANK, Cell, Notes, Part, Table, Title

_WEAK = {"modelled": "modelled", "clamped": "clamped", "interpolated": "interp."}


def page(comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> list[Part]:
    """All settings: for each its title, its tables and what they rest on."""
    parts: list[Part] = []
    for number, one in enumerate(comparisons, start=1):
        label = f"{number}:" if len(comparisons) > 1 else ""
        parts += [Title(one.title), *tables(one, metrics, label), Notes(notes(one))]
    return parts


def tables(comparison: Comparison, metrics: Sequence[Metric], label: str = "") -> list[Table]:
    """One for each load; the best mean of a column is marked, unless all are equal.

    Records of CSV hold means, half widths of intervals (``_ci95``) and counts (``_n``) in the units
    of the summaries, and under ``best`` the metrics whose best mean at this load the row has.
    label: of LaTeX, before what tells the load.
    """
    found = {metric.key: comparison.estimates(metric.key) for metric in metrics}
    made = []
    for load, rows in comparison.blocks:
        best = {one.key: one.best(found[one.key].loc[rows.index, "mean"]) for one in metrics}
        lines, records = [], []
        for at, row in rows.iterrows():
            own = {metric.key: found[metric.key].loc[at] for metric in metrics}
            won = [key for key, one in own.items() if one["mean"] == best[key]]
            cells = [
                Cell(_shown(own[metric.key], row, metric), metric.key in won) for metric in metrics
            ]
            lines.append([row["label"], str(row["count"]), *cells, origin(row)])
            records.append(_record(comparison, load, row, own) | {"best": " ".join(won)})
            records[-1] |= {f"step_time_{name}": row[name] for name in SOURCES}
        rejected = [
            f"{row.label}: {row.rejected} of {row.sent} requests were rejected; they are in no "
            "latency and meet no objective"
            for row in rows[rows["rejected"] > 0].itertuples()
        ]
        has_speedup = any(metric.key == SPEEDUP for metric in metrics)
        made.append(
            Table(
                ["policy", "seeds", *(metric.title for metric in metrics), "step time from"],
                lines,
                records,
                caption=load.title,
                label=f"tab:{label}{load.suffix.lstrip('.')}",
                notes=[*rejected, *(_unpaired(comparison, load, rows) * has_speedup)],
                align="l" + "r" * (len(metrics) + 1) + "l",
                spare=range(2, 2 + len(metrics)),
            )
        )
    return made


def _shown(one: pandas.Series, row: pandas.Series, metric: Metric) -> str:
    if pandas.isna(one["mean"]):
        return BLANK
    text = metric.show(one["mean"])
    text += "" if pandas.isna(one["half"]) else f" ±{metric.show(one['half'])}"
    return text if one["n"] == row["count"] else f"{text} (n={one['n']:.0f})"


def origin(row: pandas.Series) -> str:
    """What a row's step times rest on, the weakest first: a number partly modelled says so."""
    weak = [f"{name} {percent(row[one])}" for one, name in _WEAK.items() if row[one] > 0]
    return ", ".join(weak) or "measured"


def _record(comparison: Comparison, load: Load, row: pandas.Series, own: dict) -> dict:
    trace, latency = comparison.trace, comparison.latency
    record = {
        "recording": trace["recording"],
        "content_hash": trace["content_hash"],
        "temperature": trace.get("temperature"),
        "latency_profile": latency["profile"],
        "latency_content_hash": latency.get("content_hash"),
        "setting": comparison.differs,
        "what_if": str(comparison.first["what_if"]).lower(),
        **load.record,
        "ramp": load.ramp,
        "policy": row["label"],
        "seeds": " ".join(map(str, row["seeds"])),
        "requests_sent": row["sent"],
        "requests_rejected": row["rejected"],
    }
    for key, one in own.items():
        record |= {key: number(one["mean"]), f"{key}_ci95": number(one["half"])}
        record[f"{key}_n"] = 0 if pandas.isna(one["n"]) else int(one["n"])
    return record


def number(value: float) -> float | None:
    """A number of a record; None for none."""
    return None if pandas.isna(value) else float(value)


def records_of(frame: pandas.DataFrame) -> list[dict]:
    """Rows as records; None for no value."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _unpaired(comparison: Comparison, load: Load, rows: pandas.DataFrame) -> list[str]:
    """Why speedups are blank, or rest on fewer seeds than their row."""
    base = comparison.baseline
    others = list(rows.loc[(rows["policy"] == base) & (rows["label"] != base), "label"])
    if base not in set(rows["label"]):
        if others:
            return [f"{base} ran as {', '.join(others)}: speedup left blank, see --baseline"]
        return [f"no {base} run of this setting at {load.title}: speedup left blank"]
    also = f" as {base} (it ran as {', '.join(others)} too)" if others else ""
    return [
        f"{SPEEDUP} of {row.label} rests on {row.paired} of {row.count} seeds: {base} has no run "
        f"with the others' seeds and number of prompts{also}"
        for row in rows[rows["paired"] < rows["count"]].itertuples(name="row")
    ]
