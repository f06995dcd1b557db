"""What the program begins with, when every module is there."""

import json
import sys

from . import controls, files, kernel, kit, limits, network, processes

MODULES = (controls, files, kernel, limits, network, processes)
"""Those with attempts; naming them here is what loads them."""


def start() -> None:
    """Read the configuration, which is the first word, and make the attempts."""
    kit.main(json.loads(sys.argv[1]))
