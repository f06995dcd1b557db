"""Downloads from the target to this machine: a file, or a tree as one stream."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, ProtocolError
from hermes_exec.files import errors
from hermes_exec.files.bulk_transfer import fetch
from hermes_exec.files.file_thread import FileThread, open_file_thread
from hermes_exec.files.info import TransferReport
from hermes_exec.files.requests import FileRequests, FileStream, Path, encode_path, require_field
from hermes_exec.files.transfer import ProgressMeter, TransferSettings, TreeOutcome, resolve_destination
from hermes_exec.guest.files import kernel_copy, transfers
from hermes_exec.guest.files.atomic_writer import AtomicWriter
from hermes_exec.guest.files.safe_paths import PERMISSIONS, InvalidTreeData, make_folders_above, sha256, write_all
from hermes_exec.guest.files.tree_receiver import TreeReceiver

if TYPE_CHECKING:
    from hermes_exec.backend import BulkTransfer

_WHAT = "cannot download"
_AS_BEFORE = "the destination is as it was"
_PARTLY = "what arrived before it is there, whole; the rest is as it was"


class PartialFile:
    """A local file that is being downloaded."""

    def __init__(self, path: bytes, *, parents: bool, verify: bool) -> None:
        self._new = AtomicWriter(path, parents)
        self._digest = sha256() if verify else None
        self.size = 0
        try:
            self._new.create(0o600)
        except BaseException:
            self._new.close()
            raise

    def write(self, pieces: list[bytes]) -> None:
        """Append the next bytes."""
        for piece in pieces:
            write_all(self._new.fd, piece)
            if self._digest is not None:
                self._digest.update(piece)
            self.size += len(piece)

    def borrow(self, lent: tuple[int, ...], size: int) -> bool:
        """Have the kernel copy the whole file; return whether it could."""
        if not kernel_copy.copy_from(lent, self._new.fd, size):
            return False
        self._digest, self.size = None, size
        return True

    def restart(self) -> None:
        """Discard the bytes that were received."""
        os.ftruncate(self._new.fd, 0)
        os.lseek(self._new.fd, 0, os.SEEK_SET)
        self._digest, self.size = sha256(), 0

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of the bytes that were received."""
        return bytes(self._digest.digest()) if self._digest is not None else b""

    def commit(self, told: bytes, size: int, mode: int, mtime: int) -> None:
        """Compare size and hash of the complete file, and move it to its path."""
        if self.size != size:
            raise InvalidTreeData("the content does not have the size that was sent")
        if self._digest is not None and self._digest.digest() != told:
            raise InvalidTreeData("the content does not match the hash that was sent")
        os.fchmod(self._new.fd, mode & PERMISSIONS)
        os.utime(self._new.fd, ns=(mtime, mtime))
        self._new.commit()

    def close(self) -> None:
        """Remove an unfinished file."""
        self._new.close()


class DownloadSink:
    """The destination of a file that is being downloaded."""

    def __init__(self, hand: FileThread, target: PartialFile, meter: ProgressMeter) -> None:
        self._hand = hand
        self._target = target
        self._meter = meter

    @property
    def size(self) -> int:
        """The number of bytes received."""
        return self._target.size

    async def take(self, pieces: list[bytes]) -> None:
        """Append the next bytes."""
        await self._hand.run(self._target.write, pieces)
        self._meter.update(self._target.size, 0)

    async def restart(self) -> None:
        """Discard the bytes that were received."""
        await self._hand.run(self._target.restart)

    async def digest(self) -> bytes:
        """Return the SHA-256 of the bytes that were received."""
        return self._target.digest


