"""`python -m simulator`: see `simulator.app`."""

import sys

from simulator.app import main

if __name__ == "__main__":
    sys.exit(main())
