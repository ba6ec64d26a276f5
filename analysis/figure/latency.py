"""Latency of a verify pass over packed tokens, relative to 16 (CAST, arXiv 2610.00321, Fig. 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.drawing import despine, legend, line_style, new_figure, plain, unit_line
from analysis.figure.parts import Drawing, Missing, file_name
from analysis.inputs import Inputs
from analysis.look import Look, plain_looks
from analysis.profiles import Profile, Slice, read_profile, shipped_profile
from analysis.scales import log2_ticks, log_axis

AT = 16  # packed tokens: a chain of 15 and the root, the field's usual block
CONTEXT = 1024  # of the slices that are drawn together: the one nearest to it
TOGETHER = 8  # profiles at most in one figure


def draw_latencies(inputs: Inputs) -> Iterator[Drawing]:
    """One figure per profile: those given, and those of the runs that can be found.

    Several profiles have another one beside them, with a line for each.
    """
    found, lost = _profiles(inputs)
    drawn = False
    one_each = {one.name: line for one in found if (line := single(one)) is not None}
    if 1 < len(one_each) <= TOGETHER:
        yield _together({one.name: one for one in found}, one_each)
    for profile in found:
        lines = relative(profile)
        if lines:
            drawn = True
            yield Drawing(
                f"latency_vs_packed_tokens.{file_name(profile.name)}",
                _figure(profile.name, lines),
                f"Time of a verify pass against its packed tokens, relative to {AT} tokens "
                "(dotted line: 1), as the latency profile has it.",
                tuple(_notes(profile, lines)),
                (("latency", f"{profile.name}; {profile.source}"),),
            )
    if not drawn:
        what = f"no table of {', '.join(lost)}" if lost else "no run and no profile"
        if found:
            what = f"no profile has times below and above {AT} packed tokens"
        raise Missing(f"{what}: name a profile's .csv")


def _profiles(inputs: Inputs) -> tuple[list[Profile], list[str]]:
    paths: dict[Path, None] = dict.fromkeys(path.resolve() for path in inputs.profiles)
    lost: dict[str, None] = {}
    for comparison in inputs.comparisons:
        name = comparison.latency["profile"]
        path = shipped_profile(name)
        if path is None or not _is(path, comparison.latency.get("content_hash")):
            lost[name] = None
        else:
            paths[path.resolve()] = None
    return _told_apart({path: read_profile(path) for path in paths}), list(lost)


def _is(path: Path, content_hash: str | None) -> bool:
    """Whether the file holds what a run was priced with; of an older run only the name is known."""
    if content_hash is None:
        return True
    from simulator.cost import read_profile as read_whole

    return read_whole(path).content_hash == content_hash


def _told_apart(found: Mapping[Path, Profile]) -> list[Profile]:
    """Profiles of one name are called by their folders as well."""
    count = Counter(one.name for one in found.values())
    return [
        replace(one, name=f"{path.parent.name}/{one.name}") if count[one.name] > 1 else one
        for path, one in found.items()
    ]


def relative(profile: Profile) -> dict[str, tuple[Slice, float]]:
    """Slices that reach to both sides of `AT` tokens, with their time there (ms), by name."""
    found = {}
    for one in profile.shown():
        base = _base(one)
        if base is not None:
            batch = "any batch" if one.batch == "any" else f"batch {one.batch}"
            prefix = "" if one.prefix is None else f", context {one.prefix}"
            found[f"{batch}{prefix}: {base:.3g} ms at {AT}"] = one, base
    return found


def single(profile: Profile) -> tuple[Slice, float] | None:
    """Of the slices that reach `AT`, the smallest batch's at the context nearest to `CONTEXT`."""

    found = [(one, base) for one in profile.slices if (base := _base(one)) is not None]

    def rank(item: tuple[Slice, float]) -> tuple[int, int]:
        one, _ = item
        batch = 1 if one.batch == "any" else int(one.batch)
        return batch, abs((one.prefix or CONTEXT) - CONTEXT)

    return min(found, key=rank, default=None)


