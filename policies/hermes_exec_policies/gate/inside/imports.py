"""Import what a skill imports, and nothing of the skill: what libraries do by themselves is not held against it."""

from __future__ import annotations

import contextlib
import sys


def run(names: str, *folders: str) -> None:
    """Import modules by their names, in one string with spaces; those that are not there are not our business."""
    sys.path[:0] = [each for each in folders if each]
    for name in names.split():
        with contextlib.suppress(BaseException):
            __import__(name)
    if "uuid" in sys.modules:  # which asks for the number of a network card to make one of
        import uuid

        uuid.uuid1()


run(*sys.argv[1:])
