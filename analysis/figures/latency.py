"""Latency of a verify pass over packed tokens, relative to 16 (CAST, arXiv 2610.00321, Fig. 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas
from matplotlib.figure import Figure

from analysis.figures import drawing
from analysis.figures.draw import Drawing, Inputs, Missing, file_name
from analysis.look import plain_looks
from traces.profiles.profile import PROFILE_FOLDER, LatencyProfile, known_profiles, read_profile

AT = 16  # packed tokens: a chain of 15 and the root, the field's usual block
CONTEXT = 1024  # of the slices that are drawn together: the one nearest to it
TOGETHER = 8  # profiles at most in one figure
_TOKENS_NOTE = "Packed tokens of the whole step: roots and draft nodes of all requests."
_EAGER_NOTE = "Hollow: eager, above the largest captured graph."

Slice = tuple[float | None, int]  # batch (None: any) and context in tokens


def draw_latencies(inputs: Inputs) -> Iterator[Drawing]:
    """One figure per profile: those given, and those of the runs that can be found.

    Several profiles have another one beside them, with a line for each.
    """
    found, lost = _profiles(inputs)
    drawn = False
    lone = {one.name: own for one in found if not (own := single(verify_times(one))).empty}
    if 1 < len(lone) <= TOGETHER:
        every = pandas.concat([own.assign(label=name) for name, own in lone.items()])
        notes = [_TOKENS_NOTE]
        for name, own in lone.items():
            where, base = own["label"].iloc[0].partition(":")[0], own["base"].iloc[0]
            notes.append(f"{name}: {where}, {base:.3g} ms at {AT} tokens.")
        end = "one line for each latency profile."
        yield _drawing("", every, end, notes, [one for one in found if one.name in lone])
    for profile in found:
        times = shown(verify_times(profile))
        lines = relative(times)
        if not lines.empty:
            drawn = True
            notes = [_TOKENS_NOTE]
            if not lines.groupby("label")["tokens"].agg(lambda own: (own == AT).any()).all():
                notes.append(f"Where {AT} was not timed, on the line between its neighbours.")
            left_out = times["label"].nunique() - lines["label"].nunique()
            lost_slices = f"{left_out} of its slices do not reach to both sides of {AT}: left out."
            more = [lost_slices] if left_out else []
            end = "as the latency profile has it."
            yield _drawing(profile.name, lines, end, notes, [profile], more)
    if not drawn:
        what = f"no table of {', '.join(lost)}" if lost else "no run and no profile"
        if found:
            what = f"no profile has times below and above {AT} packed tokens"
        raise Missing(f"{what}: name a profile's .csv")


def _drawing(
    name: str,
    lines: pandas.DataFrame,
    end: str,
    notes: Sequence[str],
    profiles: Sequence[LatencyProfile],
    more: Sequence[str] = (),
) -> Drawing:
    """Of the profile of this name or, without one, of several; `end`: of the caption's sentence."""
    # Whether a line is of captured graphs in part.
    eager = lines["eager"].groupby(lines["label"])
    mixed = (eager.any() & ~eager.all()).any()
    facts = []
    for one in profiles:
        said = (one.header.hardware, one.header.model, one.header.source)
        source = ", ".join(" ".join(text.split()) for text in said)
        facts.append(("latency", f"{one.name}; {source}"))
    return Drawing(
        f"latency_vs_packed_tokens.{file_name(name)}".rstrip("."),
        _figure(name, lines),
        f"Time of a verify pass against its packed tokens, relative to {AT} tokens (dotted line: "
        f"1), {end}",
        [*notes, *([_EAGER_NOTE] if mixed else []), *more],
        facts,
    )


def _profiles(inputs: Inputs) -> tuple[list[LatencyProfile], list[str]]:
    """Those named, and the shipped ones that runs were priced with, by name and content."""
    found = {path.resolve(): read_profile(path.resolve()) for path in inputs.profiles}
    lost: dict[str, None] = {}
    for comparison in inputs.comparisons:
        name, content_hash = (comparison.latency.get(key) for key in ("profile", "content_hash"))
        path = PROFILE_FOLDER / f"{name}.csv"
        own = read_profile(path) if name in known_profiles() else None
        # Of an older run only the name is known.
        if own is None or content_hash not in (None, own.content_hash):
            lost[name] = None
        else:
            found[path.resolve()] = own
    count = Counter(one.name for one in found.values())
    named = [
        replace(one, name=f"{path.parent.name}/{one.name}") if count[one.name] > 1 else one
        for path, one in found.items()
    ]
    return named, list(lost)


