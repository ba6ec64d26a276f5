"""`python -m real_runner`."""

import sys

from real_runner.app import main

sys.exit(main())
