"""Our end of the launcher's socket, and what it is sent: its own source with the specification, once, by a file."""

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
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_backends.sandbox.spec import Confinement

LONGEST = 64 << 10
FLAGS = "-ISBc"
"""Of the launcher's interpreter. A program with them, for the same one, is a text that it runs in place."""
_GRACE_S = 60
"""How much longer than its limit a sandbox lives whose watcher has died."""
_NEVER_RUN = 8  # MFD_NOEXEC_SEAL
_CREDENTIALS = struct.Struct("3i")
_DESCRIPTOR = 4
_FAILED = b"failed "
_NAMES = ("mounts", "landlock", "apparmor")
_PREFIXES = ("rlimit-", "lacking-")
_ROOM = "hermes_exec_backends.sandbox"
_MODULES = ("libc", "mechanisms", "launcher")
"""In the order of their imports; the last one has ``main`` and ``inline``."""
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
    """A descriptor of a file in memory that nobody can change any more, at its beginning."""
    fd = empty_file(name)
    try:
        fill(fd, data)
    except BaseException:
        os.close(fd)
        raise
    return fd


def empty_file(name: str) -> int:
    """A descriptor of a file in memory that is to be filled, and can never be started as a program (Linux 6.3)."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NEVER_RUN)
    except OSError:
        return os.memfd_create(name, flags)


def fill(fd: int, data: bytes) -> None:
    """Fill an empty file in memory, whose place for reading stays the beginning; nobody can change it any more."""
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], written)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)


async def readable(fd: int) -> None:
    """Wait until there is something to read, or an end."""
    loop = asyncio.get_running_loop()
    now = asyncio.Event()
    loop.add_reader(fd, now.set)
    try:
        await now.wait()
    finally:
        loop.remove_reader(fd)


def launcher(python: str, given: int, control: int) -> list[str]:
    """The argv that starts the launcher; both descriptors are inherited."""
    return [python, FLAGS, _STUB, str(given), str(control)]


def inline(confinement: Confinement, python: str, argv: Sequence[str | bytes]) -> list[str]:
    """The argv that confines a process in front of ``argv`` where no descriptor can be handed over."""
    whole = base64.b64encode(marshal.dumps((*_program(), _plain(confinement, argv, mounts=False)), 2)).decode()
    return [python, "-ISc", _INLINE, whole]


def streamed(python: str, size: int, mark: str) -> list[str]:
    """The argv that starts it where nothing is inherited: ``size`` bytes come on standard input.

    ``mark`` does nothing, and tells the process from others.
    """
    return [python, FLAGS, _STREAMED, str(size), mark]


def given(
    confinement: Confinement,
    argv: Sequence[str],
    *,
    mounts: bool,
    nested: Sequence[str] | None = None,
    wall_s: float | None = None,
    observed: bytes = b"",
) -> bytes:
    """What the launcher reads first: itself and what it is to do; without ``mounts`` those are made by others.

    With ``nested`` it makes these namespaces first, and what it then finds mounted becomes read-only. With ``wall_s``
    it ends by itself some time after these seconds, for places that do not end with us. ``observed`` is the program's
    filter in the form that asks us; see ``observe``.
    """
    plain = _plain(confinement, argv, mounts=mounts)
    plain["nested"] = None if nested is None else list(nested)
    plain["observed"] = observed
    plain["alarm"] = 0 if wall_s is None else math.ceil(wall_s) + _GRACE_S
    # Version 2 of the format is read by every Python since 2.5.
    return marshal.dumps((*_program(_MODULES if nested is None else _NESTING), plain), 2)


@cache
def _program(modules: tuple[str, ...] = _MODULES) -> tuple[bytes, tuple[tuple[str, bytes, bytes], ...]]:
    """The number of the format of its code; and of each module its name, its code, and its source for others."""
    return importlib.util.MAGIC_NUMBER, tuple(map(_module, modules))


@lru_cache(maxsize=16)
def _compiled(text: str) -> tuple[bytes, bytes]:
    """The number of the format, and the code, of a program of ours: made once, and not in each sandbox."""
    return importlib.util.MAGIC_NUMBER, marshal.dumps(compile(text, "<string>", "exec", dont_inherit=True))


def _module(name: str) -> tuple[str, bytes, bytes]:
    spec = importlib.util.find_spec(f"{_ROOM}.{name}")
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise ImportError(f"the launcher's module {name} is not a source file")
    source = spec.loader.get_data(spec.loader.get_filename(spec.name))
    return f"confined.{name}", marshal.dumps(spec.loader.get_code(spec.name)), source


def _plain(confinement: Confinement, argv: Sequence[str | bytes], *, mounts: bool) -> dict[str, Any]:
    rules = confinement.landlock
    return {
        "argv": list(map(os.fsencode, argv)),
        "in_place": _compiled(os.fsdecode(argv[2])) if list(argv[1:2]) == [FLAGS] else None,
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


class Control:
    """The socket: messages from inside, each with the process that sent it, as the kernel says."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._ours = ours
        self.theirs = theirs
        self.pid = 0
        """The process that sent the last message, by its number here."""
        self.listener = -1
        """The descriptor that came with a message; whoever takes it over sets this to -1."""

    async def receive(self) -> bytes:
        """The next message; empty when nobody is there any more.

        Raises:
            ProtocolError: it is longer than any of the launcher's.
        """
        while True:
            try:
                return self._take()
            except BlockingIOError:
                await readable(self._ours.fileno())
            except ConnectionError:
                return b""

    def _take(self) -> bytes:
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR)
        data, ancillary, flags, _ = self._ours.recvmsg(LONGEST, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._keep(int.from_bytes(value[:_DESCRIPTOR], sys.byteorder))
        if flags & socket.MSG_TRUNC:
            raise ProtocolError("a sandbox sent a message that is longer than any of the launcher's")
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and data:
                self.pid = _CREDENTIALS.unpack(value)[0]
        return data

    def _keep(self, descriptor: int) -> None:
        if self.listener >= 0:
            os.close(self.listener)
        self.listener = descriptor

    def send(self, data: bytes) -> None:
        """Send a short message; one that nobody takes is lost."""
        try:
            self._ours.send(data)
        except OSError:
            return

    def close(self) -> None:
        """Close both ends, as far as they are open, and a descriptor that nobody took over."""
        if self.listener >= 0:
            os.close(self.listener)
            self.listener = -1
        self._ours.close()
        self.theirs.close()


@dataclass(frozen=True, slots=True)
class Report:
    """What was applied before the program was started."""

    no_new_privs: bool = True
    """Always: nothing is started without it."""
    seccomp: bool = False
    landlock: tuple[int, int, int, int] | None = None
    """The kernel's version of it, and the bits that are handled: of files, of ports, and scopes."""
    apparmor: str = ""
    """The profile that the program starts under."""
    rlimits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    lacking: dict[str, str] = field(default_factory=dict[str, str])
    """Mechanisms that were asked for, not required, and not to be had; and why."""


def read_report(place: str, *messages: bytes) -> Report | None:
    """What was applied, by the launcher's two messages; None where it ended before it said both.

    Raises:
        Unsupported: it says that something required cannot be applied.
        ProtocolError: that is not what a launcher says.
    """
    for message in messages:
        if message.startswith(_FAILED):
            why = message.removeprefix(_FAILED).decode("utf-8", "replace")
            raise Unsupported(f"{place}: the sandbox cannot be confined as specified: {why}")
    if not all(messages):
        return None
    try:
        return parse(*messages)
    except ValueError as error:
        raise ProtocolError(f"{place}: {error}") from error


def parse(applied: bytes, ready: bytes) -> Report:
    """Read the two messages that come before the program is started.

    Raises:
        ValueError: that is not what a launcher says.
    """
    head, *lines = applied.decode("utf-8").split("\n")
    if head != "applied" or ready not in {b"ready", b"ready filtered"}:
        raise ValueError("the launcher said something else than what it applied")
    said = dict(line.split(" ", 1) for line in lines)
    if any(name not in _NAMES and not name.startswith(_PREFIXES) for name in said):
        raise ValueError("the launcher told of something that it does not apply")
    landlock = tuple(map(int, said["landlock"].split())) if "landlock" in said else None
    rlimits = {name: tuple(map(int, value.split())) for name, value in _below(said, "rlimit-").items()}
    if (landlock is not None and len(landlock) != 4) or any(len(bounds) != 2 for bounds in rlimits.values()):
        raise ValueError("the launcher told numbers that mean nothing")
    return Report(
        seccomp=ready == b"ready filtered",
        landlock=landlock,
        apparmor=said.get("apparmor", ""),
        rlimits={name: (soft, hard) for name, (soft, hard) in rlimits.items()},
        lacking=_below(said, "lacking-"),
    )


def _below(said: dict[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in said.items() if name.startswith(prefix)}
