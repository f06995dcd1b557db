"""The receiver of a tree: splits the stream of ``tree_stream`` into blocks, verifies and writes them."""

import struct

from . import tree_stream
from .safe_paths import InvalidTreeData, sha256
from .tree_stream import COUNTS, DIGEST, ENTRY, HEAD
from .tree_writer import MAX_LISTED, TreeWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WITH_CONTENT = (tree_stream.FILE, tree_stream.LINK)


class TreeReceiver:
    """A receiver of a stream in pieces of any size. Call ``finish`` at its end, and ``close`` in any case."""

    def __init__(self, root: int, fresh: bool, verify: bool, keep_outside: bool) -> None:
        """Write below ``root``, an open folder that the receiver owns from now on; ``fresh`` if it is new.

        ``keep_outside`` creates links whose targets may be outside of the tree, instead of leaving them out.
        """
        self.writer = TreeWriter(root, keep_outside)
        self.skipped: "list[list[Any]]" = []
        self._fresh = fresh
        self._verify = verify
        self._held: "list[bytes]" = []
        self._held_size = 0
        self._need = HEAD.size
        self._left = 0  # bytes left of the current data block
        self._digest: "Any" = None
        self._rooted = False
        self._ended = False

    def close(self) -> None:
        """Close open files and remove unfinished ones."""
        self.writer.close()

    def finish(self) -> None:
        """Handle the end of the stream; raise InvalidTreeData if it is incomplete."""
        if not self._ended or self._held_size:
            raise InvalidTreeData("the stream broke off")

    def feed(self, data: bytes) -> None:
        """Accept bytes of the stream.

        Raises:
            InvalidTreeData: they are not a valid tree.
            OSError: this system failed; ``filename`` is the path relative to the root.
        """
        if self._held_size:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size < self._need:
                return
            data = b"".join(self._held)
        try:
            at = self._cut(data, memoryview(data))
        except OSError as error:
            error.filename = self.writer.path
            raise
        except struct.error as error:
            raise InvalidTreeData("a block that does not fit: {}".format(error)) from None
        self._held = [data[at:]]
        self._held_size = len(data) - at

    def _cut(self, data: bytes, view: memoryview) -> int:
        """Handle the complete blocks; return the offset of the rest."""
        at = 0
        end = len(data)
        while at < end:
            if self._left:
                piece = view[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                self._data(piece)
                continue
            self._need = HEAD.size
            if end - at < self._need:
                break
            kind, size = HEAD.unpack_from(data, at)
            if kind == tree_stream.DATA:
                self._left = size
                at += self._need
                continue
            if size > tree_stream.MAX_BLOCK:
                raise InvalidTreeData("a block of {} bytes".format(size))
            self._need += size
            if end - at < self._need:
                break
            self._block(kind, view[at + HEAD.size : at + self._need])
            at += self._need
        return at

    def _data(self, piece: memoryview) -> None:
        if not self.writer.in_large_file:
            raise InvalidTreeData("content of no file")
        self.writer.write(piece)
        if self._verify:
            self._digest.update(piece)

    def _block(self, kind: int, payload: memoryview) -> None:
        if self._ended or self.writer.in_large_file != (kind == tree_stream.FILE_END):
            raise InvalidTreeData("a block of kind {} out of turn".format(kind))
        if kind == tree_stream.BATCH:
            if self._verify:
                self._digest = sha256()
                self._digest.update(payload[DIGEST:])
                self._compare(payload[:DIGEST])
            self._batch(payload[DIGEST:])
        elif kind == tree_stream.FILE_END:
            if self._verify:
                self._compare(payload)
            self.writer.complete()
        elif kind == tree_stream.END:
            landing = self.writer
            if landing.depth or tree_stream.TOTALS.unpack(payload) != (landing.files, landing.bytes):
                raise InvalidTreeData("the totals do not agree")
            if self._fresh and self._rooted:
                landing.settle_root()
            self._ended = True
        else:
            raise InvalidTreeData("a block of kind {}".format(kind))

    def _compare(self, told: memoryview) -> None:
        if self._digest.digest() != told:
            raise InvalidTreeData("the content does not match the hash that was sent")

    def _batch(self, payload: memoryview) -> None:
        count, size = COUNTS.unpack_from(payload, 0)
        at = COUNTS.size + count * ENTRY.size
        names = bytes(payload[at : at + size]).split(b"\0")
        entries = payload[COUNTS.size : at]
        at += size
        if at > len(payload) or len(names) != count:
            raise InvalidTreeData("a batch whose parts do not fit")
        landing = self.writer
        for (kind, mode, mtime, length), name in zip(ENTRY.iter_unpack(entries), names):
            if landing.in_large_file:
                raise InvalidTreeData("an entry in the middle of a large file")
            if kind in _WITH_CONTENT:
                content = payload[at : at + length]
                at += length
                if at > len(payload):
                    raise InvalidTreeData("content that is cut short")
                if kind == tree_stream.FILE:
                    landing.file(name, mode, mtime, content)
                else:
                    landing.link(name, mtime, bytes(content))
            else:
                self._entry(kind, mode, mtime, length, name)
        if at != len(payload):
            raise InvalidTreeData("bytes after a batch")

    def _entry(self, kind: int, mode: int, mtime: int, size: int, name: bytes) -> None:
        landing = self.writer
        if kind == tree_stream.FOLDER:
            landing.enter(name, mode, mtime)
        elif kind == tree_stream.LEAVE and landing.depth:
            landing.leave()
        elif kind == tree_stream.LARGE:
            landing.begin(name, mode, mtime)
            self._digest = sha256()
        elif kind == tree_stream.META:
            landing.touch(name, mode, mtime)
        elif kind == tree_stream.SKIP:
            if len(self.skipped) < MAX_LISTED:
                self.skipped.append([landing.folder_path(name), mode, size])
        elif kind == tree_stream.ROOT and not self._rooted:
            self._rooted = True
            landing.set_root_metadata(mode, mtime)
        else:
            raise InvalidTreeData("an entry of kind {}".format(kind))
