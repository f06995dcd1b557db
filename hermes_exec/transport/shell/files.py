"""Whole files, read and written by the target's own ``cat``."""

from __future__ import annotations

import errno
import os
import secrets
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec.transport.shell import scripts
from hermes_exec.transport.shell.target import encode_argument, resolve_path

if TYPE_CHECKING:
    from hermes_exec.transport.shell.target import ScriptReply, ShellTarget

_TOLD = {100 + number: number for number in (errno.ENOENT, errno.EACCES, errno.EISDIR)}


async def read(place: ShellTarget, path: str | bytes | os.PathLike[str]) -> bytes:
    """Return the bytes of a file; a relative path starts at the terminal's folder.

    Raises:
        TransferError: it cannot be read; ``errno`` is ENOENT, EACCES, EISDIR or EIO.
        OutcomeUnknown: the target was lost.
    """
    target = _path(place, path)
    reply = await place.run_script(scripts.READ, encode_argument(target))
    _check(reply, "cannot read", target)
    return reply.stdout


async def write(place: ShellTarget, path: str | bytes | os.PathLike[str], data: bytes) -> None:
    """Replace the content of a file by ``data`` atomically; a link there becomes a file.

    A file that existed keeps its permissions. Its folder must be writable.

    Raises:
        TransferError: it cannot be written, and is unchanged; ``errno`` as for ``read``.
        OutcomeUnknown: the target was lost; the file is unchanged or has all of ``data``.
    """
    await store(place, _path(place, path), data)


async def store(place: ShellTarget, target: bytes, data: bytes, *, private: bool = False) -> None:
    """Write a file as ``write`` does; ``private`` creates one that only its owner can read."""
    folder = target.rpartition(b"/")[0]
    beside = folder + b"/.hermes-exec-" + secrets.token_hex(16).encode()
    umask = "077" if private else ""
    reply = await place.run_script(
        scripts.STORE, encode_argument(target), encode_argument(beside), str(len(data)), umask, data=data
    )
    _check(reply, "cannot write", target)


def _path(place: ShellTarget, path: str | bytes | os.PathLike[str]) -> bytes:
    target = resolve_path(os.fsencode(path), place.cwd)
    if not target or b"\0" in target:
        raise UsageError(f"{path!r} cannot be a path")
    return target


def _check(reply: ScriptReply, what: str, target: bytes) -> None:
    code = reply.exit.code
    if code != 0:
        from hermes_exec.files.errors import path_error  # imports the whole file transfer code

        number = _TOLD.get(code or 0, errno.EIO)
        why = reply.failure if number == errno.EIO else os.strerror(number)
        raise path_error(what, os.fsdecode(target), number, why)
