"""What a step costs: latency profiles, their interpolation and extension, host overhead."""

from simulator.cost.build import build_step_cost
from simulator.cost.host import HostOverhead
from simulator.cost.profile import LatencyProfile, find_profile, known_profiles, read_profile
from simulator.cost.source import Source, SourceTally, shares
from simulator.cost.step_cost import StepCost, StepTime

__all__ = [
    "HostOverhead",
    "LatencyProfile",
    "Source",
    "SourceTally",
    "StepCost",
    "StepTime",
    "build_step_cost",
    "find_profile",
    "known_profiles",
    "read_profile",
    "shares",
]
