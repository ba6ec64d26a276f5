"""What a step costs: latency profiles, their interpolation and extension, host overhead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from simulator.cost.cliffs import Cliff
from simulator.cost.host import HostOverhead
from simulator.cost.kv_memory import kv_tokens_of, kv_tokens_that_fit
from simulator.cost.roofline import ROOFLINE, read_roofline
from simulator.cost.settings import Engine
from simulator.cost.step_cost import StepCost
from simulator.cost.step_time import Source, StepTime, shares
from traces.common.errors import InputError
from traces.profiles.profile import LatencyProfile, find_profile, known_profiles, read_profile
from traces.profiles.tables import DraftRow, PrefillRow, VerifyRow
from traces.profiles.write import write_profile

_ENGINE = tuple(item.name for item in fields(Engine))
_KEYS = ("name", "profile", "host", *_ENGINE, ROOFLINE, "provenance")


def build_step_cost(cfg_latency: Mapping[str, Any]) -> StepCost:
    """Build the cost model a ``conf/latency`` file describes.

    Args:
        cfg_latency: keys ``profile`` (a shipped name or a path to a CSV), and optionally ``name``,
            the fields of `Engine` (null: its default), the mapping ``host``, the mapping
            ``roofline``, from which the profile of that name is computed, and ``provenance``, which
            says where the numbers come from and prices nothing.

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
    given = {name: cfg_latency.get(name) for name in _ENGINE}
    return StepCost(
        _profile(cfg_latency["profile"], cfg_latency.get(ROOFLINE)),
        host=HostOverhead(**dict(host)),
        **{name: value for name, value in given.items() if value is not None},
    )


def _profile(name: Any, roofline: Any) -> LatencyProfile:
    if roofline is None:
        return find_profile(name)
    if name != ROOFLINE:
        raise InputError(
            f"latency.profile is {name!r} beside latency.{ROOFLINE}; accepted: {ROOFLINE}"
        )
    return read_roofline(roofline).profile()


def _known(where: str, node: Any, accepted: tuple[str, ...]) -> None:
    if not isinstance(node, Mapping):
        raise InputError(f"{where} is {node!r}; accepted: a mapping of {', '.join(accepted)}")
    for key in node:
        if key not in accepted:
            raise InputError(f"{where}.{key} is not a setting; accepted: {', '.join(accepted)}")


__all__ = [
    "Cliff",
    "DraftRow",
    "Engine",
    "HostOverhead",
    "LatencyProfile",
    "PrefillRow",
    "Source",
    "StepCost",
    "StepTime",
    "VerifyRow",
    "build_step_cost",
    "find_profile",
    "known_profiles",
    "kv_tokens_of",
    "kv_tokens_that_fit",
    "read_profile",
    "shares",
    "write_profile",
]