class Download:
    """One running download: its source, its destination and its progress."""

    def __init__(
        self,
        stream: FileStream,
        hand: FileThread,
        options: TransferSettings,
        source: bytes,
        local: bytes,
        mover: BulkTransfer | None,
    ) -> None:
        self._stream = stream
        self._mover = mover
        self._hand = hand
        self._options = options
        self._source = source
        self._local = local
        self._shown = os.fsdecode(source)

    async def run(self) -> TransferReport:
        """Download the file or tree."""
        size = transfers.GOT.size
        head = await self._stream.read_exactly(size)
        if len(head) < size:
            await self._answer(_AS_BEFORE)
            raise ProtocolError("the guest sent nothing and says that all is well")
        kind, mode, mtime, total_bytes, total_files = transfers.GOT.unpack(head)
        meter = ProgressMeter(self._options.progress, total_bytes, total_files)
        is_tree = kind == b"d"
        try:
            if is_tree:
                return await self._tree(meter)
            return await self._file(kind, meter, mode, mtime, total_bytes)
        except InvalidTreeData as error:
            reason = f"{error} (refused on this side)"
            state = _PARTLY if is_tree else _AS_BEFORE
            raise errors.path_error(_WHAT, self._shown, errno.EBADMSG, reason, state=state) from None
        except OSError as error:
            if isinstance(error, HermesError):
                raise
            place = os.fsdecode(self._local)
            if error.filename and is_tree:
                place = os.path.join(place, os.fsdecode(error.filename))  # noqa: PTH118  which may be whole already
            state = _PARTLY if is_tree else _AS_BEFORE
            raise errors.local_path_error("cannot write", place, error, state=state) from None

    async def _answer(self, state: str) -> dict[str, Any]:
        answer = await self._stream.call.result()
        errors.raise_for_answer(answer, _WHAT, self._shown, state=state)
        return answer

    async def _file(self, kind: bytes, meter: ProgressMeter, mode: int, mtime: int, size: int) -> TransferReport:
        goal = resolve_destination(self._local, self._source)
        options = self._options
        verify = options.verify or self._mover is not None
        target = await self._hand.acquire(PartialFile.close, PartialFile, goal, parents=options.parents, verify=verify)
        arrival = DownloadSink(self._hand, target, meter)
        if kind == b"n":
            await self._borrow(target, size)
        elif kind == b"b" and self._mover is not None:
            await fetch(self._stream, self._mover, arrival)
        await self._stream.consume_with(arrival.take)
        answer = await self._answer(_AS_BEFORE)
        told, there = require_field(answer, "sha256", bytes), require_field(answer, "size", int)
        await self._hand.run(target.commit, told, there, mode, mtime)
        meter.update(target.size, 1)
        return TransferReport(1, target.size)

    async def _borrow(self, target: PartialFile, size: int) -> None:
        """Copy a file whose descriptor the guest hands off; if that fails, ask the guest to send it."""
        told = await self._stream.read_exactly(transfers.LENT.size)
        lent = transfers.LENT.unpack(told.ljust(transfers.LENT.size, b"\0"))
        taken = await self._hand.run(target.borrow, lent, size)
        await self._stream.call.write(b"\0" if taken else b"\1")
        self._stream.call.write_eof()

    async def _tree(self, meter: ProgressMeter) -> TransferReport:
        receiver = await self._hand.acquire(TreeReceiver.close, self._open)

        async def take(pieces: list[bytes]) -> None:
            await self._hand.run(_feed, receiver, pieces)
            meter.update(receiver.writer.bytes, receiver.writer.files)

        await self._stream.consume_with(take)
        await self._answer(_PARTLY)
        receiver.finish()
        meter.update(receiver.writer.bytes, receiver.writer.files)
        return TreeOutcome.from_receiver(receiver).to_report(_WHAT, self._shown, self._options.links)

    def _open(self) -> TreeReceiver:
        if self._options.parents:
            make_folders_above(self._local)
        root, fresh = transfers.open_root(self._local)
        return TreeReceiver(root, fresh, self._options.verify, self._options.links == "keep")


def _feed(receiver: TreeReceiver, pieces: list[bytes]) -> None:
    for piece in pieces:
        receiver.feed(piece)


async def download(
    requests: FileRequests, remote: Path, local: Path, options: TransferSettings, plan: bytes | None = None
) -> TransferReport:
    """Fetch the file or tree ``remote`` to ``local``; with a ``plan``, only the paths of a folder that it lists."""
    source, destination = encode_path(remote, "remote"), encode_path(local, "local")
    mover = requests.bulk_transfer if plan is None else None
    arguments: dict[str, Any] = {
        "verify": options.verify or mover is not None,
        "beside": mover is not None,
        "totals": options.progress is not None and plan is None,
        "near": requests.shares_host and options.progress is None and plan is None,
        "ignore": list(options.ignore),
    }
    if plan is not None:
        arguments["plan"] = plan
    async with open_file_thread() as hand, requests.stream("get", source, **arguments) as stream:
        return await Download(stream, hand, options, source, destination, mover).run()
