"""From the place to this side: a file, or a tree as one stream."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError
from hermes_exec.files import failures
from hermes_exec.files.hand import Hand, a_hand
from hermes_exec.files.requests import Path, Requests, Stream, encode
from hermes_exec.files.transfer import Arrived, Meter, Options, into_folder
from hermes_exec.guest import filetransfer
from hermes_exec.guest.fileput import Replacement
from hermes_exec.guest.filesafe import PERMISSIONS, Refused, make_folders, sha256, write_all
from hermes_exec.guest.fileunpack import Receiver

if TYPE_CHECKING:
    from hermes_exec.files.info import TransferReport

_WHAT = "cannot download"
_AS_BEFORE = "the destination is as it was"
_PARTLY = "what arrived before it is there, whole; the rest is as it was"


class Target:
    """A local file that is being downloaded."""

    def __init__(self, path: bytes, parents: bool, verify: bool) -> None:
        self._new = Replacement(path, parents)
        self._digest = sha256() if verify else None
        self.size = 0
        try:
            self._new.create(0o600)
        except BaseException:
            self._new.close()
            raise

    def write(self, pieces: list[bytes]) -> None:
        """The next bytes."""
        for piece in pieces:
            write_all(self._new.fd, piece)
            if self._digest is not None:
                self._digest.update(piece)
            self.size += len(piece)

    def commit(self, told: bytes, mode: int, mtime: int) -> None:
        """All is there: compare the hash, and put it in its place."""
        if self._digest is not None and self._digest.digest() != told:
            raise Refused("the content does not have the hash that came with it")
        os.fchmod(self._new.fd, mode & PERMISSIONS)
        os.utime(self._new.fd, ns=(mtime, mtime))
        self._new.commit()

    def close(self) -> None:
        """Remove what is unfinished."""
        self._new.close()


async def download(
    requests: Requests, remote: Path, local: Path, options: Options, plan: bytes | None = None
) -> TransferReport:
    """Fetch ``remote``, whichever it is, to ``local``; of a folder only what is in the ``plan``, if there is one."""
    source, destination = encode(remote), encode(local)
    shown = os.fsdecode(source)
    arguments: dict[str, Any] = {
        "verify": options.verify,
        "totals": options.progress is not None,
        "ignore": list(options.ignore),
    }
    if plan is not None:
        arguments["plan"] = plan
    async with a_hand() as hand, requests.stream("get", source, **arguments) as stream:
        head = await stream.head(filetransfer.GOT.size)
        if len(head) < filetransfer.GOT.size:
            failures.check(await stream.call.result(), _WHAT, shown)
            raise ProtocolError("the guest sent nothing and says that all is well")
        kind, mode, mtime, size, files = filetransfer.GOT.unpack_from(head)
        meter = Meter(options.progress, size, files)
        first = head[filetransfer.GOT.size :]
        receive = _receive_tree if kind == b"d" else _receive_file
        try:
            if kind == b"d":
                return await _receive_tree(stream, hand, first, destination, options, meter, shown)
            goal = into_folder(destination, source)
            return await _receive_file(stream, hand, first, goal, options, meter, shown, (mode, mtime))
        except Refused as error:
            reason = f"{error} (refused on this side)"
            raise failures.failure(_WHAT, shown, errno.EBADMSG, reason, state=_PARTLY) from None
