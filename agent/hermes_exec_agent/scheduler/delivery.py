"""Channels that deliver messages: `file`, and those of entry points of the group ``hermes_exec.deliveries``.

An address is ``CHANNEL:REST``, such as ``file:/home/me/report.txt``. The entry point has the channel's name, and names
a subclass of `Channel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.check import nearest_name
from hermes_exec.config.paths import expand_home, to_printable
from hermes_exec.config.plugins import find_plugins, load_class, own_entry_points
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from importlib.metadata import EntryPoint

    from hermes_exec_agent.scheduler.outbox import Delivery

GROUP = "hermes_exec.deliveries"
_PLATFORMS = "hermes_exec.gateways"
"""The group of the platforms: ``PLATFORM:PERSON`` is a short form of ``message:PERSON@PLATFORM``."""
NONE = "none"
_TAIL = 8 << 20
_LOCK_S = 5.0
_SUBJECT = 400
_BEGIN = "--- "


class Channel:
    """Delivers messages to addresses of one kind."""

    @classmethod
    def check(cls, rest: str) -> str:
        """Return the part of an address after the channel's name, in the form to store.

        Raises:
            UsageError: it is not an address of this channel.
        """
        raise NotImplementedError

    @classmethod
    async def send(cls, rest: str, delivery: Delivery) -> None:
        """Deliver a message; one that was sent before, which its key shows, is not delivered again.

        Raises:
            OutcomeUnknown: it may have been delivered, so that it is not sent again.
            HermesError, OSError: it was not delivered.
        """
        raise NotImplementedError


def check_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return addresses in the form to store; ``none`` stands for no address, and has to be the only one.

    Raises:
        UsageError: one is wrong.
    """
    given = list(dict.fromkeys(addresses))
    if NONE in given:
        if len(given) > 1:
            raise UsageError("--deliver none excludes other addresses", remedy="leave it out")
        return ()
    checked: list[str] = []
    for address in given:
        name, colon, rest = address.partition(":")
        if colon and name in own_entry_points(_PLATFORMS):
            name, rest = "message", f"{rest}@{name}"
        channel = _find_channel(name, address if not colon else "")
        checked.append(f"{name}:{channel.check(rest)}")
    return tuple(dict.fromkeys(checked))


async def send_delivery(delivery: Delivery) -> None:
    """Deliver a message.

    Raises:
        OutcomeUnknown: it may have been delivered.
        HermesError, OSError: it was not delivered.
    """
    name, _, rest = delivery.address.partition(":")
    channel = await asyncio.to_thread(_find_channel, name)
    await channel.send(rest, delivery)


def _find_channel(name: str, incomplete: str = "") -> type[Channel]:
    ours = own_entry_points(GROUP)
    plugins: dict[str, EntryPoint] = {} if name in ours else find_plugins(GROUP, is_reserved=ours.__contains__)
    point = ours.get(name) or plugins.get(name)
    if point is None or incomplete:
        known = nearest_name(name, [*ours, *plugins, NONE])
        raise UsageError(
            f"--deliver {to_printable(incomplete or name)}: there is no such address",
            remedy=f"{known}{':…' if known != NONE else ''}; one of file:PATH, mail:ADDRESS, message:PERSON, none",
        )
    return load_class(point, Channel)


class FileChannel(Channel):
    """Appends messages to a file, which only this user can read if it is created."""

    @classmethod
    def check(cls, rest: str) -> str:
        """Return the absolute path."""
        path = Path(os.path.abspath(expand_home(rest)))  # noqa: PTH100  links stay as they are
        if not rest or "\0" in rest or path.is_dir():
            raise UsageError(
                f"--deliver file:{to_printable(rest)}: not a path of a file", remedy="file:/path/report.txt"
            )
        return str(path)

    @classmethod
    async def send(cls, rest: str, delivery: Delivery) -> None:
        """Append the message."""
        await asyncio.to_thread(_append, Path(rest), delivery)


def format_record(delivery: Delivery) -> bytes:
    """Return a message as a file has it: a line with its subject and its key, its text, and an empty line.

    No line of the text looks like the beginning of a record, and none moves the cursor of a terminal.
    """
    lines = [f"{_BEGIN}{flatten(delivery.subject, _SUBJECT)} [{delivery.key}]"]
    for line in delivery.body.splitlines():
        clean = "".join(each if each.isprintable() or each == "\t" else "?" for each in line)
        lines.append(f" {clean}" if clean.startswith(_BEGIN) else clean)
    return "".join(f"{line}\n" for line in [*lines, ""]).encode("utf-8", "replace")


def _append(path: Path, delivery: Delivery) -> None:
    record = format_record(delivery)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    except OSError as error:
        raise HermesError(f"{to_printable(path)}: {error.strerror}", remedy="a file in a folder that exists") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise HermesError(f"{to_printable(path)}: not a regular file", remedy="cron edit --deliver file:PATH")
        with _hold_lock(handle, path):
            if delivery.attempts > 1:
                record = _find_rest(handle, record)
            while record:
                record = record[os.write(handle, record) :]
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _hold_lock(handle: int, path: Path) -> Generator[None]:
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                break  # a file system without locks: one write appends the record
            if time.monotonic() > end:
                raise HermesError(f"{to_printable(path)}: another program holds its lock") from error
            time.sleep(0.01)  # flock has no time limit of its own
    yield  # closing the file releases it


def _find_rest(handle: int, record: bytes) -> bytes:
    """Return what an earlier attempt, which may have been killed at any moment, did not write of the record."""
    size = os.fstat(handle).st_size
    begin = max(size - _TAIL, 0)
    tail = os.pread(handle, size - begin, begin)
    head = record.split(b"\n", 1)[0] + b"\n"
    at = tail.rfind(head)
    if at >= 0:
        written = tail[at : at + len(record)]
        if written == record:
            return b""
        if record.startswith(written):  # it is the end of the file
            return record[len(written) :]
        return record
    begun = tail.rpartition(b"\n")[2]  # killed within the first line
    return record[len(begun) :] if head.startswith(begun) else record
