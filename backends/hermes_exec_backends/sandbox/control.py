"""The protocol between us and the launcher in a sandbox: the payload that starts it, its socket and its report.

The payload is the launcher's own source with the specification, sent once. The launcher reports what it applied before
the program starts. It is our code, but it reports from inside the sandbox, so its messages are parsed as untrusted.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import importlib.util
import marshal
import math
import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from hermes_exec._source import find_source_loader
from hermes_exec.errors import ProtocolError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_backends.sandbox.spec import Confinement

LONGEST = 64 << 10
FLAGS = "-ISBc"
"""Options of the launcher's interpreter. The launcher runs a program with the same options in place."""
_GRACE_S = 60
"""Seconds that a sandbox outlives its time limit if the process that watched it has died."""
_NEVER_RUN = 8  # MFD_NOEXEC_SEAL
_CREDENTIALS = struct.Struct("3i")
_DESCRIPTOR = 4
_FAILED = b"failed "
_NAMES = ("mounts", "landlock", "apparmor")
_PREFIXES = ("rlimit-", "lacking-")
_ROOM = "hermes_exec_backends.sandbox"
_MODULES = ("libc", "mechanisms", "launcher")
"""In import order; the last module defines ``main`` and ``inline``."""
_NESTING = ("libc", "mechanisms", "userns", "launcher")
_LOAD = (
    "k=type(sys);sys.modules['confined']=k('confined')\n"
    "for n,c,s in p:\n"
    " m=sys.modules[n]=k(n);m.__package__='confined';setattr(sys.modules['confined'],n[9:],m)\n"
    " exec(marshal.loads(c) if g==e.MAGIC_NUMBER else compile(s,n,'exec'),m.__dict__)\n"
)
_STUB = (
    "import _frozen_importlib_external as e,marshal,sys\n"
    "with open(int(sys.argv[1]),'rb') as f:g,p,a=marshal.load(f)\n" + _LOAD + "m.main(int(sys.argv[2]),a)"
)
_STREAMED = (
    "import _frozen_importlib_external as e,marshal,os,sys\n"
    "n=int(sys.argv[1]);b=b''\n"
    "while len(b)<n:\n"
    " c=os.read(0,n-len(b))\n"
    " if not c:os._exit(125)\n"
    " b+=c\n"
    "g,p,a=marshal.loads(b)\n" + _LOAD + "m.main(1,a)"
)
_INLINE = (
    "import _frozen_importlib_external as e,binascii,marshal,sys\n"
    "g,p,a=marshal.loads(binascii.a2b_base64(sys.argv[1]))\n" + _LOAD + "m.inline(a)"
)


def memory_file(data: bytes, name: str) -> int:
    """Return a descriptor, at offset 0, of a sealed file in memory that holds ``data``."""
    fd = empty_file(name)
    try:
        fill_and_seal(fd, data)
    except BaseException:
        os.close(fd)
        raise
    return fd


