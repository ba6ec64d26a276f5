"""How a deployment runs what a profile timed: packing, mode, graphs, cliffs, prefill."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, model_validator

from simulator.cost.host import HostOverhead
from simulator.cost.roofline import ROOFLINE, RooflineSettings
from traces.common.settings import LARGEST_WHOLE, Many, Section, above, equal, key, number, whole

SIZES = "null, or rising total tokens from 1 on"


class Cliff(Section):
    """One jump of the target's cost, never a fall: a fused path that takes so many tokens at most.

    A table sampled at few sizes steps over such a jump, and a straight line fitted to it always
    does. Every cliff that a pass is beyond counts, in the order they are given:

        verify = verify * factor + add_ms

    Tokens are what is asked of the pass: with the padding of dense packing, without that of
    captured graphs. above: passes with more of them pay. per: ``request`` compares the largest
    request, ``step`` all requests together.

    Raises:
        InputError: a value outside its bounds.
    """

    PREFIX: ClassVar[str] = "latency.cliffs: "

    above: whole(1, LARGEST_WHOLE)
    factor: number(1, 1e6) = 1.0
    add_ms: number(0, 1e6) = 0.0
    per: Literal["request", "step"] = "request"


def _rising(sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if sizes is not None and not (sizes and all(low < high for low, high in pairwise(sizes))):
        raise ValueError
    return sizes


class Engine(Section):
    """Settings of a `StepCost` beside its profile and host terms; defaults change nothing.

    packing: ``ragged`` is the sum of the trees. graph_sizes: in total tokens, instead of the
    profile's (see `step_cost`). cliffs: see `Cliff`. prefill: see `simulator.cost.prefill`.

    Raises:
        InputError: naming the setting, its value and what is accepted.
    """

    PREFIX: ClassVar[str] = "latency."

    strict: bool = key(False, "true: refuse what the tables do not hold")
    packing: Literal["ragged", "dense"] = key(
        "ragged", "dense: every request padded to the largest tree"
    )
    draft_steps: whole(1, 1024) = key(
        1, "one step for a block drafter; a chained drafter needs one per drafted token"
    )
    mode: Literal["graphs", "eager"] | None = key(
        None,
        "eager: no step is faster than its launches (host.launch_s); graphs: it may be; "
        "null: as timed",
    )
    graph_sizes: Annotated[Many[whole(1, LARGEST_WHOLE)] | None, AfterValidator(_rising)] = key(
        None, "captured sizes, such as [1,2,4,8,16]; null: the profile's", accepted=SIZES
    )
    cliffs: Many[Cliff] = key(
        (),
        "jumps of a kernel, such as [{above: 16, factor: 1.13, add_ms: 0, per: request}]; "
        "per: step",
        accepted="null, or a list of mappings of above, factor, add_ms, per",
    )
    prefill: Literal["table", "modelled", "none"] | None = key(
        None, "table, modelled or none; null: the table, if there is one"
    )
    prefill_efficiency: above(0, 1) = key(
        0.5,
        "of peak compute, where prefill is modelled",
        counts=(equal("latency.prefill", "modelled"),),
    )

    @model_validator(mode="after")
    def _together(self) -> Engine:
        if self.mode == "eager" and self.graph_sizes is not None:
            self.refuse("graph_sizes", "null with latency.mode eager")
        return self


class LatencySettings(Engine):
    """A ``conf/latency`` file: a profile, what it is computed from, and how it is run.

    Null stands for the default. provenance: where the numbers come from; prices nothing.
    """

    name: str | None = None
    profile: Any = key(accepted="a profile's name or a path to a .csv")
    roofline: RooflineSettings | None = None
    host: HostOverhead = HostOverhead()
    provenance: Any = None

    @model_validator(mode="before")
    @classmethod
    def _defaults_for_nulls(cls, node: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in node.items() if value is not None}
        for name in ("host", ROOFLINE):
            if isinstance(inner := given.get(name), Mapping):
                given[name] = {key: value for key, value in inner.items() if value is not None}
        return given

    @property
    def engine(self) -> dict[str, Any]:
        """The settings of `Engine`."""
        return {name: getattr(self, name) for name in Engine.model_fields}
