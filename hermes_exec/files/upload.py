"""Uploads from this machine to the target: a file, or a tree as one stream."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import UsageError
from hermes_exec.files import errors
from hermes_exec.files.bulk_transfer import send, transfer_mode
from hermes_exec.files.file_thread import FileThread, open_file_thread
from hermes_exec.files.requests import FileRequests, FileStream, Path, encode_path
from hermes_exec.files.transfer import (
    LOCAL_CHUNK,
    ProgressMeter,
    TransferSettings,
    TreeOutcome,
    resolve_destination,
    take_blocks,
)
from hermes_exec.guest.files import atomic_writer, kernel_copy, staging, tree_scan, tree_stream
from hermes_exec.guest.files.safe_paths import CHUNK, sha256

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from hermes_exec.backend import BulkTransfer
    from hermes_exec.files.info import TransferReport

_PIECE = 4 * CHUNK
_WHAT = "cannot upload to"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
RESUMABLE = kernel_copy.WORTH
"""Bytes from which on the upload of a single file resumes an earlier one, and hands the file's descriptor off."""
_AS_BEFORE = "the destination is as it was"
_PARTLY = "what arrived before it is there, whole; the rest is as it was"


class UploadSource:
    """A local file that is read ahead and hashed in the file thread."""

    def __init__(self, path: bytes) -> None:
        self.fd = os.open(path, _READ)
        self.info = os.fstat(self.fd)
        self.left = self.info.st_size
        self.digest = sha256()

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.info.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.info.st_mode)

    def read(self, *, verify: bool, most: int = _PIECE) -> bytes:
        """Return the next bytes, up to the size that the file had when it was opened; empty after the last."""
        if not self.left:
            return b""
        data = os.read(self.fd, min(self.left, most))
        if not data:
            raise OSError(errno.ESTALE, "it became shorter while it was read")
        self.left -= len(data)
        if verify:
            self.digest.update(data)
        return data

    def skip_if_same(self, size: int, told: bytes) -> int:
        """Continue after the first ``size`` bytes if their hash is ``told``, else at the start; return the position."""
        digest = sha256()
        left = size
        while left and (data := os.read(self.fd, min(left, LOCAL_CHUNK))):
            digest.update(data)
            left -= len(data)
        if left or digest.digest() != told:
            os.lseek(self.fd, 0, os.SEEK_SET)
            return 0
        self.digest = digest
        self.left -= size
        return size

    def rewind(self) -> None:
        """Start again at the beginning of the file."""
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.left, self.digest = self.info.st_size, sha256()

    def close(self) -> None:
        """Close the file, unless a sender did."""
        if self.fd >= 0:
            os.close(self.fd)


async def upload(requests: FileRequests, local: Path, remote: Path, options: TransferSettings) -> TransferReport:
    """Send the file or tree ``local`` to ``remote``."""
    path, destination = encode_path(local, "local"), encode_path(remote, "remote")
    async with open_file_thread() as hand:
        try:
            source = await hand.acquire(UploadSource.close, UploadSource, path)
        except OSError as error:
            raise errors.local_path_error("cannot read", os.fsdecode(path), error) from None
        if source.is_folder:
            totals = (0, 0)
            if options.progress is not None:
                totals = await hand.run(tree_scan.measure, source.fd, options.parse_ignore())
            sender = tree_stream.TreeSender(source.fd, options.verify)
            source.fd = -1
            hand.set_final_step(sender.close)
            blocks = sender.walk(options.parse_ignore())
            meter = ProgressMeter(options.progress, totals[1], totals[0])
            return await send_tree(TreeRequest(requests, destination, options, meter), hand, sender, blocks)
        if not source.is_file:
            raise UsageError(f"{os.fsdecode(path)} is neither a file nor a folder")
        return await _send_file(requests, hand, source, resolve_destination(destination, path), options)


