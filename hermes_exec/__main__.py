"""``python -m hermes_exec`` is ``hermes-exec``."""

import sys

from hermes_exec.cli import main

sys.exit(main())
