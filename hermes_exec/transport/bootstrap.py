"""The payload that starts a guest: an argv, and the guest's modules as the first bytes of its standard input.

The argv holds a stub of two lines, so that nothing needs installing, copying or quoting. Compiled code starts faster
than source but runs only on the interpreter version that compiled it, so both are sent unless the target runs the same
interpreter as this process. A high-latency target gets minified source alone: a new TCP connection carries 14 KB in its
first round trip, which the core just fits, and twice as much in the second.
"""

from __future__ import annotations

import importlib.util
import marshal
import re
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec._source import find_source_loader
from hermes_exec.guest.core import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


Kind = Literal["code", "both", "source"]
"""The form of the modules: compiled code, both, or source alone."""

_GUEST = "hermes_exec.guest"
CORE = (
    "core.wire",
    "core.malloc",
    "core.fdutil",
    "core.loop",
    "core.libc",
    "core.process_tree",
    "core.server",
    "core.orphan_cleanup",
    "core.main",
)
"""In import order; the last one has ``main``, which writes the nonce and the WELCOME."""

WORK = "work"
"""The part that every guest gets directly after the core: it fits into the second round trip, and is loaded while the
WELCOME is on its way."""

PARTS: dict[str, tuple[str, ...]] = {
    WORK: (
        "streams.output_stream",
        "streams.pipe_handoff",
        "streams.input_stream",
        "process.runner",
        "process.process",
        "process.command",
        "shell.shell_text",
        "shell.folders",
        "shell.orphans",
        "shell.shell",
        "shell.inotify_watcher",
        "shell.polling_watcher",
        "shell.shell_command",
        "shell.session",
        "shell.service",
    ),
    "files": (
        "files.safe_paths",
        "files.kernel_copy",
        "files.ignore_patterns",
        "files.tree_stream",
        "files.tree_writer",
        "files.tree_receiver",
        "files.tree_scan",
        "files.staging",
        "files.atomic_writer",
        "files.path_glob",
        "files.real_path",
        "files.operations",
        "files.transfers",
        "files.service",
    ),
    "forward": ("forward.connect", "forward.forwarded_connection", "forward.service"),
    "jobs": ("jobs.job_log", "jobs.job", "jobs.service"),
    "limits": ("limits.cgroups", "limits.rlimits", "limits.confinement", "limits.service"),
    "pty": ("pty.view", "pty.program", "pty.service"),
}
"""Parts that are sent after the core or on first use: name, and modules in import order; the last has ``install``."""

_STUB = (
    "import os\nb=b''\nwhile len(b)<%d:\n c=os.read(0,%d-len(b))\n if not c:os._exit(9)\n b+=c\n"
    "exec(b[:%d]);load(b[%d:]).main(load,%r,%r)"
)

_DOCSTRING = re.compile(rb'^([ \t]*)"""(?:[^"\\]|"(?!""))*"""$', re.MULTILINE)
_COMMENT = re.compile(rb"^[ \t]*#.*|  # [^\"'\n]*$", re.MULTILINE)
_FOR_CHECKERS = re.compile(rb"^TYPE_CHECKING = False\nif TYPE_CHECKING:\n(?:[ \t]+.*\n|\n(?=[ \n]))*", re.MULTILINE)
_FUNCTION = re.compile(rb"^[ \t]*def .*", re.MULTILINE)
_ARGUMENT = re.compile(rb'(?<=\w): "[^"\n]*"(?=[,)]| =)')
_VARIABLE = re.compile(rb'^([ \t]*[\w.]+): "[^"\n]*"(?= =)', re.MULTILINE)
_RETURNED = re.compile(rb"\) -> [^:\n]+:$", re.MULTILINE)
_INDENT = re.compile(rb"^(?:    )+", re.MULTILINE)

_OUTLIVE = {"jobs", "pty"}


def _module(name: str, *, with_source: bool) -> tuple[str, bytes, bytes]:
    loader = find_source_loader(f"{_GUEST}.{name}")
    code = loader.get_code(loader.name)  # from __pycache__ where that is current
    source = loader.get_data(loader.path) if with_source else b""
    return name, marshal.dumps(code), source


