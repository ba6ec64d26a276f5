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
without a prefill table charges none, unless it is modelled (see `prefill_model`, which also says
what a chunk of a prompt costs, alone or in a decoding step).

What the engine adds: `graphs` (captured sizes of its own), `cliffs` (kernels), `host` (host work,
bubbles and launches). A step beyond a cliff is `modelled`: no stopwatch read that number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.cost.captured_graphs import GraphedVerify
from simulator.cost.cliffs import beyond, beyond_many, even_largest
from simulator.cost.draft import DraftTable
from simulator.cost.host import HostOverhead
from simulator.cost.memo import CachedDraft, CachedVerify
from simulator.cost.prefill import alone_ms, prefill_of, together_ms
from simulator.cost.settings import Engine
from simulator.cost.step_time import RESOLVED, Source, StepTime
from simulator.cost.verify import VerifySurface
from simulator.cost.width_probe import width_probe
from traces.common.errors import InputError
from traces.profiles.profile import LatencyProfile

_MODELLED = int(Source.MODELLED)
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
        prefill: ``table``, ``modelled`` or ``none``.

    Raises:
        InputError: a setting's value, or one that the profile does not allow.
    """

    def __init__(
        self, profile: LatencyProfile, *, host: HostOverhead | None = None, **settings: Any
    ) -> None:
        engine = self.engine = Engine(**settings)
        self.packing, self.strict, self.mode = engine.packing, engine.strict, engine.mode
        self.draft_steps, self.cliffs = engine.draft_steps, engine.cliffs
        host = HostOverhead() if host is None else host
        self.host = (
            host if self.mode == "eager" or not host.launch_s else replace(host, launch_s=0.0)
        )
        self.profile = profile
        self._target = (
            CachedVerify(VerifySurface(profile.verify, profile.header))
            if engine.graph_sizes is None
            else GraphedVerify(profile, engine.graph_sizes)
        )
        self._drafter = CachedDraft(DraftTable(profile.draft, profile.header))
        self.prefill, self._prefill = prefill_of(
            profile, engine.prefill, engine.prefill_efficiency, engine.strict
        )
        self._kind = _MODELLED if profile.modelled else 0
        self._padded = () if self.mode == "eager" else self.graph_sizes

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
        index = bisect_left(self._padded, total)
        return self._padded[index] if index < len(self._padded) else total

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
        packed_total = total = int(np.add.reduce(packed))
        largest = None
        if self.cliffs or self.packing == "dense":
            largest = int(packed.max())
            total = total if self.packing == "ragged" else batch * largest
        mean_context = float(np.add.reduce(context)) / batch
        verify_s, bits = self._verify(batch, total, mean_context, largest)
        draft_s = 0.0
        if drafted:
            draft_s, draft_bits = self._draft(batch, mean_context)
            draft_s += self.host.catch_up_token_s * deferred
            bits |= draft_bits
        chunk_s, chunk_bits = self._chunks(chunks, total) if chunks else (0.0, 0)
        host_s = self.host.seen_s(
            packed_total - batch,
            draft_s + verify_s + chunk_s,
            requests=batch,
            drafted=drafted,
            tree=tree,
            ordered=ordered,
            fed=fed,
        )
        source = RESOLVED[bits | chunk_bits]
        return StepTime(draft_s, verify_s, host_s, source, chunk_s, self.executed(total))

    def verify_s(self, batch: int, total: int, context: float, largest: int | None = None) -> float:
        """Target seconds of a step of ``total`` packed tokens at a mean ``context``.

        largest: packed tokens of the largest request, for cliffs; None: all are alike.
        """
        return self._verify(batch, total, context, largest)[0]

    def draft_s(self, batch: int, context: float) -> float:
        """Drafter seconds of a round of ``batch`` requests, all ``draft_steps`` together."""
        return self._draft(batch, context)[0]

    def prefill_s(self, tokens: int) -> float:
        """Seconds of the pass over a prompt of ``tokens``; 0 where prefill is free.

        Raises:
            InputError: (strict) a prompt longer than the longest measured one.
        """
        self._check_prompt(tokens)
        return self._prefill.at(tokens) * 1e-3

    def prefill_curve(self, tokens: np.ndarray) -> np.ndarray:
        """`prefill_s` of (n,) prompts: (n,) seconds."""
        tokens = np.asarray(tokens)
        if len(tokens):
            self._check_prompt(int(tokens.max()))
        return self._prefill.many(tokens) * 1e-3

    def prefill_modelled(self, tokens: np.ndarray) -> np.ndarray:
        """(n,) bool: prompts whose prefill is no measurement, nor between two."""
        tokens = np.asarray(tokens)
        if self.profile.modelled and self.prefill == "table":
            return np.ones(len(tokens), bool)
        return self._prefill.modelled(tokens)

    def chunk_s(self, start: int, tokens: int) -> float:
        """Seconds of a pass over prompt tokens ``start`` to ``start + tokens`` alone.

        Raises:
            InputError: (strict) a prompt longer than the longest measured one.
        """
        self._check_prompt(start + tokens)
        return alone_ms(self._prefill, start, tokens) * 1e-3

    def chunks_s(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one pass over (start, tokens) chunks of prompts, alone."""
        if len(chunks) == 1:
            return self.chunk_s(*chunks[0])
        return self._prefill.fixed_ms * 1e-3 + self._chunks(chunks)[0]

    def verify_curve_s(
        self, batch: int, totals: np.ndarray, context: float, largest: np.ndarray | None = None
    ) -> np.ndarray:
        """`verify_s` at (N,) totals, with (N,) tokens of the largest request: (N,) seconds."""
        totals = np.asarray(totals)
        if self.strict and len(totals):
            self._verify(batch, int(totals.max()), context)
        seconds = self._target.curve(batch, totals, context) * 1e-3
        if not self.cliffs:
            return seconds
        most = even_largest(batch, totals) if largest is None else largest
        return beyond_many(self.cliffs, seconds, totals, most)

    def width_probe(self, context: float = 1024) -> tuple[np.ndarray, np.ndarray]:
        """Batch-one points for a line fit (CAST, width rule), with the engine's own jumps.

        Returns:
            (n,) packed tokens and (n,) milliseconds, at the measured prefix nearest ``context``:
            the measured sizes, or the captured ones of an engine that has others.

        Raises:
            InputError: the profile has no batch-one points.
        """
        return width_probe(self.profile.described, self._target, self.cliffs, context)

    def _verify(
        self, batch: int, total: int, context: float, largest: int | None = None
    ) -> tuple[float, int]:
        ms, bits = self._target.at(batch, total, context)
        if self.strict and bits & _REFUSED:
            raise self._refusal(
                f"a step of {batch} requests, {total} packed tokens", batch, context
            )
        seconds = ms * 1e-3
        if self.cliffs:
            most = even_largest(batch, total) if largest is None else largest
            seconds, hit = beyond(self.cliffs, seconds, total, most)
            bits |= _MODELLED if hit else 0
        return seconds, bits | self._kind

    def _draft(self, batch: int, context: float) -> tuple[float, int]:
        ms, bits = self._drafter.at(batch, context)
        if self.strict and bits & _REFUSED:
            raise self._refusal(f"a draft for {batch} requests", batch, context)
        return ms * 1e-3 * self.draft_steps, bits | self._kind

    def _chunks(self, chunks: Sequence[tuple[int, int]], packed: int = 0) -> tuple[float, int]:
        """Seconds and Source bits that chunks add to a step of `packed` tokens."""
        bits = self._kind if self.prefill == "table" else 0
        for start, tokens in chunks:
            self._check_prompt(start + tokens)
            bits |= self._prefill.bits(start + tokens)
        beside = packed if self.prefill == "modelled" else 0
        return together_ms(self._prefill, chunks, beside) * 1e-3, bits

    def _check_prompt(self, tokens: int) -> None:
        if self.strict and tokens > self._prefill.last > 0:
            raise InputError(
                f"{self.profile.described} (strict): prefill of {tokens} tokens; "
                f"measured: up to {self._prefill.last}"
            )

    def _refusal(self, asked: str, batch: int, context: float) -> InputError:
        surface, drafts = self._target.surface, self._drafter.drafts
        batches = "any batch" if surface.any_batch else f"batches {surface.batches}"
        low, high = surface.context_range(batch)
        return InputError(
            f"{self.profile.described} (strict): {asked} at context {context:g}; "
            f"measured: {batches}, up to {surface.last_total} packed tokens, context {low} to "
            f"{high} at this batch, drafts for {drafts.batches[0]} to {drafts.batches[-1]} requests"
        )
