"""Checks of what a policy allocates, and what an order's table says about its shape."""

from __future__ import annotations

import numpy as np

from simulator.orders.table import OrderTable
from simulator.policy import Policy
from traces.errors import InputError


def checked_widths(policy: Policy, width, size: np.ndarray, table: OrderTable) -> np.ndarray:
    """`width` as a new (batch,) int64 array.

    Raises:
        InputError: naming the policy and the first request whose width is not a whole number
            from 0 to `size` (batch,), or, for an order that is not nested, not a declared one.
    """
    shape, kind = np.shape(width), getattr(width, "dtype", None)
    if shape != size.shape or kind is None or kind.kind not in "iu":
        raise InputError(
            f"policy {_name(policy)}: allocate returned {kind or type(width).__name__} of shape "
            f"{shape}; accepted: an integer array of shape {size.shape}"
        )
    width = width.astype(np.int64)
    bad = (width < 0) | (width > size)
    if bad.any():
        _refuse(policy, width, size, bad, "0 to")
    allowed = table.widths_allowed()
    if allowed is not None:
        bad = ~(np.isin(width, (0, *allowed)) | (width == size))
        if bad.any():
            listed = ", ".join(map(str, (0, *allowed)))
            _refuse(policy, width, size, bad, f"this order whole or at its prefixes: {listed} or")
    return width


def _name(policy: Policy) -> str:
    return type(policy).__name__


def _refuse(policy: Policy, width, size, bad: np.ndarray, accepted: str) -> None:
    first = int(np.flatnonzero(bad)[0])
    raise InputError(
        f"policy {_name(policy)}: allocate gave {width[first]} nodes to request {first} of the "
        f"step; accepted: {accepted} {size[first]}"
    )


def verifies_trees(table: OrderTable) -> bool:
    """Whether any anchor's order branches; False where every row is a chain."""
    slot = np.arange(table.parent.shape[1])
    exists = slot < table.size[:, None]  # (A, M)
    return bool(((table.parent != slot - 1) & exists).any())