def _blob(names: tuple[str, ...], kind: Kind) -> bytes:
    modules = tuple(_module(name, with_source=kind != "code") for name in names)
    magic = importlib.util.MAGIC_NUMBER
    if kind == "source":
        magic, modules = b"", tuple((name, b"", minify(source)) for name, _, source in modules)
    # Version 2 of the format is read by every Python since 2.5.
    blob = marshal.dumps((magic, modules), 2)
    return blob if kind == "code" else b"z" + zlib.compress(blob, 9 if kind == "source" else -1)


@cache
def _payload(kind: Kind) -> tuple[bytes, int]:
    loader = (Path(__file__).parent.parent / "guest" / "core" / "loader.py").read_bytes()
    loader = minify(loader) if kind == "source" else loader
    return loader + _blob(CORE, kind), len(loader)


def guest_command(nonce: str, kind: Kind, *, guarded: bool = False) -> tuple[list[str], bytes]:
    """Return the argv without its interpreter, and the bytes to send first, that start a guest.

    The memory of a ``guarded`` guest is closed to other processes of the same user.
    """
    payload, loader = _payload(kind)
    size = len(payload)
    return ["-ISc", _STUB % (size, size, loader, loader, nonce, guarded)], payload


@cache
def part_payload(name: str, kind: Kind) -> bytes:
    """Return the payload of the LOAD frame that adds a part to a guest."""
    return name.encode() + b"\0" + _blob(PARTS[name], kind)


@cache
def _bridge() -> str:
    return (Path(__file__).parent.parent / "guest" / "core" / "bridge.py").read_text()


def bridge_argv(guest: Mapping[str, Any], nonce: str) -> list[str]:
    """Return the argv, without its interpreter, that connects a new channel to a running guest."""
    return ["-ISc", _bridge(), str(guest["folder"]), str(guest["host"]), str(guest["boot"]), nonce]


def minify(source: bytes) -> bytes:
    """Return the source without docstrings, comments and annotations; lines keep their numbers, for tracebacks.

    Regular expressions that fit the style of the guest's modules take less time than parsing would save; a test
    compares the syntax trees before and after.
    """
    source = _DOCSTRING.sub(lambda found: found[1] + b'""' + b"\n" * found[0].count(b"\n"), source)
    source = _COMMENT.sub(b"", source)
    source = _FOR_CHECKERS.sub(lambda found: b"\n" * found[0].count(b"\n"), source)
    source = _FUNCTION.sub(lambda found: _ARGUMENT.sub(b"", found[0]), source)
    source = _VARIABLE.sub(lambda found: found[1], source)
    source = _RETURNED.sub(b"):", source)
    return _INDENT.sub(lambda found: b"\t" * (len(found[0]) // 4), source)


class GuestModules:
    """Sends parts to the guest on first use: tracks those that it has loaded, and those that this client needs."""

    def __init__(self, send: Callable[[bytes], None], kind: Kind) -> None:
        self._send = send
        self._kind: Kind = kind
        self._there: set[str] = set()
        self._needed: dict[str, None] = {}  # in this order: later ones import from earlier ones

    @property
    def may_outlive_client(self) -> bool:
        """Whether jobs or PTYs may have been started, which keep running without this client."""
        return not _OUTLIVE.isdisjoint(self._needed)

    def load(self, part: str) -> None:
        """Send a part, unless the guest has it."""
        self._needed[part] = None
        if part not in self._there:
            self._there.add(part)
            self._send(self._frame(part))

    def _frame(self, part: str) -> bytes:
        return wire.frame(wire.LOAD, 0, 0, part_payload(part, self._kind))

    def initial_frames(self) -> list[bytes]:
        """Return the frames that a new guest gets after its core."""
        self._needed[WORK] = None
        return [self._frame(WORK)]

    def set_loaded(self, parts: Iterable[str]) -> None:
        """Record the parts that the guest reports in WELCOME."""
        self._there = set(parts)

    def resend(self) -> None:
        """Send the needed parts again on a new connection, as the last one may have lost them."""
        for part in self._needed:
            self.load(part)
