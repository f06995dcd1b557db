"""Started by ``./dev`` as ``python -I tools``."""

import sys

from hermes_dev.cli import main

sys.exit(main(sys.argv[1:]))
