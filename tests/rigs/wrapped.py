"""A program of the machine (bwrap, apptainer) behind a script that changes its options while a file is there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """\
#!/usr/bin/python3 -IS
import os, sys
words = sys.argv[1:]
if os.path.exists({switch!r}):
{change}
os.execv({program!r}, [{program!r}, *words])
"""
DROP = """\
    for place in reversed([place for place in range(len(words)) if words[place:place + len({found!r})] == {found!r}]):
        words[place:place + len({found!r})] = {instead!r}
"""


def wrap(folder: Path, name: str, found: list[str], instead: list[str]) -> Path:
    """Put a program of this name into a folder for the PATH; gives the file that switches the change on.

    Then each run of ``found`` among its words becomes ``instead``; an empty one adds ``instead`` before the others.
    """
    real = shutil.which(name)
    assert real is not None
    switch = folder / "on"
    change = DROP.format(found=found, instead=instead) if found else f"    words[:0] = {instead!r}\n"
    script = folder / name
    script.write_text(_SCRIPT.format(switch=str(switch), change=change, program=real))
    for path in (folder, script):
        path.chmod(0o755)
    return switch
