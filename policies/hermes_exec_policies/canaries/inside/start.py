"""The entry point of the program, used once every module is loaded."""

import json
import sys

from . import controls, files, kernel, kit, limits, network, processes

MODULES = (controls, files, kernel, limits, network, processes)
"""The modules with attempts; importing them registers the attempts."""


def start() -> None:
    """Read the configuration, which is the first argument, and run the attempts."""
    kit.main(json.loads(sys.argv[1]))
