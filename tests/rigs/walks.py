"""Count the files that a piece of work enters: those of the product with a function that is called."""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).parents[2]
_FOLDERS = tuple(f"{ROOT / each}/" for each in ("hermes_exec", "backends", "policies", "agent"))


class Walk:
    """``with Walk() as walk:`` counts in this thread and in those that start within; `begin` forgets what was before.

    What the import of a module calls does not count.
    """

    def __init__(self) -> None:
        self._here: set[str] = set()
        self._anywhere: set[str] = set()
        self._thread = threading.get_ident()
        self._open = False

    def __enter__(self) -> Self:
        self._open = True
        threading.setprofile(self._count)
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        sys.setprofile(None)
        threading.setprofile(None)

    def begin(self) -> None:
        """Count from here."""
        self._here.clear()
        self._anywhere.clear()

    def files(self, folder: str, *, threads: bool = True) -> list[str]:
        """The files below a folder of the repository; those of this thread alone without ``threads``."""
        found = self._anywhere if threads else self._here
        names = (str(Path(each).relative_to(ROOT)) for each in found.copy())
        return sorted(name for name in names if name.startswith(f"{folder}/"))

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not (self._open and event == "call" and code.co_filename.startswith(_FOLDERS)):
            return
        caller = frame.f_back
        if not code.co_flags & inspect.CO_OPTIMIZED or (caller and caller.f_code.co_name == "<module>"):
            return
        self._anywhere.add(code.co_filename)
        if threading.get_ident() == self._thread:
            self._here.add(code.co_filename)