def _base(one: Slice) -> float | None:
    """Its time at `AT` tokens, in ms; None where it is a point or does not reach."""
    return one.at(AT) if len(one.tokens) > 1 else None


def _together(profiles: Mapping[str, Profile], lines: Mapping[str, tuple[Slice, float]]) -> Drawing:
    notes = ["Packed tokens of the whole step: roots and draft nodes of all requests."]
    for name, (one, base) in lines.items():
        batch = "any batch" if one.batch == "any" else f"batch {one.batch}"
        prefix = "" if one.prefix is None else f", context {one.prefix}"
        notes.append(f"{name}: {batch}{prefix}, {base:.3g} ms at {AT} tokens.")
    if any(any(one.eager) and not all(one.eager) for one, _ in lines.values()):
        notes.append("Hollow: eager, above the largest captured graph.")
    return Drawing(
        "latency_vs_packed_tokens",
        _figure("", lines),
        f"Time of a verify pass against its packed tokens, relative to {AT} tokens (dotted "
        "line: 1), one line for each latency profile.",
        tuple(notes),
        tuple(("latency", f"{name}; {profiles[name].source}") for name in lines),
    )


def _notes(profile: Profile, lines: Mapping[str, tuple[Slice, float]]) -> list[str]:
    notes = ["Packed tokens of the whole step: roots and draft nodes of all requests."]
    if any(AT not in one.tokens for one, _ in lines.values()):
        notes.append(f"Where {AT} was not timed, on the line between its neighbours.")
    if any(any(one.eager) and not all(one.eager) for one, _ in lines.values()):
        notes.append("Hollow: eager, above the largest captured graph.")
    left_out = len(profile.shown()) - len(lines)
    if left_out:
        notes.append(f"{left_out} of its slices do not reach to both sides of {AT}: left out.")
    return notes


def _figure(title: str, lines: Mapping[str, tuple[Slice, float]]) -> Figure:
    looks = dict(zip(lines, plain_looks(len(lines), dashed=not title), strict=True))
    figure = new_figure(2.1)
    axes = figure.subplots()
    for name, (one, base) in lines.items():
        _line(axes, one, base, looks[name])
    ratios = [ms / base for one, base in lines.values() for ms in one.verify_ms]
    log_axis(axes, "y", ratios, ratio=8.0)
    unit_line(axes)
    largest = max(one.tokens[-1] for one, _ in lines.values())
    smallest = min(one.tokens[0] for one, _ in lines.values())
    log2_ticks(axes, [2**power for power in range(24) if smallest <= 2**power <= largest * 1.01])
    axes.set_xlabel("packed tokens in the step")
    axes.set_ylabel(f"verify time,\n{AT} tokens = 1 (×)")
    legend(figure, looks)
    if title:
        axes.set_title(plain(title), loc="left", pad=3)
    return despine(figure)


def _line(axes: Axes, one: Slice, base: float, look: Look) -> None:
    ratio = [ms / base for ms in one.verify_ms]
    style = line_style(look) | {"markersize": 2.4, "linewidth": 0.9}
    mixed = any(one.eager) and not all(one.eager)
    captured = [not eager for eager in one.eager]
    for part in (captured, list(one.eager)):  # what runs as a graph and what does not: two curves
        x = [tokens for tokens, wanted in zip(one.tokens, part, strict=True) if wanted]
        y = [value for value, wanted in zip(ratio, part, strict=True) if wanted]
        if x:
            # Between graphs a step is padded to the next: stairs that rise behind each size.
            stairs = {"drawstyle": "steps-pre"} if part is captured else {}
            axes.plot(x, y, label="_line", **style | stairs)
    hollow = [(x, y) for x, y, eager in zip(one.tokens, ratio, one.eager, strict=True) if eager]
    if mixed:
        _draw_hollow(axes, hollow, style)


def _draw_hollow(axes: Axes, points: Sequence[tuple[float, float]], style: dict) -> None:
    x, y = zip(*points, strict=True)
    axes.plot(x, y, label="_eager", **style | {"mfc": "white", "linestyle": "none"})
