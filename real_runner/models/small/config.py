"""Shapes of the small pair, checked once."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from traces.common.errors import InputError

MOST = {  # a file that says more describes no small pair, and would take all memory
    "vocab_size": 2**18,
    "layers": 128,
    "width": 2**13,
    "heads": 128,
    "feed_forward": 2**15,
    "block": 256,
    "markov_rank": 2**13,
}


def _check_sizes(config: TargetConfig | DrafterConfig) -> None:
    for name, most in MOST.items():
        size, least = getattr(config, name, 1), 0 if name == "markov_rank" else 1
        if type(size) is not int or not least <= size <= most:
            raise InputError(f"{name}: {size!r:.40}; accepted: a whole number, {least} to {most}")


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """A small decoder-only transformer (RMSNorm, RoPE, SwiGLU, tied embedding)."""

    vocab_size: int = 2048
    layers: int = 4
    width: int = 256
    heads: int = 4
    feed_forward: int = 640
    rope_base: float = 10_000.0

    def __post_init__(self):
        _check_sizes(self)
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise InputError(f"width: {self.width} must split into {self.heads} heads of even size")


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """A one-pass block drafter on the target's hidden states.

    ``kind`` is ``block`` (in-place block: slot 0 holds the anchor and is dropped, slot i predicts
    anchor + i) or ``semi_autoregressive`` (shifted block: slot i predicts anchor + i + 1, and a
    low-rank Markov head adds the parent token's bias).
    """

    kind: str = "block"
    block: int = 16
    layers: int = 2
    width: int = 256
    heads: int = 4
    feed_forward: int = 640
    rope_base: float = 10_000.0
    taps: tuple[int, ...] = (1, 2, 4)  # after these target layers, 1-based
    markov_rank: int = 0

    def __post_init__(self):
        _check_sizes(self)
        if self.kind not in ("block", "semi_autoregressive"):
            raise InputError(f"kind: {self.kind!r} is not one of block, semi_autoregressive")
        if (self.kind == "semi_autoregressive") != (self.markov_rank > 0):
            raise InputError(
                "markov_rank: the semi_autoregressive drafter needs one, the block none"
            )

    @property
    def depths(self) -> int:
        """Future tokens one pass predicts (DFlash: block - 1; DSpark: block)."""
        return self.block - 1 if self.kind == "block" else self.block


def as_metadata(config: TargetConfig | DrafterConfig) -> dict:
    """The configuration as plain JSON types."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}
