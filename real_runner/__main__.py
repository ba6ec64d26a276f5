"""`python -m real_runner`."""

import sys

from real_runner.app import main
from traces.pipes import until_closed

sys.exit(until_closed(main))
