"""Every kind of figure by name: drawing those that the given files allow, and writing them.

A figure whose data they lack is left out with one line that says what is missing; one that was
asked for is an error then, and nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from analysis.compare.comparison import Comparison
from analysis.figures.parts import Drawing, Inputs, Missing, Setting, setting_suffix
from analysis.look import DPI, looks
from traces.common.errors import InputError
from traces.common.files import replacing

# Nothing that changes from one drawing to the next: equal results give equal bytes.
METADATA = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of figure: where its drawing is, and whether it is of a setting or of everything."""

    module: str
    function: str
    title: str
    of_setting: bool = True

    def load(self) -> Callable[..., Iterator[Drawing]]:
        """The function; matplotlib is loaded with it, so only to draw."""
        return getattr(import_module(f"analysis.figures.{self.module}"), self.function)


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
    "reliability": Kind("reliability", "draw_reliabilities", "reliability diagrams", False),
    "live": Kind("live", "draw_validations", "predicted against live", False),
}
OF_RUNS = ("throughput", "acceptance")  # drawn beside the table of `python -m analysis RUN_DIR...`


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
    from analysis.figures.drawing import style

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
            where = f"{scope.comparison.title}: " if len(scopes) > 1 else ""
            missing.append(f"{where}{error}")
    return found, missing


def settings_of(comparisons: Sequence[Comparison]) -> Iterator[Setting]:
    """Every setting with the looks of all its policies and what its files' names end in."""
    look = looks(label for one in comparisons for label in one.labels)
    for one in comparisons:
        yield Setting(one, look, "" if len(comparisons) == 1 else setting_suffix(one))


def write(drawn: Sequence[Drawing], out: Path, command: str) -> list[Path]:
    """Figures and captions as files, all or none; names that are taken get a number.

    Raises:
        InputError: `out` takes none.
    """
    from analysis.figures.drawing import style

    paths: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        with style(), ExitStack() as stack:  # renames all of them once each is written
            for one in drawn:
                number, name = 1, one.name
                while out / f"{name}.txt" in paths:
                    number += 1
                    name = f"{one.name}.{number}"
                paths += [out / f"{name}.{kind}" for kind in (*METADATA, "txt")]
                *pictures, text = (stack.enter_context(replacing(path)) for path in paths[-4:])
                for temporary, (kind, metadata) in zip(pictures, METADATA.items(), strict=True):
                    one.figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata)
                text.write_text(one.caption(command), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot write figures here ({error.strerror})") from error
    return paths
