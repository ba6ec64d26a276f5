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
without a prefill table charges none, unless it is modelled (see `prefill`, which also says
what a chunk of a prompt costs, alone or in a decoding step).

Captured sizes of a deployment in place of the profile's (``graph_sizes``): up to the last one a
pass is padded to the next and costs what the profile says at that size. Above it runs eagerly: it
costs what the profile's eager rows say, at least the first of them. A profile without eager rows
knows nothing about that; its table is read on and the answer is `modelled`.

What the engine adds: `Cliff` (kernels), `host` (host work, bubbles and launches). A step beyond a
cliff is `modelled`: no stopwatch read that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from simulator import compiling
from simulator.cost import price
from simulator.cost.host import HostOverhead
from simulator.cost.prefill import prefill_of
from simulator.cost.price import MODELLED, Host, Prices
from simulator.cost.settings import Engine
from simulator.cost.step_time import RESOLVED, Source, StepTime
from traces.common.errors import InputError
from traces.profiles.profile import LatencyProfile

_REFUSED = int(Source.MODELLED | Source.CLAMPED)


class StepCost:
    """The cost model of one profile. See the module's text for every rule.

    Args:
        profile: the measured tables.
        host: host work, none by default.
        settings: fields of `Engine`: packing, strict, draft_steps, mode, graph_sizes, cliffs,
            prefill, prefill_efficiency.

    Attributes:
        host: host work in force; its launch_s is 0 unless the mode is eager.
        prices: the flat tables of `simulator.cost.price`.
        prefill: ``table``, ``modelled`` or ``none``.

    Raises:
        InputError: a setting's value, or one that the profile does not allow.
    """

    def __init__(
        self, profile: LatencyProfile, *, host: HostOverhead | None = None, **settings: Any
    ) -> None:
        engine = self.engine = Engine(**settings)
        self.packing, self.strict = engine.packing, engine.strict
        self.draft_steps, self.cliffs = engine.draft_steps, engine.cliffs
        host = HostOverhead() if host is None else host
        eager = engine.mode == "eager"
        self.host = host if eager or not host.launch_s else host.with_(launch_s=0.0)
        self.profile = profile
        self.prefill, self._prefill = prefill_of(
            profile, engine.prefill, engine.prefill_efficiency, engine.strict
        )
        self.prices = self._flat()

    def _flat(self) -> Prices:
        profile, cliffs, own = self.profile, self.cliffs, self.engine.graph_sizes
        target = price.surface_of(profile.verify, profile.header)
        rows = [row for row in profile.verify if not row.captured]
        apart = own is not None and len(rows) not in (0, len(profile.verify))
        host = {name: float(value) for name, value in self.host.model_dump().items()}
        return Prices(
            target=target,
            eager=price.surface_of(rows, profile.header) if apart else target,
            sizes=tuple(own or ()),
            eager_total=tuple(sorted({row.packed_tokens_total for row in rows})),
            padded=() if self.engine.mode == "eager" else tuple(self.graph_sizes),
            drafts=price.drafts_of(profile.draft, profile.header),
            draft_steps=float(self.draft_steps),
            kind=MODELLED if profile.modelled else 0,
            dense=self.packing == "dense",
            cliff_above=tuple(cliff.above for cliff in cliffs),
            cliff_factor=tuple(cliff.factor for cliff in cliffs),
            cliff_add_s=tuple(cliff.add_ms * 1e-3 for cliff in cliffs),
            cliff_of_request=tuple(cliff.per == "request" for cliff in cliffs),
            host=Host(**host | {"overlap": self.host.overlap}),
        )

    @cached_property
    def floor(self) -> Prices:
        """See `price.floor_of`."""
        return price.floor_of(self.prices)

    @cached_property
    def arrays(self) -> tuple[Prices, Prices]:
        """`prices` and `floor` as arrays, for compiled code."""
        return price.arrays_of(self.prices), price.arrays_of(self.floor)

    @property
    def num_gpus(self) -> int:
        """GPUs the profile was measured on."""
        return self.profile.header.num_gpus

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Captured sizes in total packed tokens; the ends of the plateaus."""
        own = self.engine.graph_sizes
        return self.profile.header.graph_sizes if own is None else own

    def executed(self, total: int) -> int:
        """Tokens that a verify pass of ``total`` runs: the next captured size, if there is one."""
        return price.executed_tokens(self.prices, total)

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
        chunks: Sequence[tuple[int, int]] = (),
    ) -> StepTime:
        """Cost of one step.

        Args:
            packed: (B,) integers, root + draft nodes of each request.
            context: (B,) KV tokens before each root.
            drafted: False for plain decoding, which pays no draft and no round's host work.
            tree: whether trees (not chains) are verified; adds the host's tree terms.
            ordered: draft nodes the host put in order for the step, verified or not.
            fed: a plain step of a policy that drafts at other times.
            deferred: tokens of earlier plain steps that the drafter reads before it drafts.
            chunks: (start, tokens) of every prompt chunk that is read in the same step.

        Raises:
            InputError: an empty step, a request without its root, or (strict) a size outside.
        """
        batch = len(packed)
        if batch == 0 or packed.min() < 1:
            raise InputError(f"packed tokens {packed!r}; accepted: at least 1 for each request")
        sums = int(np.add.reduce(packed)), int(packed.max()), np.add.reduce(context).item()
        if self.strict:
            mean = sums[2] / batch
            self._check_pass(batch, batch * sums[1] if self.prices.dense else sums[0], mean)
            if drafted:
                self._check_draft(batch, mean)
        asked = batch, *sums, drafted, tree, ordered, fed, deferred
        draft_s, verify_s, host_s, bits, total = price.step_s(self.prices, *asked)
        chunk_s = 0.0
        if chunks:
            chunk_s, chunk_bits = self._chunks(chunks, total)
            bits, busy_s = bits | chunk_bits, draft_s + verify_s + chunk_s
            nodes, terms = sums[0] - batch, (batch, drafted, tree, ordered, fed)
            host_s = price.host_s(self.prices.host, nodes, busy_s, *terms)
        return StepTime(draft_s, verify_s, host_s, RESOLVED[bits], chunk_s, self.executed(total))

    def verify_s(self, batch: int, total: int, context: float, largest: int | None = None) -> float:
        """Target seconds of a step of ``total`` packed tokens at a mean ``context``.

        largest: packed tokens of the largest request, for cliffs; None: all are alike.
        """
        if self.strict:
            self._check_pass(batch, total, context)
        most = even_largest(batch, total) if largest is None else largest
        return price.verify_s(self.prices, batch, float(total), context, most)[0]

    def draft_s(self, batch: int, context: float) -> float:
        """Drafter seconds of a round of ``batch`` requests, all ``draft_steps`` together."""
        if self.strict:
            self._check_draft(batch, context)
        return price.draft_s(self.prices, batch, context)[0]

    def prefill_s(self, tokens: int) -> float:
        """Seconds of the pass over a prompt of ``tokens``; 0 where prefill is free.

        Raises:
            InputError: (strict) a prompt longer than the longest measured one.
        """
        self._check_prompt(tokens)
        return self._prefill.at(tokens) * 1e-3

    def chunks_s(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one pass over prompt tokens start to start + tokens of each chunk, alone.

        Raises:
            InputError: (strict) a prompt longer than the longest measured one.
        """
        if len(chunks) > 1:
            return self._prefill.fixed_ms * 1e-3 + self._chunks(chunks)[0]
        ((start, tokens),) = chunks
        self._check_prompt(start + tokens)
        return self._prefill.alone_ms(start, tokens) * 1e-3

    def verify_curve_s(
        self, batch: int, totals: np.ndarray, context: float, largest: np.ndarray | None = None
    ) -> np.ndarray:
        """`verify_s` at (N,) totals, with (N,) tokens of the largest request: (N,) seconds."""
        totals = np.asarray(totals)
        if self.strict and len(totals):
            self._check_pass(batch, int(totals.max()), context)
        largest = even_largest(batch, totals) if largest is None else np.asarray(largest)
        seconds = np.empty(len(totals))
        if compiling.worth(len(totals), "", price.__name__):
            code, prices = compiling.compiled(price.__name__), self.arrays[0]
        else:
            code, prices, totals, largest = price, self.prices, totals.tolist(), largest.tolist()
        code.verify_curve_s(prices, batch, totals, float(context), largest, seconds)
        return seconds

    def width_probe(self, context: float = 1024) -> tuple[np.ndarray, np.ndarray]:
        """Batch-one points for a line fit (CAST, width rule), with the engine's own jumps.

        Returns:
            (n,) packed tokens and (n,) milliseconds, at the measured prefix nearest ``context``:
            the measured sizes, or the captured ones of an engine that has others.

        Raises:
            InputError: the profile has no batch-one points.
        """
        surface, sizes = self.prices.target, self.prices.sizes
        if surface.batch[0] != 1:
            raise InputError(
                f"{self.profile.described}: smallest batch {surface.batch[0]}; accepted for a "
                "width probe: batch 1"
            )
        curve = min(range(surface.slab[1]), key=lambda i: abs(surface.context[i] - context))
        totals = surface.total[surface.curve[curve] : surface.curve[curve + 1]]
        if sizes:  # captured ones inside the table, and behind the last of all what was measured
            captured = [size for size in sizes if totals[0] <= size <= totals[-1]]
            totals = captured + [total for total in totals if total > sizes[-1]] or totals
        context = surface.context[curve]
        if self.cliffs:
            return np.array(totals), self.verify_curve_s(1, totals, context) * 1e3
        ms = [price.target_ms(self.prices, 1, total, context)[0] for total in totals]
        return np.array(totals), np.array(ms)

    def _check_pass(self, batch: int, total: int, context: float) -> None:
        if price.target_ms(self.prices, batch, total, context)[1] & _REFUSED:
            asked = f"a step of {batch} requests, {total} packed tokens"
            raise self._refusal(asked, batch, context)

    def _check_draft(self, batch: int, context: float) -> None:
        if price.draft_ms(self.prices.drafts, batch, context)[1] & _REFUSED:
            raise self._refusal(f"a draft for {batch} requests", batch, context)

    def _chunks(self, chunks: Sequence[tuple[int, int]], packed: int = 0) -> tuple[float, int]:
        """Seconds and Source bits that chunks add to a step of `packed` tokens."""
        bits = self.prices.kind if self.prefill == "table" else 0
        for start, tokens in chunks:
            self._check_prompt(start + tokens)
            bits |= self._prefill.bits(start + tokens)
        beside = packed if self.prefill == "modelled" else 0
        return self._prefill.together_ms(chunks, beside) * 1e-3, bits

    def _check_prompt(self, tokens: int) -> None:
        if self.strict and tokens > self._prefill.last > 0:
            raise InputError(
                f"{self.profile.described} (strict): prefill of {tokens} tokens; "
                f"measured: up to {self._prefill.last}"
            )

    def _refusal(self, asked: str, batch: int, context: float) -> InputError:
        surface, drafts = self.prices.target, self.prices.drafts.batch
        batches = "any batch" if surface.any_batch else f"batches {list(surface.batch)}"
        low, high = price.context_range(surface.context, surface.slab, surface.batch, batch)
        return InputError(
            f"{self.profile.described} (strict): {asked} at context {context:g}; "
            f"measured: {batches}, up to {max(surface.total)} packed tokens, context {low} to "
            f"{high} at this batch, drafts for {drafts[0]} to {drafts[-1]} requests"
        )


def even_largest(batch: int, total: Any) -> Any:
    """The least that the largest of `batch` requests can have of `total` tokens."""
    return -(-total // batch)