def empty_file(name: str) -> int:
    """Return a descriptor of an empty file in memory that can never be executed (Linux 6.3)."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NEVER_RUN)
    except OSError:
        return os.memfd_create(name, flags)


def fill_and_seal(fd: int, data: bytes) -> None:
    """Write ``data`` to an empty file in memory and seal it; its file offset stays 0."""
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], written)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)


async def wait_readable(fd: int) -> None:
    """Wait until ``fd`` is readable or at its end."""
    loop = asyncio.get_running_loop()
    now = asyncio.Event()
    loop.add_reader(fd, now.set)
    try:
        await now.wait()
    finally:
        loop.remove_reader(fd)


def launcher_argv(python: str, given: int, control: int) -> list[str]:
    """The argv that starts the launcher, which inherits both descriptors."""
    return [python, FLAGS, _STUB, str(given), str(control)]


def inline_argv(confinement: Confinement, python: str, argv: Sequence[str | bytes]) -> list[str]:
    """The argv of a process that confines itself and becomes ``argv``, where no descriptor can be inherited."""
    whole = base64.b64encode(marshal.dumps((*_program(), _to_plain(confinement, argv, mounts=False)), 2)).decode()
    return [python, "-ISc", _INLINE, whole]


def build_streamed_argv(python: str, size: int, mark: str) -> list[str]:
    """The argv that starts the launcher where no descriptor is inherited: it reads ``size`` bytes of standard input.

    ``mark`` has no effect; it identifies the process among others.
    """
    return [python, FLAGS, _STREAMED, str(size), mark]


def launcher_payload(
    confinement: Confinement,
    argv: Sequence[str],
    *,
    mounts: bool,
    nested: Sequence[str] | None = None,
    wall_s: float | None = None,
    observed: bytes = b"",
) -> bytes:
    """The payload that the launcher reads first: its own modules and the specification.

    Without ``mounts`` the runtime creates the mounts. With ``nested`` the launcher first creates these namespaces and
    makes the existing mounts read-only. With ``wall_s`` it ends by itself some time after so many seconds, for targets
    that outlive us. ``observed`` is the filter in the form that notifies us; see ``observe``.
    """
    plain = _to_plain(confinement, argv, mounts=mounts)
    plain["nested"] = None if nested is None else list(nested)
    plain["observed"] = observed
    plain["alarm"] = 0 if wall_s is None else math.ceil(wall_s) + _GRACE_S
    # Version 2 of the format is read by every Python since 2.5.
    return marshal.dumps((*_program(_MODULES if nested is None else _NESTING), plain), 2)


@cache
def _program(modules: tuple[str, ...] = _MODULES) -> tuple[bytes, tuple[tuple[str, bytes, bytes], ...]]:
    """The bytecode's magic number; and name, bytecode and source of each module. Another Python compiles the source."""
    return importlib.util.MAGIC_NUMBER, tuple(map(_module, modules))


@lru_cache(maxsize=16)
def _compile(text: str) -> tuple[bytes, bytes]:
    """The magic number and the bytecode of a program, compiled once instead of in each sandbox."""
    return importlib.util.MAGIC_NUMBER, marshal.dumps(compile(text, "<string>", "exec", dont_inherit=True))


def _module(name: str) -> tuple[str, bytes, bytes]:
    loader = find_source_loader(f"{_ROOM}.{name}")
    return f"confined.{name}", marshal.dumps(loader.get_code(loader.name)), loader.get_data(loader.path)


def _to_plain(confinement: Confinement, argv: Sequence[str | bytes], *, mounts: bool) -> dict[str, Any]:
    rules = confinement.landlock
    return {
        "argv": list(map(os.fsencode, argv)),
        "in_place": _compile(os.fsdecode(argv[2])) if list(argv[1:2]) == [FLAGS] else None,
        "env": {os.fsencode(name): os.fsencode(value) for name, value in confinement.env},
        "cwd": os.fsencode(confinement.cwd),
        "tmpfs": [
            (os.fsencode(each.target), each.size, each.inodes, each.executable, each.mode)
            for each in confinement.tmpfs
            if mounts
        ],
        "noexec": [
            (os.fsencode(each.target), each.writable) for each in confinement.binds if mounts and not each.executable
        ],
        "writable": [os.fsencode(each.target) for each in confinement.binds if each.writable],
        "masked": list(map(os.fsencode, confinement.masked)) if mounts else [],
        "readonly_proc": mounts and confinement.proc,
        "rlimits": [list(each) for each in confinement.rlimits],
        "apparmor": confinement.apparmor,
        "landlock": None
        if rules is None
        else {
            "handled_fs": rules.handled_fs,
            "handled_net": rules.handled_net,
            "scoped": rules.scoped,
            "minimum_abi": rules.minimum_abi,
            "paths": [(os.fsencode(rule.path), rule.access, rule.needed) for rule in rules.paths],
            "ports": [(rule.port, rule.access) for rule in rules.ports],
        },
        "seccomp": confinement.seccomp,
        "required": sorted(confinement.required),
    }


