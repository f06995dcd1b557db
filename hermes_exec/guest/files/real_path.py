"""The real path of an open file: without links, and with the source of a bind mount."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_ESCAPES = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\043", b"#"), (b"\\134", b"\\"))


def trace(fd: int) -> "Dict[str, Any]":
    """Return path, source, link count, device and inode; the path is empty if no name leads to the file."""
    info = os.fstat(fd)
    path = os.readlink(b"/proc/self/fd/%d" % fd)
    try:
        found = os.stat(path)
    except OSError:
        found = None
    if found is None or (found.st_dev, found.st_ino) != (info.st_dev, info.st_ino):
        path = b""  # deleted, a pipe, or in another namespace: its name is not usable
    return {
        "real": path,
        "source": source(path, mounts()) if path else b"",
        "links": info.st_nlink,
        "id": b"%d:%d" % (info.st_dev, info.st_ino),
    }


def mounts() -> "List[bytes]":
    """Return the lines of mountinfo."""
    with open("/proc/self/mountinfo", "rb") as file:
        return file.readlines()


def source(path: bytes, lines: "List[bytes]") -> bytes:
    """Return the path inside the file system; for procfs the usual path, wherever it is mounted."""
    length, root, kind = -1, b"", b""
    for line in lines:
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        point = plain(fields[4]).rstrip(b"/")
        if len(point) >= length and (path + b"/").startswith(point + b"/"):
            length, root, kind = len(point), plain(fields[3]).rstrip(b"/"), after.split(b" ")[0]
    return (b"/proc" if kind == b"proc" else b"") + root + path[max(length, 0) :] or b"/"


def plain(escaped: bytes) -> bytes:
    """Decode the octal escapes of a path in mountinfo."""
    for code, character in _ESCAPES:
        escaped = escaped.replace(code, character)
    return escaped