def verify_times(profile: LatencyProfile) -> pandas.DataFrame:
    """Rows of the table: ``batch`` (NaN: any), ``context``, ``tokens`` of the step, ``ms``,
    ``eager``, and the ``label`` of their slice, which has one batch and context; by tokens."""
    times = pandas.DataFrame({
        "batch": [np.nan if row.batch is None else row.batch for row in profile.verify],
        "context": [row.kv_prefix_tokens for row in profile.verify],
        "tokens": [row.packed_tokens_total for row in profile.verify],
        "ms": [row.verify_ms for row in profile.verify],
        "eager": [not row.captured for row in profile.verify],
    })  # fmt: skip
    batch = times["batch"].map(lambda one: "any batch" if np.isnan(one) else f"batch {one:.0f}")
    times["label"] = batch + ", context " + times["context"].astype(str)
    return times.sort_values(["batch", "context", "tokens"], kind="stable")


def shown(times: pandas.DataFrame) -> pandas.DataFrame:
    """Every context of a lone batch size; else a slice of each, at the commonest context."""
    slices = times.drop_duplicates("label")
    if slices["batch"].nunique(dropna=False) == 1:
        return times
    common = slices["context"].map(slices["context"].value_counts())
    order = slices.assign(common=-common).sort_values(["common", "context"], kind="stable")
    return times[times["label"].isin(order.drop_duplicates("batch")["label"])]


def relative(times: pandas.DataFrame) -> pandas.DataFrame:
    """Slices that reach to both sides of `AT` tokens: ``base``, their ms there, and ``ratio``.

    At `AT` on the line between neighbours; labels say it.
    """
    found = []
    for label, own in times.groupby("label", sort=False):
        if len(own) > 1 and own["tokens"].iloc[0] <= AT <= own["tokens"].iloc[-1]:
            base = float(np.interp(AT, own["tokens"], own["ms"]))
            name = f"{label}: {base:.3g} ms at {AT}"
            found.append(own.assign(base=base, ratio=own["ms"] / base, label=name))
    return pandas.concat(found) if found else times[:0]


def single(times: pandas.DataFrame) -> pandas.DataFrame:
    """Of the slices that reach `AT`, the smallest batch's at the context nearest to `CONTEXT`."""
    lines = relative(times)
    if lines.empty:
        return lines
    rank = lines.assign(batch=lines["batch"].fillna(1), far=(lines["context"] - CONTEXT).abs())
    best = rank.sort_values(["batch", "far"], kind="stable")["label"].iloc[0]
    return lines[lines["label"] == best]


def _figure(title: str, lines: pandas.DataFrame) -> Figure:
    labels = list(dict.fromkeys(lines["label"]))
    looks = dict(zip(labels, plain_looks(len(labels), dashed=not title), strict=True))
    figure = drawing.new_figure(2.1)
    axes = figure.subplots()
    # What runs as a graph and what does not: two curves, the latter hollow.
    for label, own in lines.groupby("label", sort=False):
        style = drawing.line_style(looks[label]) | {"markersize": 2.4, "linewidth": 0.9}
        graphs, eager = own[~own["eager"]], own[own["eager"]]
        if len(graphs):
            # Between graphs a step is padded to the next: stairs that rise behind each size.
            stairs = {"drawstyle": "steps-pre", "label": "_line"}
            axes.plot(graphs["tokens"], graphs["ratio"], **style | stairs)
        if len(eager):
            face = {"mfc": "white"} if len(graphs) else {}
            axes.plot(eager["tokens"], eager["ratio"], label="_eager", **style | face)
    drawing.log_axis(axes, "y", lines["ratio"], ratio=8.0)
    drawing.unit_line(axes)
    drawing.log2_ticks(axes, drawing.powers_of_2(lines["tokens"].min(), lines["tokens"].max()))
    axes.set_xlabel("packed tokens in the step")
    axes.set_ylabel(f"verify time,\n{AT} tokens = 1 (×)")
    drawing.legend(figure, looks)
    if title:
        axes.set_title(drawing.plain(title), loc="left", pad=3)
    return drawing.despine(figure)
