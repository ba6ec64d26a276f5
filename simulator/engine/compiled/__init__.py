"""The server's rounds in compiled code, for loads and policies simple enough: same results, sooner.

Importing this loads numpy alone; numba is imported with `simulator.engine.compiled.server`.
"""

from simulator.engine.compiled.eligible import eligible, pays

__all__ = ["eligible", "pays"]
