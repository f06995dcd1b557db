"""Import the modules that a skill imports, without the skill, to record the calls that libraries make by themselves."""

from __future__ import annotations

import contextlib
import sys


def run(names: str, *folders: str) -> None:
    """Import modules by their names, in one string with spaces; missing ones are ignored."""
    sys.path[:0] = [each for each in folders if each]
    for name in names.split():
        with contextlib.suppress(BaseException):
            __import__(name)
    if "uuid" in sys.modules:  # it reads the address of a network card to generate an id
        import uuid

        uuid.uuid1()


run(*sys.argv[1:])
