"""Orders: in which sequence the nodes of a draft tree are verified, at every anchor.

Importing this loads numpy alone; numba is imported when a table must be built.
"""

from simulator.orders.build import build_block, build_order
from simulator.orders.cache import order_table
from simulator.orders.replay import Replay, acceptance_length_by_budget, prefix_mass, replay
from simulator.orders.scores import BlockScores, DraftHead
from simulator.orders.specs import BestFirstOrder, ChainOrder, Draws, Order, OwnOrder, StaticOrder
from simulator.orders.table import ABSENT, OrderTable

__all__ = [
    "ABSENT",
    "BestFirstOrder",
    "BlockScores",
    "ChainOrder",
    "DraftHead",
    "Draws",
    "Order",
    "OrderTable",
    "OwnOrder",
    "Replay",
    "StaticOrder",
    "acceptance_length_by_budget",
    "build_block",
    "build_order",
    "order_table",
    "prefix_mass",
    "replay",
]
