"""What a step costs: latency profiles, their interpolation and extension, host overhead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.cost.cliffs import Cliff
from simulator.cost.host import HostOverhead
from simulator.cost.kv_memory import kv_tokens_of, kv_tokens_that_fit
from simulator.cost.roofline.settings import ROOFLINE, RooflineSettings, read_roofline
from simulator.cost.roofline.table import profile_of
from simulator.cost.settings import Engine, LatencySettings, without_nulls
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
        cfg_latency: keys ``profile`` (a shipped name or a path to a CSV), and optionally ``name``,
            the fields of `Engine` (null: its default), the mapping ``host``, the mapping
            ``roofline``, from which the profile of that name is computed, and ``provenance``, which
            says where the numbers come from and prices nothing.

    Raises:
        InputError: an unknown key, profile or value.
    """
    node = cfg_latency
    if isinstance(node, Mapping):
        node = without_nulls(node)
        for name in ("host", ROOFLINE):
            if isinstance(node.get(name), Mapping):
                node[name] = without_nulls(node[name])
    settings = read(LatencySettings, node)
    profile = _profile(settings.profile, settings.roofline)
    return StepCost(profile, host=settings.host, **settings.engine)


def _profile(name: Any, roofline: RooflineSettings | None) -> LatencyProfile:
    if roofline is None:
        return find_profile(name)
    if name != ROOFLINE:
        raise InputError(
            f"latency.profile is {name!r} beside latency.{ROOFLINE}; accepted: {ROOFLINE}"
        )
    return profile_of(read_roofline(roofline))


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
