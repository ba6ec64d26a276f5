"""Keys and values of the running requests: one row each, as many columns as its text is long."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.models import LiveDrafter, LiveTarget

COLUMNS = 16  # the number of columns is kept a multiple of this, as fused attention kernels want


def rounded(columns: int, step: int = COLUMNS) -> int:
    """`columns`, up to the next multiple of `step`."""
    return -(-columns // step) * step


class KVCache:
    """Preallocated keys and values; what lies behind a request's length is scratch.

    A pass writes its new tokens into the columns from the length on; `keep` then moves the
    accepted ones together, and whatever follows is overwritten later. Grows when a text does.
    """

    def __init__(self, model: LiveTarget | LiveDrafter, rows: int, columns: int) -> None:
        shape = (model.num_layers, rows, model.kv_heads, rounded(columns), model.head_dim)
        self.key = torch.zeros(shape, device=model.device, dtype=model.dtype)
        self.value = torch.zeros_like(self.key)

    @property
    def columns(self) -> int:
        """Columns there is room for."""
        return self.key.shape[3]

    def ensure(self, columns: int) -> None:
        """Make room for `columns` per request."""
        if columns > self.columns:
            more = rounded(max(columns, self.columns * 3 // 2)) - self.columns
            self.key = torch.nn.functional.pad(self.key, (0, 0, 0, more))
            self.value = torch.nn.functional.pad(self.value, (0, 0, 0, more))

    def write(self, layer: int, row: Tensor, column: Tensor, key: Tensor, value: Tensor) -> None:
        """Put keys and values (b, kv_heads, t, head_dim) at (row, column), both (b * t,)."""
        self.key[layer][row, :, column] = key.transpose(1, 2).flatten(0, 1)
        self.value[layer][row, :, column] = value.transpose(1, 2).flatten(0, 1)

    def first(self, layer: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Keys and values (rows, kv_heads, columns, head_dim) of the first rows and columns."""
        return self.key[layer, :rows, :, :columns], self.value[layer, :rows, :, :columns]

    def keep(self, row: np.ndarray, source: np.ndarray, column: np.ndarray) -> None:
        """Copy the entries at (row, source) to (row, column) in every layer; all (n,)."""
        moved = source != column
        if not moved.any():
            return
        device = self.key.device
        row, source, column = (
            torch.from_numpy(part[moved]).to(device) for part in (row, source, column)
        )
        for store in (self.key, self.value):
            store[:, row, :, column] = store[:, row, :, source]

    def move(self, source: int, row: int, length: int) -> None:
        """Copy the first `length` columns of a row to another."""
        for store in (self.key, self.value):
            store[:, row, :, :length] = store[:, source, :, :length]
