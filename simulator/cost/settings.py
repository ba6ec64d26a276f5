"""How a deployment runs what a profile timed: packing, mode, graphs, cliffs, prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from simulator.cost.cliffs import Cliff, read_cliffs
from simulator.cost.prefill import PREFILLS
from traces.common.errors import InputError

PACKINGS = ("ragged", "dense")
MODES = ("graphs", "eager")


@dataclass(frozen=True, slots=True)
class Engine:
    """Settings of a `StepCost` beside its profile and host terms; defaults change nothing.

    packing: ``ragged`` (the sum of the trees) or ``dense`` (every request padded to the largest
    tree). strict: refuse, instead of flagging, what lies outside the table. draft_steps: drafter
    steps per round. mode: ``eager`` bounds steps by the host's kernel launches (``host.launch_s``),
    ``graphs`` does not; None: as the profile was measured, which needs no bound either.
    graph_sizes: captured sizes in total tokens, instead of the profile's (see `step_cost`). cliffs:
    jumps of the target's cost (see `cliffs`). prefill: ``table``, ``modelled`` or ``none`` (see
    `prefill_model`); None: the profile's table, if any. prefill_efficiency: of a modelled one.

    Raises:
        InputError: naming the setting, its value and what is accepted.
    """

    packing: str = "ragged"
    strict: bool = False
    draft_steps: int = 1
    mode: str | None = None
    graph_sizes: tuple[int, ...] | None = None
    cliffs: tuple[Cliff, ...] = ()
    prefill: str | None = None
    prefill_efficiency: float = 0.5

    def __post_init__(self) -> None:
        _choice("packing", self.packing, PACKINGS)
        steps = self.draft_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise InputError(f"latency.draft_steps is {steps!r}; accepted: at least 1")
        if not isinstance(self.strict, bool):
            raise InputError(f"latency.strict is {self.strict!r}; accepted: true, false")
        _choice("mode", self.mode, MODES, optional=True)
        _choice("prefill", self.prefill, PREFILLS, optional=True)
        share = self.prefill_efficiency
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InputError(f"latency.prefill_efficiency is {share!r}; accepted: above 0, up to 1")
        object.__setattr__(self, "graph_sizes", read_graph_sizes(self.graph_sizes))
        object.__setattr__(self, "cliffs", read_cliffs(self.cliffs))
        if self.mode == "eager" and self.graph_sizes is not None:
            raise InputError(
                "latency.graph_sizes is given with latency.mode eager; accepted there: null"
            )


def _choice(name: str, value: Any, accepted: tuple[str, ...], optional: bool = False) -> None:
    if optional and value is None:
        return
    if not isinstance(value, str) or value not in accepted:
        listed = ", ".join((*accepted, "null") if optional else accepted)
        raise InputError(f"latency.{name} is {value!r}; accepted: {listed}")


def read_graph_sizes(value: Any) -> tuple[int, ...] | None:
    """Sizes of a ``latency.graph_sizes`` list; None: the profile's own.

    Raises:
        InputError: what is no list of rising sizes.
    """
    if value is None:
        return None
    listed = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    whole = listed and all(type(size) is int and size >= 1 for size in value)
    if not whole or any(low >= high for low, high in pairwise(value)):
        raise InputError(
            f"latency.graph_sizes is {value!r}; accepted: null, or rising total tokens from 1 on"
        )
    return tuple(value)
