"""An engine for many requests of few prompts: each is read once and then copied."""

from __future__ import annotations

import numpy as np
import torch

from real_runner.engine.engine import HEADROOM, Engine


class SharedPrefixEngine(Engine):
    """Admits a prompt that it has read before by copying its keys and values.

    What a request then does is the same as if it had read the prompt; only prefill is spared.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._read: dict[bytes, list[torch.Tensor]] = {}  # per store (layers, kv_heads, t, width)

    @torch.inference_mode()
    def admit(self, prompt: np.ndarray, seed: int, root: int | None = None) -> int:
        """See `Engine.admit`; without a given root the prompt is always read."""
        length, name = len(prompt), np.asarray(prompt, np.int64).tobytes()
        if root is None or name not in self._read:
            root = super().admit(prompt, seed, root)
            row = int(self.row[-1])
            self._read[name] = [store[:, row, :, :length].clone() for store in self._stores()]
            return root
        row = int(np.setdiff1d(np.arange(self.batch + 1), self.row)[0])
        for cache in self._caches():
            cache.ensure(length + HEADROOM)
        for store, kept in zip(self._stores(), self._read[name], strict=True):
            store[:, row, :, :length] = kept
        self._join(row, length, root)
        return root

    def _caches(self):
        return [cache for cache in (self.cache, self.context) if cache is not None]

    def _stores(self) -> list[torch.Tensor]:
        return [store for cache in self._caches() for store in (cache.key, cache.value)]
