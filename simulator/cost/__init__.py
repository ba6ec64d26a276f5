"""What a step costs: latency profiles, their interpolation and extension, host overhead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.cost.host import HostOverhead
from simulator.cost.kv_memory import kv_tokens_of
from simulator.cost.roofline import ROOFLINE, profile_of, read_roofline
from simulator.cost.settings import Cliff, Engine, LatencySettings
from simulator.cost.step_cost import StepCost
from simulator.cost.step_time import Source, StepTime, shares
from traces.common.errors import InputError
from traces.common.settings import read
from traces.profiles.profile import LatencyProfile, find_profile, known_profiles, read_profile
from traces.profiles.tables import DraftRow, PrefillRow, VerifyRow
from traces.profiles.write import write_profile


def build_step_cost(cfg_latency: Mapping[str, Any]) -> StepCost:
    """Build the cost model a ``conf/latency`` file describes.

    Args:
        cfg_latency: the keys of `LatencySettings`. ``profile`` is a shipped name, a path to a CSV,
            or ``roofline``, which is computed from the mapping ``roofline``.

    Raises:
        InputError: an unknown key, profile or value.
    """
    settings = read(LatencySettings, cfg_latency)
    name, roofline = settings.profile, settings.roofline
    if roofline is None:
        profile = find_profile(name)
    elif name != ROOFLINE:
        raise InputError(
            f"latency.profile is {name!r} beside latency.{ROOFLINE}; accepted: {ROOFLINE}"
        )
    else:
        profile = profile_of(read_roofline(roofline))
    return StepCost(profile, host=settings.host, **settings.engine)


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
    "read_profile",
    "shares",
    "write_profile",
]
