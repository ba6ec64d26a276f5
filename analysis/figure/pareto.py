"""Tokens per second of a GPU against tokens per second of a user, over concurrency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from analysis.compare import Block, Load, Row
from analysis.drawing import MANY, THIN, despine, draw_line, legend, new_figure, remark
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.intervals import estimate
from analysis.look import SMALL, Look, in_order
from analysis.overlaps import covered, equal_words
from analysis.scales import log_axis
from analysis.summaries import Summary
from analysis.sweeps import HOLLOW, axis_name, axis_words, hollow_words, is_hollow, load_axes

_TPOT = "median_tpot_ms"


@dataclass(frozen=True, slots=True)
class Spot:
    """One policy at one load, means over seeds."""

    label: str
    load: float  # requests in flight, or requests per second
    user: float  # tokens/s of a user: 1000 / median TPOT in ms
    gpu: float  # tokens/s of a GPU, or of the whole server
    hollow: bool = False

    @property
    def place(self) -> tuple[float, float]:
        return self.user, self.gpu


def draw_paretos(setting: Setting) -> Iterator[Drawing]:
    """One figure over the closed loops, and one over each way that requests arrive."""
    per_gpu = all(per_gpu_rate(run) is not None for run in setting.comparison.runs)
    every = [(way, _all_spots(blocks, per_gpu)) for way, blocks in load_axes(setting.comparison)]
    found = [(way, spots) for way, spots in every if len({spot.load for spot in spots}) > 1]
    if not found:
        raise Missing(f"no two concurrencies, or request rates, with a {_TPOT}")
    several = sum(not way.closed for way, _ in found) > 1
    for way, spots in found:
        name = "pareto" if way.closed else "pareto_of_request_rates"
        name += f".{axis_name(way)}" if several and not way.closed else ""
        figure = draw(spots, setting.look, per_gpu, setting.remarks)
        sentence, notes = _words(way, per_gpu)
        notes += [HOLLOW] if any(spot.hollow for spot in spots) else []
        yield setting.drawing(name, figure, sentence, notes)


def _all_spots(blocks: Sequence[Block], per_gpu: bool) -> list[Spot]:
    return [spot for block in blocks for spot in _spots(block.load, block.rows, per_gpu)]


def _words(way: Load, per_gpu: bool) -> tuple[str, list[str]]:
    over = "concurrency" if way.closed else f"the request rate{axis_words(way)}"
    y = "a GPU" if per_gpu else "the whole server"
    text = (
        f"Tokens/s of {y} against tokens/s of a user (1000 over the median TPOT of a run's "
        f"requests in ms), over {over}; means over seeds."
    )
    notes = [
        f"Numbers: {'requests in flight' if way.closed else 'requests/s'} at the points that no "
        "other exceeds in both (grey line: their frontier)."
    ]
    if not per_gpu:
        notes.append("The profile does not say how many GPUs it was timed on.")
    return text, notes


def _spots(load: Load, rows: Sequence[Row], per_gpu: bool) -> Iterator[Spot]:
    x = load.max_concurrency if load.closed else load.request_rate
    for row in rows:
        users = [1000 / tpot for tpot in (run.number(_TPOT) for run in row.runs) if tpot]
        rates = [per_gpu_rate(run) if per_gpu else run.number("output_throughput")
                 for run in row.runs]  # fmt: skip
        user, rate = estimate(users), estimate(rates)
        if user is not None and rate is not None:
            yield Spot(row.label, x, user.mean, rate.mean, is_hollow(row))


def per_gpu_rate(run: Summary) -> float | None:
    """Output tokens/s over all GPUs, of all replicas."""
    found = run.number("output_throughput_per_gpu")
    gpus = run.data["latency"].get("num_gpus")
    if found is not None or not gpus:
        return found
    replicas = (run.data.get("server") or {}).get("replicas", 1)
    return run.data["output_throughput"] / (gpus * replicas)


def frontier(spots: Sequence[Spot]) -> list[Spot]:
    """Those that no other one exceeds in one rate and equals or exceeds in the other, by user."""
    best: list[Spot] = []
    for spot in sorted(spots, key=lambda one: (-one.user, -one.gpu)):
        if not best or spot.gpu > best[-1].gpu:
            best.append(spot)
    return best[::-1]


def draw(
    spots: Sequence[Spot], look: Mapping[str, Look], per_gpu: bool, remarks: Sequence[str]
) -> Figure:
    """A line per policy, from many requests in flight to few, and the frontier behind all."""
    figure = new_figure(2.5)
    axes = figure.subplots()
    best = frontier(spots)
    wide = {"color": "0.8", "linewidth": 4.0, "solid_capstyle": "round", "label": "_frontier"}
    axes.plot([one.user for one in best], [one.gpu for one in best], zorder=1, **wide)
    own: dict[str, list[Spot]] = {}
    for spot in sorted(spots, key=lambda one: one.load):
        own.setdefault(spot.label, []).append(spot)
    lines = {label: [one.place for one in own[label]] for label in in_order(own)}
    below, thin = covered(lines), THIN if len(lines) > MANY else {}
    for label, places in lines.items():
        hollow = [one.hollow for one in own[label]]
        draw_line(axes, label, look[label], places, below[label], hollow, **thin)
    log_axis(axes, "y", [one.gpu for one in spots])
    log_axis(axes, "x", [one.user for one in spots], ratio=20.0)
    _name(axes, best)
    axes.set_xlabel("tokens/s/user (1000 / median TPOT in ms)")
    axes.set_ylabel("tokens/s/GPU" if per_gpu else "tokens/s (whole server)")
    whole = {label for label in own if all(one.hollow for one in own[label])}
    legend(figure, {label: look[label] for label in lines}, whole)
    remark(figure, [*remarks, *hollow_words(one.hollow for one in spots), *equal_words([lines])])
    return despine(figure)


def _name(axes: Axes, best: Sequence[Spot]) -> None:
    """Write the load beside each point of the frontier, above and to the right of everything."""
    placed: set[float] = set()
    for spot in best:
        if spot.load not in placed:
            placed.add(spot.load)
            axes.annotate(
                f"{spot.load:g}",
                (spot.user, spot.gpu),
                xytext=(3.5, 2.5),
                textcoords="offset points",
                fontsize=SMALL,
                color="0.25",
                zorder=6,  # with a rim of white, to be read across lines
                path_effects=[withStroke(linewidth=1.4, foreground="white")],
            )
