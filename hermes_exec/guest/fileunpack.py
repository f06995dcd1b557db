"""The receiver of a tree: writes the blocks of ``filetree`` below a root, and nothing anywhere else.

The sender is not trusted. A name is one component, a link is never followed, and each file is written
beside its place and renamed into it, so at any moment there is the old one or the new one, whole.
"""

import os
import stat

from . import filetree
from .filesafe import NEW, PERMISSIONS, Refused, check_name, fold, leads_out, open_folder, sha256, write_all
from .filetree import DIGEST, ENTRY, HEAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEMPORARY = b".hx-"
"""How the names of unfinished files begin."""
_TOLD = 1000
"""Entries left out that are told one by one."""


class Folder:
    """A folder that is being filled: its descriptor, its path, its time and mode for the end."""

    __slots__ = ("fd", "mode", "mtime", "path", "seen")

    def __init__(self, fd: int, path: bytes, mode: "int | None", mtime: int) -> None:
        self.fd = fd
        self.path = path
        self.mode = mode
        self.mtime = mtime
        self.seen: "dict[bytes | str, bytes]" = {}


class Receiver:
    """Takes a stream in pieces of any size. ``finish`` it when all has come; ``close`` it in any case."""

    def __init__(self, root: int, fresh: bool, verify: bool, keep_outside: bool) -> None:
        """Write below ``root``, an open folder, the receiver's from here on; ``fresh`` if it is a new one.

        ``keep_outside`` makes links whose targets may be outside of the tree, instead of leaving them out.
        """
        self.files = 0
        self.bytes = 0
        self.outside: "list[list[bytes]]" = []
        self.skipped: "list[list[Any]]" = []
        self._fresh = fresh
        self._verify = verify
        self._keep_outside = keep_outside
        self._folders = [Folder(root, b"", None, 0)]
        self._temporary = TEMPORARY + os.urandom(6).hex().encode()
        self._held: "list[bytes]" = []
        self._held_size = 0
        self._need = HEAD.size
        self._left = 0  # bytes of the present data block
        self._large: "tuple[int, int, int, bytes] | None" = None
        self._digest: "Any" = None
        self._ended = False

    def close(self) -> None:
        """Close what is open and remove what is unfinished."""
        if self._large is not None:
            os.close(self._large[0])
            self._large = None
            self._drop()
        while self._folders:
            os.close(self._folders.pop().fd)

    def finish(self) -> None:
        """The stream is at its end; raises Refused when it came to it too early."""
        if not self._ended or self._held_size:
            raise Refused("the stream broke off")

    def feed(self, data: bytes) -> None:
        """Take bytes as they came.

        Raises:
            Refused: they are no honest tree. OSError: this system failed, with the path as filename.
        """
        if self._held_size:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size < self._need:
                return
            data = b"".join(self._held)
            self._held = []
            self._held_size = 0
        view = memoryview(data)
        at = 0
        end = len(data)
        while at < end:
            if self._left:
                piece = view[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                self._data(piece)
                continue
            if end - at < HEAD.size:
                self._need = HEAD.size
                break
            kind, size = HEAD.unpack_from(data, at)
            if kind == filetree.DATA:
                self._left = size
                at += HEAD.size
                continue
            if size > filetree.MAX_BLOCK:
                raise Refused("a block of {} bytes".format(size))
            self._need = HEAD.size + size
            if end - at < self._need:
                break
            self._block(kind, view[at + HEAD.size : at + self._need])
            at += self._need
        if at < end:
            self._held = [bytes(view[at:])]
            self._held_size = end - at

    def _block(self, kind: int, payload: memoryview) -> None:
        if self._ended or (self._large is None) != (kind != filetree.FILE_END):
            raise Refused("a block of kind {} out of turn".format(kind))
        if kind == filetree.BATCH:
            if self._verify:
                digest = sha256()
                digest.update(payload[DIGEST:])
                self._compare(digest, payload[:DIGEST])
            self._batch(payload[DIGEST:])
        elif kind == filetree.FILE_END:
            if self._verify:
                self._compare(self._digest, payload)
            self._complete()
        elif kind == filetree.END:
            totals = filetree.TOTALS.unpack(payload)
            if len(self._folders) != 1 or totals != (self.files + len(self.outside), self.bytes):
                raise Refused("the totals do not agree")
            self._leave_root()
            self._ended = True
        else:
            raise Refused("a block of kind {}".format(kind))

    @staticmethod
    def _compare(digest: "Any", told: memoryview) -> None:
        if digest.digest() != told:
            raise Refused("the content does not have the hash that was sent with it")
