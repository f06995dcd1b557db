"""The payload that starts a guest: an argv, and the guest's modules as the first bytes of its standard input.

The argv holds a stub of two lines, so that nothing needs installing, copying or quoting. Compiled code starts faster
than source but runs only on the interpreter version that compiled it, so both are sent unless the target runs the same
interpreter as this process. A high-latency target gets minified source alone: a new TCP connection carries 14 KB in its
first round trip, which the core just fits, and twice as much in the second.
"""

from __future__ import annotations

import importlib.util
import marshal
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec._source import find_source_loader
from hermes_exec.transport.minify import minify

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        "streams.spool",
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
        "files.worker",
        "files.service",
    ),
    "forward": ("forward.connect", "forward.forwarded_connection", "forward.service"),
    "jobs": ("jobs.job_log", "jobs.job_io", "jobs.job", "jobs.service"),
    "limits": ("limits.cgroups", "limits.rlimits", "limits.confinement", "limits.service"),
    "pty": ("pty.view", "pty.program", "pty.service"),
}
"""Parts that are sent after the core or on first use: name, and modules in import order; the last has ``install``."""

_STUB = (
    "import os\nb=b''\nwhile len(b)<%d:\n c=os.read(0,%d-len(b))\n if not c:os._exit(9)\n b+=c\n"
    "exec(b[:%d]);load(b[%d:]).main(load,%r,%r)"
)


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
