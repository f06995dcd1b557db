"""What makes the shell of a terminal our relay: one line, and then a program.

The vendor starts an interactive login shell and nothing else, so the line makes it a Python with the terminal in raw
mode, which says a mark and then reads the program.
"""

from __future__ import annotations

import contextlib
import inspect
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

OPENS = "_open_ws"
"""What the SDK opens a WebSocket by; see ``overheard``."""
_LINE = (
    " exec sh -c 'for p in {pythons}; do command -v $p >/dev/null 2>&1 && exec $p -ISc \""
    'import os,tty,zlib;tty.setraw(0);os.write(1,bytes([{mark}]));b=b\\"\\";'
    'exec(\\"while len(b)<{size}: b+=os.read(0,{size}-len(b)) or os._exit(9)\\");exec(zlib.decompress(b))"'
    "; done; echo {none}'\n"
)
_LAUNCH = """
import sys
kind = type(sys)
package = sys.modules["hx"] = kind("hx")
package.__path__ = []
for name, text in %r:
    module = sys.modules["hx." + name] = kind("hx." + name)
    module.__package__ = "hx"
    setattr(package, name, module)
    exec(compile(text, "hx." + name, "exec"), module.__dict__)
module.main()
"""


def _source(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


@cache
def program() -> bytes:
    """What is sent once the mark has come."""
    return zlib.compress(
        (_LAUNCH % [(name, _source(name)) for name in ("frames", "program", "staging_dir", "relay")]).encode(), 9
    )


def line(pythons: Sequence[str], mark: bytes, none: str) -> bytes:
    """What is typed: the first of ``pythons`` that is there says ``mark``; where there is none, ``none`` is said."""
    marked = ",".join(map(str, mark))
    words = " ".join(pythons)
    # Apart, so that the terminal's echo of the line does not say it.
    return _LINE.format(pythons=words, mark=marked, size=len(program()), none=f'"{none[:8]}""{none[8:]}"').encode()


@contextlib.contextmanager
def overheard(process: Any, opened: Callable[[Any], None]) -> Generator[None]:
    """Tell of the WebSocket that the SDK opens for a terminal, as soon as it is open.

    The SDK looks ten times a second whether the terminal has answered, so its own word comes a tenth of a second late.
    Where a later SDK opens it otherwise nobody is told, and that word is waited for.
    """
    connect = getattr(process, OPENS, None)
    if not inspect.iscoroutinefunction(connect):
        yield
        return

    own: dict[str, Any] = process.__dict__

    async def overhear(*args: Any, **kwargs: Any) -> Any:
        own.pop(OPENS, None)
        socket = await connect(*args, **kwargs)
        opened(socket)
        return socket

    setattr(process, OPENS, overhear)  # for this one call, on an object that is ours
    try:
        yield
    finally:
        own.pop(OPENS, None)  # the class has it
