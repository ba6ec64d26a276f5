"""`python -m analysis figures RUNS... --out DIR`: every figure that the given files allow.

A figure whose data they lack is left out with one line that says what is missing; one that was
asked for with ``--only`` is an error then, and nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.compare import BASELINE, Comparison
from analysis.figure.parts import Drawing, Missing, Setting, setting_suffix
from analysis.figure_files import write_figures
from analysis.inputs import Inputs, read_inputs
from analysis.look import looks
from analysis.notes import setting_title
from traces.common.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of figure: where its drawing is, and whether it is of a setting or of everything."""

    module: str
    function: str
    title: str
    of_setting: bool = True

    def load(self) -> Callable[..., Iterator[Drawing]]:
        """The function; matplotlib is loaded with it, so only to draw."""
        return getattr(import_module(f"analysis.figure.{self.module}"), self.function)


KINDS = {
    "domains": Kind("domains", "draw_domains", "speedup by domain"),
    "acceptance": Kind("budget", "draw_acceptance_lengths", "acceptance length by budget"),
    "budget": Kind("budget", "draw_budgets", "speedup by budget, of width sweeps"),
    "throughput": Kind("load", "draw_throughputs", "throughput and speedup by load"),
    "goodput": Kind("load", "draw_goodputs", "goodput by load"),
    "pareto": Kind("pareto", "draw_paretos", "tokens/s/GPU against tokens/s/user"),
    "nodes": Kind("nodes", "draw_nodes", "nodes per request by batch size"),
    "time": Kind("time", "draw_times", "where a round's time goes"),
    "latency": Kind("latency", "draw_latencies", "verify time by packed tokens", False),
    "prefix_mass": Kind("mass", "draw_masses", "sorted prefix mass", False),
    "reliability": Kind("held", "draw_reliabilities", "reliability diagrams", False),
    "live": Kind("held", "draw_validations", "predicted against live", False),
}
OF_RUNS = ("throughput", "acceptance")  # drawn beside the table of `python -m analysis RUN_DIR...`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "inputs",
        metavar="RUNS",
        nargs="+",
        help="folders of runs, validations, calibrations; a profile's .csv; a recording",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), help="folder for figures (default: figures)"
    )
    listed = "; ".join(f"{name}: {kind.title}" for name, kind in KINDS.items())
    parser.add_argument("--only", metavar="NAME[,NAME...]", action="append", help=listed)
    parser.add_argument(
        "--baseline", default=BASELINE, metavar="POLICY", help=f"of speedups (default: {BASELINE})"
    )


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Draw and write; returns what was written.

    Raises:
        InputError: an input or a name that is not accepted, a figure of ``--only`` that cannot be
            drawn, or an ``--out`` that cannot be written to; then nothing is written.
    """
    names = chosen(args.only)
    drawn = draw(read_inputs(args.inputs, args.baseline), names, strict=bool(args.only))
    if not drawn:
        raise InputError("no figure can be drawn of these files")
    return write(drawn, args.out, command)


def chosen(only: Sequence[str] | None) -> list[str]:
    """Names of figures in the order given, every one without any; InputError for others."""
    names = [name for text in only or () for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise InputError(f"--only {name}; accepted: {', '.join(KINDS)}")
    if only and not names:
        raise InputError(f"--only names no figure; accepted: {', '.join(KINDS)}")
    return list(dict.fromkeys(names)) or list(KINDS)


def draw(inputs: Inputs, names: Sequence[str], strict: bool, say=None) -> list[Drawing]:
    """The named figures.

    Args:
        strict: whether one that cannot be drawn at all is an error.
        say: takes a line on each that is left out; standard error where not given.
    """
    from analysis.drawing import style

    say = say or (lambda line: print(line, file=sys.stderr))
    found: list[Drawing] = []
    with style():
        for name in names:
            drawn, missing = _of_kind(inputs, KINDS[name])
            if strict and not drawn:
                raise InputError(f"--only {name}: {missing[0]}")
            for reason in dict.fromkeys(missing):
                say(f"left out {name}: {reason}")
            found += drawn
    return found


def _of_kind(inputs: Inputs, kind: Kind) -> tuple[list[Drawing], list[str]]:
    scopes = list(settings_of(inputs.comparisons)) if kind.of_setting else [inputs]
    found: list[Drawing] = []
    missing = [] if scopes else ["no run was given"]
    for scope in scopes:
        try:
            found += kind.load()(scope)
        except Missing as error:
            where = f"{setting_title(scope.comparison)}: " if len(scopes) > 1 else ""
            missing.append(f"{where}{error}")
    return found, missing


def settings_of(comparisons: Sequence[Comparison]) -> Iterator[Setting]:
    """Every setting with the looks of all its policies and what its files' names end in."""
    look = looks(label for one in comparisons for label in one.labels)
    for one in comparisons:
        yield Setting(one, look, "" if len(comparisons) == 1 else setting_suffix(one))


def write(drawn: Sequence[Drawing], out: Path, command: str) -> list[Path]:
    """Figures and captions as files; names that are taken get a number."""
    from analysis.drawing import style

    named: dict[str, tuple[Figure, str]] = {}
    for one in drawn:
        number, free = 1, one.name
        while free in named:
            number += 1
            free = f"{one.name}.{number}"
        named[free] = one.figure, one.caption(command)
    with style():
        return write_figures(named, out)
