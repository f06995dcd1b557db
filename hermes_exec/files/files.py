"""Files of the target: read, write, list, move, transfer, sync."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_exec._arguments import check_calls
from hermes_exec.errors import ProtocolError, TransferError, UsageError
from hermes_exec.files import errors
from hermes_exec.files.bulk_transfer import fetch_all, send_all, transfer_mode
from hermes_exec.files.info import FileInfo, FileList, Kind, ResolvedPath
from hermes_exec.files.requests import FileRequests, Path, encode_path, require_field, validate_content
from hermes_exec.files.transfer import LOCAL_CHUNK, Links, TransferSettings, encode_patterns
from hermes_exec.guest.files import staging
from hermes_exec.guest.files.operations import LISTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec.backend import BulkTransfer
    from hermes_exec.files.info import Progress, SyncReport, TransferReport
    from hermes_exec.files.sync import Direction
    from hermes_exec.transport.link import Link


def parse_file_info(path: str, row: list[Any]) -> FileInfo:
    """Parse one file's row: mode, size, mtime, owner, group and a link's target."""
    if len(row) != 6 or not all(isinstance(number, int) for number in row[:5]):
        raise ProtocolError("the guest's answer is invalid")
    mode, size, mtime_ns, uid, gid, target = row
    leads = os.fsdecode(target) if isinstance(target, bytes) else None
    return FileInfo(path, Kind.of(mode), size, mode & 0o7777, mtime_ns, uid, gid, leads)


def parse_resolved_path(answer: Mapping[str, Any]) -> ResolvedPath:
    """Parse the answer about where a path leads."""
    real, source, links, id = (answer.get(name) for name in ("real", "source", "links", "id"))
    if not (isinstance(real, bytes) and isinstance(source, bytes) and isinstance(links, int) and isinstance(id, bytes)):
        raise ProtocolError("the guest's answer is invalid")
    return ResolvedPath(os.fsdecode(real), os.fsdecode(source), links, id.decode("ascii", "replace"))


def parse_listing(folder: bytes, data: bytes) -> list[FileInfo]:
    """Parse the packed names of a folder; their paths begin with ``folder`` as it was given."""
    prefix = b"" if folder == b"." else folder.rstrip(b"/") + b"/"
    found = FileList()
    at = 0
    while at < len(data):
        if at + LISTED.size > len(data):
            raise ProtocolError("the listing is cut short")
        length, *row = LISTED.unpack_from(data, at)
        at += LISTED.size
        name, link, target = data[at : at + length].partition(b"/")
        at += length
        found.append(parse_file_info(os.fsdecode(prefix + name), [*row, target if link else None]))
    return found


def _check_range(offset: int, length: int | None) -> None:
    if not all(0 <= number < 1 << 63 for number in (offset, length or 0)):
        raise UsageError(f"offset {offset}, length {length}", remedy="numbers from 0 to 2**63 - 1")


def _check_mode(mode: int | None) -> None:
    if mode is not None and mode not in range(0o10000):
        raise UsageError(f"mode={mode!r} is no file mode", remedy="a number such as 0o644")


@check_calls
class Files:
    """The files of one target. A relative path is seen from ``default_cwd``, else from the terminal's folder.

    Every method raises TransferError, which has the target's ``errno``, the path as ``filename`` and as
    ``state`` what is true now; it also is the built-in error for that number, so that
    ``except FileNotFoundError`` works. OutcomeUnknown says that the target was lost meanwhile: a file then
    is as it was or as it was to be, never in between.
    """

    def __init__(self, link: Link, default_cwd: str | None = None) -> None:
        self._requests = FileRequests(link, default_cwd)
        self._target = link.target

    def __repr__(self) -> str:
        """Return the target."""
        return f"<Files of {self._target}>"

    async def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """The content of a file, or ``length`` bytes of it from ``offset`` on; fewer when it ends before."""
        _check_range(offset, length)
        mover = self._requests.bulk_transfer if offset == 0 and length is None else None
        if mover is not None and (whole := await self._read_beside(mover, path)) is not None:
            return whole
        async with self._requests.stream("read", path, offset=offset, length=length, beside=False) as stream:
            data = await stream.read_all()
            errors.raise_for_answer(await stream.call.result(), "cannot read", os.fsdecode(path))
        return data

    async def _read_beside(self, mover: BulkTransfer, path: Path) -> bytes | None:
        """Read the whole file by bulk transfer; None where that damaged it."""
        async with self._requests.stream("read", path, offset=0, length=None, beside=True) as stream:
            data = await fetch_all(stream, mover)
            errors.raise_for_answer(await stream.call.result(), "cannot read", os.fsdecode(path))
        return data

    async def resolve(self, path: Path) -> ResolvedPath:
        """Where a path leads: links are followed, and bind mounts named. Nothing is opened for reading."""
        answer = await self._requests.request("resolve", "cannot read", path)
        return parse_resolved_path(answer)

    async def read_resolved(self, path: Path, offset: int = 0, length: int | None = None) -> tuple[ResolvedPath, bytes]:
        """Read as ``read`` does, and say which file that was: both are of the same open file."""
        _check_range(offset, length)
        async with self._requests.stream(
            "read", path, offset=offset, length=length, beside=False, trace=True
        ) as stream:
            data = await stream.read_all()
            answer = await stream.call.result()
            errors.raise_for_answer(answer, "cannot read", os.fsdecode(path))
        return parse_resolved_path(answer), data

    async def write(
        self,
        path: Path,
        data: bytes,
        *,
        mode: int | None = None,
        append: bool = False,
        parents: bool = False,
        durable: bool = False,
    ) -> None:
        """Replace a file's content atomically: a reader sees the old or the new content, whole.

        It keeps its owner (where the user there may give files away) and its mode unless ``mode`` is
        given. A link is followed. ``append`` adds to the file instead; a failure takes back what was
        added. ``parents`` makes missing folders, ``durable`` returns only when the disk has it.
        """
        validate_content(data)
        _check_mode(mode)
        options = {"mode": mode, "append": append, "parents": parents, "durable": durable, "size": len(data)}
        mover = self._requests.bulk_transfer if len(data) >= staging.WORTH and not append else None
        if mover is not None and await self._write_beside(mover, path, data, options):
            return
        async with self._requests.stream("write", path, beside=False, **options) as stream:
            view = memoryview(data)
            for start in range(0, len(data), LOCAL_CHUNK):
                await stream.call.write(bytes(view[start : start + LOCAL_CHUNK]))
            stream.call.write_eof()
            errors.raise_for_answer(await stream.call.result(), "cannot write", os.fsdecode(path))

    async def _write_beside(self, mover: BulkTransfer, path: Path, data: bytes, options: dict[str, Any]) -> bool:
        """Write by bulk transfer; False when the target does not see the uploaded data, and nothing was written."""
        async with self._requests.stream("write", path, beside=transfer_mode(mover), **options) as stream:
            await send_all(stream, mover, data)
            answer = await stream.call.result()
            if not answer.get("elsewhere"):
                errors.raise_for_answer(answer, "cannot write", os.fsdecode(path))
        return not answer.get("elsewhere")

    async def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """What a path leads to; with ``follow=False`` a link itself."""
        answer = await self._requests.request("stat", "cannot look at", path, follow=follow)
        return parse_file_info(os.fsdecode(path), require_field(answer, "info", list))

    async def exists(self, path: Path) -> bool:
        """Whether a path leads to something; a link to nothing does not."""
        try:
            await self._requests.request("stat", "cannot look at", path, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def list(self, path: Path = ".") -> Sequence[FileInfo]:
        """What is in a folder, sorted by name; links are not followed."""
        async with self._requests.stream("list", path) as stream:
            data = await stream.read_all()
            errors.raise_for_answer(await stream.call.result(), "cannot list", os.fsdecode(path))
        return parse_listing(os.fsencode(path), data)

    async def glob(self, pattern: Path, *, limit: int = 100_000) -> Sequence[str]:
        """The paths that match, sorted: ``*``, ``?``, ``[…]`` within a name, ``**`` for any folders between.

        As in a shell, a name that begins with a dot matches only a pattern that does, and ``**`` goes
        through no link. More than ``limit`` matches are an error, so that none is left out silently.
        """
        async with self._requests.stream("glob", ".", pattern=encode_path(pattern), limit=limit) as stream:
            data = await stream.read_all()
            answer = await stream.call.result()
            errors.raise_for_answer(answer, "cannot look for", os.fsdecode(pattern))
        if require_field(answer, "more", bool):
            remedy = "a narrower pattern, or a higher limit="
            raise TransferError(f"more than {limit} paths match {os.fsdecode(pattern)}", remedy=remedy)
        return [os.fsdecode(path) for path in sorted(set(data.split(b"\0")[:-1]))]

    async def mkdir(self, path: Path, *, parents: bool = False, mode: int | None = None) -> None:
        """Make a folder; with ``parents`` those above it too, and one that is there already will do."""
        _check_mode(mode)
        await self._requests.request("mkdir", "cannot make", path, parents=parents, mode=mode)

    async def remove(self, path: Path, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link (never what it leads to) or an empty folder; with ``recursive`` a whole one.

        The root of the file system is refused. Where a whole folder cannot be removed, a part may be.
        """
        try:
            await self._requests.request("remove", "cannot remove", path, recursive=recursive)
        except FileNotFoundError:
            if not missing_ok:
                raise

    async def move(self, path: Path, to: Path) -> None:
        """Rename a file or folder; a file that has the new name is replaced.

        Within a file system that happens at once. Into another one the whole is copied first, takes its
        new name at once, and is then removed here.
        """
        await self._requests.request("move", "cannot move", path, to=encode_path(to))

    async def chmod(self, path: Path, mode: int) -> None:
        """Set the permissions of what a path leads to."""
        _check_mode(mode)
        await self._requests.request("chmod", "cannot change the mode of", path, mode=mode)

    async def symlink(self, target: Path, path: Path, *, replace: bool = False) -> None:
        """Make a link at ``path`` to ``target``; ``replace`` replaces what is there."""
        await self._requests.request("symlink", "cannot link", path, target=encode_path(target), replace=replace)

    async def readlink(self, path: Path) -> str:
        """Where a link leads."""
        answer = await self._requests.request("readlink", "cannot read the link", path)
        target: bytes = require_field(answer, "target", bytes)
        return os.fsdecode(target)

    async def hash(self, path: Path) -> str:
        """The SHA-256 of a file's content, in hexadecimal; it is computed there."""
        answer = await self._requests.request("hash", "cannot read", path)
        digest: bytes = require_field(answer, "sha256", bytes)
        return digest.hex()

    async def upload(
        self,
        local: Path,
        remote: Path,
        *,
        progress: Progress | None = None,
        verify: bool | None = None,
        parents: bool = True,
        links: Links = "refuse",
        ignore: Iterable[str | bytes] = (),
    ) -> TransferReport:
        """Send a file or a tree to exactly ``remote``; a file goes into it where that ends with a slash.

        Permissions, times, links and empty folders go along; setuid, setgid and sticky do not. A tree is
        added to a folder that is there already. A broken connection is resumed where it broke; a large
        file whose upload ended in OutcomeUnknown is, by the same call again.

        Args:
            local: a file or a folder of this side.
            remote: its path there.
            progress: called with bytes done and in all, files done and in all.
            verify: compare SHA-256 hashes before anything gets its name; left out, wherever the way itself does not
                authenticate each packet, as SSH does.
            parents: make missing folders above ``remote``.
            links: what to do with links that may lead out of the tree: ``refuse`` makes the transfer fail
                after everything else was copied, ``skip`` leaves them out, ``keep`` makes them anyway.
                None is ever followed.
            ignore: patterns as in a .gitignore for what to leave out of a tree.

        Raises:
            TransferError: ``state`` says what is true now; no file is ever half written.
        """
        from hermes_exec.files.upload import upload

        options = TransferSettings(
            progress, self._requests.should_verify(verify), parents, links, encode_patterns(ignore)
        )
        return await upload(self._requests, local, remote, options)

    async def download(
        self,
        remote: Path,
        local: Path,
        *,
        progress: Progress | None = None,
        verify: bool | None = None,
        parents: bool = True,
        links: Links = "refuse",
        ignore: Iterable[str | bytes] = (),
    ) -> TransferReport:
        """Fetch a file or a tree to exactly ``local``; otherwise as ``upload``.

        The target is not trusted: whatever it sends, nothing is written outside of ``local``.
        """
        from hermes_exec.files.download import download

        options = TransferSettings(
            progress, self._requests.should_verify(verify), parents, links, encode_patterns(ignore)
        )
        return await download(self._requests, remote, local, options)

    async def sync(  # noqa: PLR0913  each is one word of the same wish
        self,
        local: Path,
        remote: Path,
        *,
        direction: Direction = "up",
        delete: bool = False,
        ignore: Iterable[str | bytes] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
        verify: bool | None = None,
        links: Links = "refuse",
    ) -> SyncReport:
        """Make the folder ``remote`` like ``local``, or the reverse, moving only what differs.

        Files of the same size and time count as the same; where only the time differs, their hashes
        decide.

        Args:
            local: the folder of this side.
            remote: the folder there.
            direction: ``up`` or ``down``.
            delete: remove what the source does not have; never what is ignored.
            ignore: patterns as in a .gitignore for what is neither copied nor deleted.
            dry_run: change nothing; the report says what would be done.
            progress: called with bytes done and in all, files done and in all.
            verify: compare SHA-256 hashes of what is sent, as for ``upload``.
            links: as for ``upload``.

        Raises:
            UsageError: a folder stands in the way of a file, or the reverse, without ``delete``.
            TransferError: ``state`` says what is true now; the same call again continues.
        """
        from hermes_exec.files.sync import SyncRequest, sync

        options = TransferSettings(progress, self._requests.should_verify(verify), True, links, encode_patterns(ignore))
        return await sync(self._requests, local, remote, SyncRequest(direction, delete, dry_run, options))
