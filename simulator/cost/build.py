"""From the ``latency`` node of a configuration to a cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from simulator.cost.host import HostOverhead
from simulator.cost.profile import find_profile
from simulator.cost.step_cost import StepCost
from traces.errors import InputError

_KEYS = ("name", "profile", "strict", "host", "packing", "draft_steps")


def build_step_cost(cfg_latency: Mapping[str, Any]) -> StepCost:
    """Build the cost model a ``conf/latency`` file describes.

    Args:
        cfg_latency: keys ``profile`` (a shipped name or a path to a CSV), and optionally ``name``,
            ``strict``, ``packing``, ``draft_steps`` and the mapping ``host``.

    Raises:
        InputError: an unknown key, profile or value.
    """
    _known("latency", cfg_latency, _KEYS)
    if "profile" not in cfg_latency:
        raise InputError(
            "latency.profile is missing; accepted: a profile's name or a path to a .csv"
        )
    host = cfg_latency.get("host") or {}
    _known("latency.host", host, tuple(item.name for item in fields(HostOverhead)))
    return StepCost(
        find_profile(cfg_latency["profile"]),
        host=HostOverhead(**dict(host)),
        packing=cfg_latency.get("packing", "ragged"),
        strict=cfg_latency.get("strict", False),
        draft_steps=cfg_latency.get("draft_steps", 1),
    )


def _known(where: str, node: Any, accepted: tuple[str, ...]) -> None:
    if not isinstance(node, Mapping):
        raise InputError(f"{where} is {node!r}; accepted: a mapping of {', '.join(accepted)}")
    for key in node:
        if key not in accepted:
            raise InputError(f"{where}.{key} is not a setting; accepted: {', '.join(accepted)}")
