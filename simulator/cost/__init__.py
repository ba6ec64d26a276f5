"""What a step costs: latency profiles, their interpolation and extension, host overhead."""

from simulator.cost.build import build_step_cost
from simulator.cost.cliffs import Cliff
from simulator.cost.engine import Engine
from simulator.cost.host import HostOverhead
from simulator.cost.memory import kv_tokens_of, kv_tokens_that_fit
from simulator.cost.profile import LatencyProfile, find_profile, known_profiles, read_profile
from simulator.cost.source import Source, SourceTally, shares
from simulator.cost.step_cost import StepCost
from simulator.cost.step_time import StepTime
from simulator.cost.tables import DraftRow, PrefillRow, VerifyRow
from simulator.cost.write_profile import write_profile

__all__ = [
    "Cliff",
    "DraftRow",
    "Engine",
    "HostOverhead",
    "LatencyProfile",
    "PrefillRow",
    "Source",
    "SourceTally",
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
