"""Checks of a policy's settings and of the split it fits on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from simulator.calibration.lab import Lab
from simulator.orders.specs import MAX_NODES
from simulator.orders.table import OrderTable
from simulator.policy import Policy
from traces.common.errors import InputError, refusal
from traces.common.settings import Section, read

MOST = 10**9  # of a setting that nothing else bounds
S = TypeVar("S", bound=Section)


def whole(name: str, value: Any, low: int = 1, high: int = MOST) -> int:
    """`value` as an int in low..high; InputError naming the setting otherwise."""
    if type(value) is not int or not low <= value <= high:
        raise refused(name, value, f"a whole number from {low} to {high}")
    return value


def node_count(name: str, value: Any) -> int:
    """`value` as a number of nodes, or of children of one, that an order may have."""
    return whole(name, value, high=MAX_NODES)


def choice(name: str, value: Any, accepted: tuple) -> Any:
    """`value` if it is one of `accepted`; InputError naming the setting otherwise."""
    if not any(type(value) is type(one) and value == one for one in accepted):
        raise refused(name, value, ", ".join(map(str, accepted)))
    return value


def entries(name: str, value: Any, model: type[S], accepted: str) -> tuple[S, ...]:
    """A section of each entry of a list, which are mappings or lists of its keys' values.

    Raises InputError naming the entry, or its key, and what is accepted.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not len(value):
        raise refused(name, value, f"a list of {accepted}")
    read_entries = []
    for i, entry in enumerate(value):
        where, keys = f"{name}[{i}]", model.model_fields
        if isinstance(entry, Sequence) and len(entry) == len(keys):
            entry = dict(zip(keys, entry, strict=True))
        if not isinstance(entry, Mapping):
            raise refused(where, entry, accepted)
        read_entries.append(read(model, entry, prefix=f"policy.{where}."))
    return tuple(read_entries)


def positive(name: str, value: Any) -> float | None:
    """`value` as a float above 0, or None; InputError naming the setting otherwise."""
    if value is not None and (type(value) not in (int, float) or not 0 < value <= MOST):
        raise refused(name, value, f"a number above 0 to {MOST}, or null")
    return None if value is None else float(value)


def probability(name: str, value: Any) -> float:
    """`value` as a float from 0 to 1; InputError naming the setting otherwise."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise refused(name, value, "a number from 0 to 1")
    return float(value)


def refused(name: str, value: Any, accepted: str) -> InputError:
    """The error of a setting's value."""
    return InputError(refusal(f"policy.{name}", value, accepted))


def draft_length(name: str, value: int, lab: Lab) -> int:
    """`value` if the recording has as many draft depths; InputError naming the setting if not."""
    depths = lab.recording.depths
    if value > depths:
        where = f"the draft depths of {lab.recording.source}"
        raise refused(name, value, f"up to {depths}, {where}")
    return value


def checked_widths(policy: Policy, width, size: np.ndarray, table: OrderTable) -> np.ndarray:
    """`width` as a new (batch,) int64 array.

    Raises:
        InputError: naming the policy and the first request whose width is not a whole number
            from 0 to `size` (batch,), or, for an order that is not nested, not a declared one.
    """
    shape, kind, name = np.shape(width), getattr(width, "dtype", None), type(policy).__name__
    if shape != size.shape or kind is None or kind.kind not in "iu":
        raise InputError(
            f"policy {name}: allocate returned {kind or type(width).__name__} of shape "
            f"{shape}; accepted: an integer array of shape {size.shape}"
        )
    width, allowed = width.astype(np.int64), table.widths_allowed()
    bad, accepted = (width < 0) | (width > size), "0 to"
    if allowed is not None and not bad.any():
        bad = ~(np.isin(width, (0, *allowed)) | (width == size))
        accepted = f"this order whole or at its prefixes: {', '.join(map(str, (0, *allowed)))} or"
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"policy {name}: allocate gave {width[first]} nodes to request {first} of the "
            f"step; accepted: {accepted} {size[first]}"
        )
    return width


def verifies_trees(table: OrderTable) -> bool:
    """Whether any anchor's order branches; False where every row is a chain."""
    slot = np.arange(table.parent.shape[1])
    exists = slot < table.size[:, None]  # (A, M)
    return bool(((table.parent != slot - 1) & exists).any())
