"""The KV cache of one replica, in blocks: what is held, what is free, who may come in.

Paged as vLLM's: a request holds whole blocks. The root's keys and those of draft nodes are written
while they are verified; afterwards only the accepted ones' stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class KvBlocks:
    """Blocks of `block` tokens; `total` None: as many as are asked for.

    `watermark`: the share of blocks that admission leaves free for those that run, so that a new
    request does not push out an old one at once (vLLM's block manager).
    """

    total: int | None
    block: int = 16
    watermark: float = 0.01
    held: int = 0

    @property
    def limited(self) -> bool:
        """Whether it can run out."""
        return self.total is not None

    def blocks(self, tokens):
        """Blocks that hold so many tokens, a number or an array."""
        return -(-tokens // self.block)

    def fits(self, tokens: int) -> bool:
        """Whether a request of so many tokens could ever be held."""
        return self.total is None or self.blocks(tokens) <= self.total

    def admits(self, tokens: int, claimed: int, alone: bool) -> bool:
        """Whether a request that needs so many tokens may come in beside `claimed` blocks."""
        spare = 0 if alone else int(np.ceil(self.watermark * self.total))
        return self.total - claimed - self.blocks(tokens) >= spare
