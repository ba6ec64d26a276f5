"""Seconds of one engine step: draft + verify + host, from a latency profile.

Inside the table
    Captured graphs: a step costs its next captured size, because the engine pads to it
    (`measured`). Above the last graph: at least the first eager value, then straight lines between
    eager sizes; never across the two regimes. In context: linear between measured prefixes. In
    batch: linear between the neighbouring measured batches, read at equal total tokens (where one
    of them was not measured at that total it gives its nearest end and the other makes up the
    difference, so both values stay measured). Below the smallest size: that size's value. The
    context of a step is the mean over its requests: KV reads are linear in it.

Outside the table (`modelled`)
    verify_ms(B, T, c) = curve(T; B_max, c) + slope * max(0, T - T_max)
                         + kv_ms * max(0, B - B_max) * c
    curve: the largest measured batch at the same total T; continuous at the last measured point.
    slope: the larger of 2 * active_params / (peak FLOP/s * GPUs) and the secant over the last
        factor of two of the measured totals of the last regime, never below 0, so the cost never
        falls as T grows. Unknown parameters or peak: the secant alone.
    kv_ms: 2 * layers * kv_heads * head_dim * bytes / (bandwidth * GPUs) per context token.
        Unknown shape: the measured rise over the prefixes at the smallest size, 0 with one prefix.
    A profile measured by total tokens alone (``batch: any``) has no B term. Fewer requests than
    the smallest measured batch: that batch's curve. A drafter step beyond its last batch rises per
    request by the larger of its own last-octave secant and its compute.

A context outside the measured prefixes takes the nearest one (`clamped`). ``strict`` refuses both
kinds instead. One drafter step is charged ``draft_steps`` times: once for a block drafter, once
per drafted token for a chained one.

Prefill is one pass over one prompt: straight lines between measured sizes, the smallest size's
value below it, the last secant beyond (`modelled`; refused by ``strict``), never falling. A profile
without a prefill table charges none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cost.drafting import DraftTable
from simulator.cost.host import HostOverhead
from simulator.cost.memo import CachedDraft, CachedVerify
from simulator.cost.prefill import PrefillCurve
from simulator.cost.profile import LatencyProfile
from simulator.cost.source import RESOLVED, Source
from simulator.cost.surface import VerifySurface
from traces.errors import InputError

PACKINGS = ("ragged", "dense")
_MODELLED = int(Source.MODELLED)
_REFUSED = int(Source.MODELLED | Source.CLAMPED)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step, by part, and where they came from."""

    draft_s: float
    verify_s: float
    host_s: float
    source: Source

    @property
    def total_s(self) -> float:
        """Seconds the step takes."""
        return self.draft_s + self.verify_s + self.host_s