class LauncherSocket:
    """Our end of the launcher's socket. The kernel reports the process that sent each message."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._ours = ours
        self.theirs = theirs
        self.pid = 0
        """The process that sent the last message, by its number outside the sandbox."""
        self.listener = -1
        """The descriptor that came with a message; code that takes ownership of it sets this to -1."""

    async def receive(self) -> bytes:
        """Receive the next message; empty once the other end is closed.

        Raises:
            ProtocolError: the message is longer than any message of the launcher.
        """
        while True:
            try:
                return self._take()
            except BlockingIOError:
                await wait_readable(self._ours.fileno())
            except ConnectionError:
                return b""

    def _take(self) -> bytes:
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR)
        data, ancillary, flags, _ = self._ours.recvmsg(LONGEST, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._keep(int.from_bytes(value[:_DESCRIPTOR], sys.byteorder))
        if flags & socket.MSG_TRUNC:
            raise ProtocolError("a sandbox sent a message that is too long for the launcher's protocol")
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and data:
                self.pid = _CREDENTIALS.unpack(value)[0]
        return data

    def _keep(self, descriptor: int) -> None:
        if self.listener >= 0:
            os.close(self.listener)
        self.listener = descriptor

    def send(self, data: bytes) -> None:
        """Send a short message. It is lost if the other end is closed."""
        try:
            self._ours.send(data)
        except OSError:
            return

    def close(self) -> None:
        """Close both ends and a received descriptor that is still ours. Safe to call twice."""
        if self.listener >= 0:
            os.close(self.listener)
            self.listener = -1
        self._ours.close()
        self.theirs.close()


@dataclass(frozen=True, slots=True)
class LauncherReport:
    """The mechanisms that the launcher applied before it started the program."""

    no_new_privs: bool = True
    """Always true: without it the launcher starts nothing."""
    seccomp: bool = False
    landlock: tuple[int, int, int, int] | None = None
    """The kernel's ABI version, and the handled bits for files, ports and scopes."""
    apparmor: str = ""
    """The AppArmor profile that the program starts under."""
    rlimits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    lacking: dict[str, str] = field(default_factory=dict[str, str])
    """Requested mechanisms that were neither required nor available, and why."""


def read_report(place: str, *messages: bytes) -> LauncherReport | None:
    """Parse the launcher's two messages; None if it ended before it sent both.

    Raises:
        Unsupported: the launcher reports that a required mechanism cannot be applied.
        ProtocolError: a message is malformed.
    """
    for message in messages:
        if message.startswith(_FAILED):
            why = message.removeprefix(_FAILED).decode("utf-8", "replace")
            raise Unsupported(f"{place}: the sandbox cannot be confined as specified: {why}")
    if not all(messages):
        return None
    try:
        return parse_report(*messages)
    except ValueError as error:
        raise ProtocolError(f"{place}: {error}") from error


def parse_report(applied: bytes, ready: bytes) -> LauncherReport:
    """Parse the two messages that precede the start of the program.

    Raises:
        ValueError: a message is malformed.
    """
    head, *lines = applied.decode("utf-8").split("\n")
    if head != "applied" or ready not in {b"ready", b"ready filtered"}:
        raise ValueError("the launcher sent no report of what it applied")
    facts = dict(line.split(" ", 1) for line in lines)
    if any(name not in _NAMES and not name.startswith(_PREFIXES) for name in facts):
        raise ValueError("the launcher reported an unknown mechanism")
    landlock = tuple(map(int, facts["landlock"].split())) if "landlock" in facts else None
    rlimits = {name: tuple(map(int, value.split())) for name, value in _with_prefix(facts, "rlimit-").items()}
    if (landlock is not None and len(landlock) != 4) or any(len(bounds) != 2 for bounds in rlimits.values()):
        raise ValueError("the launcher reported malformed numbers")
    return LauncherReport(
        seccomp=ready == b"ready filtered",
        landlock=landlock,
        apparmor=facts.get("apparmor", ""),
        rlimits={name: (soft, hard) for name, (soft, hard) in rlimits.items()},
        lacking=_with_prefix(facts, "lacking-"),
    )


def _with_prefix(facts: dict[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in facts.items() if name.startswith(prefix)}
