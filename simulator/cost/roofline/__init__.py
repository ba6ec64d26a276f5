"""A latency profile of a device and a model that nobody timed: ``latency=roofline``."""

from simulator.cost.roofline.model import Roofline
from simulator.cost.roofline.settings import ROOFLINE, read_roofline

__all__ = ["ROOFLINE", "Roofline", "read_roofline"]