class StepCost:
    """The cost model of one profile. See the module's text for every rule.

    Args:
        profile: the measured tables.
        host: host work, none by default.
        packing: ``ragged`` (the sum of the trees) or ``dense`` (every request padded to the
            largest tree).
        strict: refuse, instead of flagging, what lies outside the table.
        draft_steps: drafter steps per round.

    Raises:
        InputError: an unknown packing or a count below 1.
    """

    def __init__(
        self,
        profile: LatencyProfile,
        *,
        host: HostOverhead | None = None,
        packing: str = "ragged",
        strict: bool = False,
        draft_steps: int = 1,
    ) -> None:
        if packing not in PACKINGS:
            raise InputError(f"latency.packing is {packing!r}; accepted: {', '.join(PACKINGS)}")
        if isinstance(draft_steps, bool) or not isinstance(draft_steps, int) or draft_steps < 1:
            raise InputError(f"latency.draft_steps is {draft_steps!r}; accepted: at least 1")
        if not isinstance(strict, bool):
            raise InputError(f"latency.strict is {strict!r}; accepted: true, false")
        self.profile = profile
        self.host = HostOverhead() if host is None else host
        self.packing = packing
        self.strict = strict
        self.draft_steps = draft_steps
        self._target = CachedVerify(VerifySurface(profile.verify, profile.header))
        self._drafter = CachedDraft(DraftTable(profile.draft, profile.header))
        self._prefill = PrefillCurve(profile.prefill)
        self._kind = _MODELLED if profile.modelled else 0

    @property
    def num_gpus(self) -> int:
        """GPUs the profile was measured on."""
        return self.profile.header.num_gpus

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Captured sizes in total packed tokens; the ends of the plateaus."""
        return self.profile.header.graph_sizes

    def step(
        self,
        packed: np.ndarray,
        context: np.ndarray,
        *,
        drafted: bool,
        tree: bool,
        ordered: int = 0,
        fed: bool = False,
        deferred: int = 0,
    ) -> StepTime:
        """Cost of one step.

        Args:
            packed: (B,) integers, root + draft nodes of each request.
            context: (B,) KV tokens before each root.
            drafted: False for plain decoding, which pays no draft and no round's host work.
            tree: whether trees (not chains) are verified; adds the host's tree term.
            ordered: draft nodes the host put in order for the step, verified or not.
            fed: a plain step of a policy that drafts at other times.
            deferred: tokens of earlier plain steps that the drafter reads before it drafts.

        Raises:
            InputError: an empty step, a request without its root, or (strict) a size outside.
        """
        batch = len(packed)
        if batch == 0 or packed.min() < 1:
            raise InputError(f"packed tokens {packed!r}; accepted: at least 1 for each request")
        packed_total = int(np.add.reduce(packed))
        total = packed_total if self.packing == "ragged" else batch * int(packed.max())
        mean_context = float(np.add.reduce(context)) / batch
        verify_s, bits = self._verify(batch, total, mean_context)
        draft_s = 0.0
        if drafted:
            draft_s, draft_bits = self._draft(batch, mean_context)
            draft_s += self.host.catch_up_token_s * deferred
            bits |= draft_bits
        host_s = self.host.seen_s(
            packed_total - batch,
            draft_s + verify_s,
            requests=batch,
            drafted=drafted,
            tree=tree,
            ordered=ordered,
            fed=fed,
        )
        return StepTime(draft_s, verify_s, host_s, RESOLVED[bits])

    def verify_s(self, batch: int, total: int, context: float) -> float:
        """Target seconds of a step of ``total`` packed tokens at a mean ``context``."""
        return self._verify(batch, total, context)[0]

    def draft_s(self, batch: int, context: float) -> float:
        """Drafter seconds of a round of ``batch`` requests, all ``draft_steps`` together."""
        return self._draft(batch, context)[0]

    def prefill_s(self, tokens: int) -> float:
        """Seconds of the pass over a prompt of ``tokens``; 0 without a prefill table.

        Raises:
            InputError: (strict) a prompt longer than the longest measured one.
        """
        if self.strict and tokens > self._prefill.last > 0:
            raise InputError(
                f"latency profile {self.profile.name} (strict): prefill of {tokens} tokens; "
                f"measured: up to {self._prefill.last}"
            )
        return self._prefill.at(tokens) * 1e-3

    def verify_curve_s(self, batch: int, totals: np.ndarray, context: float) -> np.ndarray:
        """`verify_s` at (N,) totals: (N,) seconds."""
        totals = np.asarray(totals)
        if self.strict and len(totals):
            self._verify(batch, int(totals.max()), context)
        return self._target.curve(batch, totals, context) * 1e-3

    def width_probe(self, context: float = 1024) -> tuple[np.ndarray, np.ndarray]:
        """Measured batch-one points for a line fit (CAST, width rule).

        Returns:
            (n,) packed tokens and (n,) milliseconds, at the measured prefix nearest ``context``.

        Raises:
            InputError: the profile has no batch-one points.
        """
        surface = self._target.surface
        if surface.batches[0] != 1:
            raise InputError(
                f"latency profile {self.profile.name}: smallest batch {surface.batches[0]}; "
                "accepted for a width probe: batch 1"
            )
        slab = surface.slabs[0]
        nearest = min(range(len(slab.contexts)), key=lambda i: abs(slab.contexts[i] - context))
        curve = slab.curves[nearest]
        return np.array(curve.totals), np.array(curve.ms)

    def _verify(self, batch: int, total: int, context: float) -> tuple[float, int]:
        ms, bits = self._target.at(batch, total, context)
        if self.strict and bits & _REFUSED:
            raise self._refusal(
                f"a step of {batch} requests, {total} packed tokens", batch, context
            )
        return ms * 1e-3, bits | self._kind

    def _draft(self, batch: int, context: float) -> tuple[float, int]:
        ms, bits = self._drafter.at(batch, context)
        if self.strict and bits & _REFUSED:
            raise self._refusal(f"a draft for {batch} requests", batch, context)
        return ms * 1e-3 * self.draft_steps, bits | self._kind

    def _refusal(self, asked: str, batch: int, context: float) -> InputError:
        surface, drafts = self._target.surface, self._drafter.drafts
        batches = "any batch" if surface.any_batch else f"batches {surface.batches}"
        low, high = surface.context_range(batch)
        return InputError(
            f"latency profile {self.profile.name} (strict): {asked} at context {context:g}; "
            f"measured: {batches}, up to {surface.last_total} packed tokens, context {low} to "
            f"{high} at this batch, drafts for {drafts.batches[0]} to {drafts.batches[-1]} requests"
        )
