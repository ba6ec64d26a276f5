"""`python -m simulator`: see `simulator.app`."""

import sys

from simulator.app import main
from traces.pipes import until_closed

if __name__ == "__main__":
    sys.exit(until_closed(main))
