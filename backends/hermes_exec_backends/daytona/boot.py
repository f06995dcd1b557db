"""Start of the relay in the shell of a terminal: one command line, and then a program.

The vendor starts only an interactive login shell, so the line replaces it by a Python with the terminal in raw mode,
which prints a mark and then reads the program.
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
"""The SDK's method that opens a WebSocket; see ``overheard``."""
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
    """Return the program that is sent after the mark."""
    return zlib.compress(
        (_LAUNCH % [(name, _source(name)) for name in ("frames", "program", "staging_dir", "relay")]).encode(), 9
    )


def line(pythons: Sequence[str], mark: bytes, none: str) -> bytes:
    """Return the shell line that makes the first existing one of ``pythons`` print ``mark``, else prints ``none``."""
    marked = ",".join(map(str, mark))
    words = " ".join(pythons)
    # Split in two, so that the terminal's echo of the line does not contain it.
    return _LINE.format(pythons=words, mark=marked, size=len(program()), none=f'"{none[:8]}""{none[8:]}"').encode()


@contextlib.contextmanager
def overheard(process: Any, opened: Callable[[Any], None]) -> Generator[None]:
    """Call ``opened`` with the WebSocket that the SDK opens for a terminal, as soon as it is open.

    The SDK polls ten times a second whether the terminal has answered, so its own report is up to a tenth of a second
    late. If a later SDK opens the WebSocket in another way, ``opened`` is not called, and the SDK's report is used.
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

    setattr(process, OPENS, overhear)  # for this one call, on an object that only the caller uses
    try:
        yield
    finally:
        own.pop(OPENS, None)  # the class has it