async def _send_file(
    requests: FileRequests, hand: FileThread, source: UploadSource, destination: bytes, options: TransferSettings
) -> TransferReport:
    size = source.info.st_size
    arguments: dict[str, Any] = {
        "size": size,
        "mode": source.info.st_mode & 0o777,
        "mtime": source.info.st_mtime_ns,
        "parents": options.parents,
        "verify": options.verify,
        "resume": size >= RESUMABLE,
        "near": kernel_copy.handoff_fields(source.fd) if requests.shares_host and options.progress is None else None,
    }
    meter = ProgressMeter(options.progress, size, 1)
    mover = requests.bulk_transfer if size >= staging.WORTH else None
    if not await _put(requests, destination, arguments, FileUpload(hand, source, meter, options, mover)):
        await hand.run(source.rewind)  # after the read that is still running
        await _put(requests, destination, arguments, FileUpload(hand, source, meter, options, None))
    meter.update(size, 1)
    return TreeOutcome(1, size, [], []).to_report(_WHAT, os.fsdecode(destination), options.links)


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file to send: by ``mover``, or over the link if it is None."""

    hand: FileThread
    source: UploadSource
    meter: ProgressMeter
    options: TransferSettings
    mover: BulkTransfer | None


async def _put(requests: FileRequests, destination: bytes, arguments: dict[str, Any], sending: FileUpload) -> bool:
    """Send a file; False when the target does not see the mover's data, and the destination is unchanged."""
    source = sending.source
    async with requests.stream("put", destination, beside=transfer_mode(sending.mover), **arguments) as stream:
        taken = source.info.st_size >= RESUMABLE and await _agree(stream, sending.hand, source)
        try:
            if not taken:
                await _send_content(stream, sending)
        except OSError as error:
            raise errors.local_path_error("cannot read", "the file", error, state=_AS_BEFORE) from None
        answer = await stream.call.result()
        if not answer.get("elsewhere"):
            errors.raise_for_answer(answer, _WHAT, os.fsdecode(destination), state=_AS_BEFORE)
    return not answer.get("elsewhere")


async def _agree(stream: FileStream, hand: FileThread, source: UploadSource) -> bool:
    """Agree on where to begin: after the bytes that an earlier upload left, if this file begins with them.

    Return True if nothing needs to be sent, since the guest has copied the file itself.
    """
    offer = await stream.read_head(atomic_writer.OFFER.size)
    if len(offer) == atomic_writer.OFFER.size:
        size, told = atomic_writer.OFFER.unpack(offer)
        if told == kernel_copy.COPIED:
            return True
        start = await hand.run(source.skip_if_same, min(size, source.info.st_size), told)
        await stream.call.write(atomic_writer.START.pack(start))
    return False


async def _send_content(stream: FileStream, sending: FileUpload) -> None:
    source, mover = sending.source, sending.mover
    verify = sending.options.verify or mover is not None
    done = source.info.st_size - source.left

    def count_sent(count: int) -> None:
        nonlocal done
        done += count
        sending.meter.update(done, 0)

    async def pieces() -> AsyncGenerator[bytes]:
        most = _PIECE if mover is None else mover.piece
        ahead = sending.hand.submit(source.read, verify=verify, most=most)
        while (piece := await ahead) and not stream.is_answered:
            ahead = sending.hand.submit(source.read, verify=verify, most=most)
            yield piece

    if mover is not None:
        verify = await send(stream, mover, pieces(), count_sent)
    else:
        async for piece in pieces():
            await stream.call.write(piece)
            count_sent(len(piece))
    if verify:
        await stream.call.write(source.digest.digest())
    stream.call.write_eof()


@dataclass(frozen=True, slots=True)
class TreeRequest:
    """The destination of a tree, and the options of its transfer."""

    requests: FileRequests
    destination: bytes
    options: TransferSettings
    meter: ProgressMeter


async def send_tree(
    request: TreeRequest, hand: FileThread, sender: tree_stream.TreeSender, blocks: Iterator[bytes]
) -> TransferReport:
    """Send the blocks that a sender produces."""
    shown = os.fsdecode(request.destination)
    options = request.options
    arguments: dict[str, Any] = {
        "parents": options.parents,
        "verify": options.verify,
        "keep_outside": options.links == "keep",
    }
    async with request.requests.stream("put_tree", request.destination, **arguments) as stream:
        ahead = hand.submit(take_blocks, blocks)
        while (parts := await ahead) and not stream.is_answered:
            done = sender.bytes, sender.files
            ahead = hand.submit(take_blocks, blocks)
            for part in parts:
                await stream.call.write(part)
            request.meter.update(*done)
        stream.call.write_eof()
        answer = await stream.call.result()
        errors.raise_for_answer(answer, _WHAT, shown, state=_PARTLY)
    arrived = TreeOutcome.from_answer(answer)
    request.meter.update(arrived.size, arrived.files)
    return arrived.to_report(_WHAT, shown, options.links)
