"""Shapes and special tokens of the small pair."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from traces.common.errors import InputError
from traces.common.settings import Many, Section, above, whole

SPECIAL = ("<bos>", "<eos>", "<mask>", "<pad>")
BOS, EOS, MASK, PAD = range(4)
BANNED = (BOS, MASK, PAD)  # never emitted, never drafted

# A file that says more describes no small pair, and would take all memory.
Vocabulary, Layers, Width, Heads, FeedForward, RopeBase = (
    *(whole(1, most) for most in (2**18, 128, 2**13, 128, 2**15)),
    above(0, 1e9),
)


class TargetConfig(Section):
    """A small decoder-only transformer (RMSNorm, RoPE, SwiGLU, tied embedding)."""

    vocab_size: Vocabulary = 2048
    layers: Layers = 4
    width: Width = 256
    heads: Heads = 4
    feed_forward: FeedForward = 640
    rope_base: RopeBase = 10_000.0

    @model_validator(mode="after")
    def _splits(self) -> TargetConfig:
        if self.width % (2 * self.heads):
            self.refuse("width", f"what splits into {self.heads} heads of even size")
        return self


class DrafterConfig(Section):
    """A one-pass block drafter on the target's hidden states.

    ``kind`` is ``block`` (in-place block: slot 0 holds the anchor and is dropped, slot i predicts
    anchor + i) or ``semi_autoregressive`` (shifted block: slot i predicts anchor + i + 1, and a
    low-rank Markov head adds the parent token's bias).
    """

    kind: Literal["block", "semi_autoregressive"] = "block"
    block: whole(1, 256) = 16
    layers: Layers = 2
    width: Width = 256
    heads: Heads = 4
    feed_forward: FeedForward = 640
    rope_base: RopeBase = 10_000.0
    taps: Many[whole(1, 128)] = (1, 2, 4)  # after these target layers, 1-based
    markov_rank: whole(0, 2**13) = 0

    @model_validator(mode="after")
    def _together(self) -> DrafterConfig:
        if (self.kind == "semi_autoregressive") != (self.markov_rank > 0):
            self.refuse("markov_rank", "above 0 for semi_autoregressive, 0 for block")
        if self.width % (2 * self.heads):
            self.refuse("width", f"what splits into {self.heads} heads of even size")
        return self

    @property
    def depths(self) -> int:
        """Future tokens one pass predicts (DFlash: block - 1; DSpark: block)."""
        return self.block - 1 if self.kind == "block" else self.block


class Drafters(Section):
    """The drafters of a pair."""

    block: DrafterConfig | None = None
    semi_autoregressive: DrafterConfig | None = None


class PairConfig(Section):
    """`config.json` of a pair."""

    target: TargetConfig
    drafters: Drafters

    @model_validator(mode="after")
    def _tapped(self) -> PairConfig:
        for kind, drafter in self.drafters:
            if drafter is not None and max(drafter.taps, default=0) > self.target.layers:
                raise InputError(
                    f"drafters.{kind}.taps is {drafter.taps}; accepted: the target's layers, "
                    f"1 to {self.target.layers}"
                )
        return self


DRAFTERS = Drafters(
    block=DrafterConfig(kind="block", block=16),
    semi_autoregressive=DrafterConfig(kind="semi_autoregressive", block=7, markov_rank=64),
)
