"""Arrays from tensors of a torch file, or from lists of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from traces.importers.node import Node, shown

MOST_OF_ONE = 2**24  # entries of one array: a tensor's strides may claim more than its file holds

_HELD = {"i": "whole numbers", "u": "whole numbers", "f": "floating-point numbers"}


def as_array(node: Node, kind: str, rank: int, accepted: str) -> np.ndarray:
    """The value as int64 (kind "iu") or float64 ("iuf") of that many dimensions.

    Raises:
        InputError: another type or rank, or more than `MOST_OF_ONE` entries.
    """
    wanted = np.int64 if kind == "iu" else np.float64
    array = _of_tensor(node.value) if _is_torch(node.value) else _of_list(node.value)
    if array is None:
        node.refuse(accepted, shown(node.value))
    if array.ndim != rank or (array.size and array.dtype.kind not in kind):
        held = _HELD.get(array.dtype.kind, "no numbers")
        node.refuse(accepted, f"{held}, of shape {array.shape}")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        node.refuse(accepted, "a number beyond 64 bits")
    return array.astype(wanted)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _of_tensor(value: Any) -> np.ndarray | None:
    """None for what is no dense tensor of plain numbers on the CPU, or too large to be true."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if value.device.type != "cpu" or value.is_quantized or value.numel() > MOST_OF_ONE:
        return None
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return None  # its strides repeat what the file holds once
    if value.is_complex() or value.dtype == torch.bool:
        return None
    try:
        wide = torch.float64 if value.is_floating_point() else torch.int64
        return value.detach().to(wide).resolve_neg().numpy()
    except RuntimeError:  # a type that torch cannot convert
        return None


def _of_list(value: Any) -> np.ndarray | None:
    if isinstance(value, bool) or not isinstance(value, list | tuple | int | float):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RecursionError, RuntimeError):
        return None  # ragged, of mixed things, or with too large a number
    return array if array.size <= MOST_OF_ONE else None
