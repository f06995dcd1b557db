"""The frames of a connection to a sandbox, used at both of its ends: here, and in the sandbox as sent source.

Large data does not use the connection: the vendor's file calls, many times faster than a terminal, transfer it as
files of the relay's directory. The frame that refers to a file keeps its position among the others.

Every frame has a number and a checksum, because the vendor's daemon drops data for a slow client, and both ends have
to notice that.
"""

import struct
import zlib

HEADER = struct.Struct("!2sBxIIII")
"""The mark, the kind, the program's number, the frame's number, the length, a checksum of these and of the payload."""
MARK = b"hx"
START, MORE, INPUT, FILED, EOF, USED, KILL, LEAVE, RECEIVED, HERE = range(10)
"""Sent to the relay: MORE precedes a long START, FILED is an INPUT stored in a file, HERE is answered by a HERE."""
OUT, ERR, STORED, TAKEN, EXIT, ENDED, FAILED, READY = range(16, 24)
"""Sent by the relay: STORED is an output stored in a file, EXIT a program's end, ENDED that of its outputs too."""
COUNT = struct.Struct("!Q")
COUNTS = struct.Struct("!QQ")
STATUS = struct.Struct("!i")
FILE = struct.Struct("!BQQI")
"""Of a file: the kind of frame that it replaces, its number, its size, and its checksum."""
LONGEST = 32 << 10
"""The most bytes in a frame; the daemon accepts messages of at most 64 KiB."""
WINDOW = 1 << 20
"""The most bytes of one program's output, or input, that are in transit and not yet used."""
BULK = 256 << 10
"""The least bytes to transfer as a file."""
LARGEST = 2 << 20
"""The most bytes in a file."""
BULK_WINDOW = 8 << 20
"""The same as ``WINDOW`` for data transferred as files."""
FLIGHT = 640 << 10
"""The most bytes in transit in all; the daemon drops a client with 256 pending messages of 4 KiB."""
FRAMES = 120
"""The most frames in transit."""
_CHECKED = struct.Struct("!BIII")


def frame(kind: int, number: int, sequence: int, payload: bytes) -> bytes:
    """Return an encoded frame."""
    head = _CHECKED.pack(kind, number, sequence & 0xFFFFFFFF, len(payload))
    checksum = zlib.crc32(payload, zlib.crc32(head))
    return HEADER.pack(MARK, kind, number, sequence & 0xFFFFFFFF, len(payload), checksum) + payload


class Parser:
    """A parser of frames from bytes in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._sequence = 0

    def feed(self, data: bytes) -> "list[tuple[int, int, bytes]]":
        """Return the complete frames (kind, program, payload); raises ValueError when they are damaged."""
        buffer = self._buffer
        buffer += data
        found: "list[tuple[int, int, bytes]]" = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            mark, kind, number, sequence, length, checksum = HEADER.unpack_from(buffer, at)
            if mark != MARK or length > LONGEST or sequence != self._sequence & 0xFFFFFFFF:
                raise ValueError("the data is not a frame, or a frame is missing")
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            payload = bytes(memoryview(buffer)[at + HEADER.size : end])
            if checksum != zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, number, sequence, length))):
                raise ValueError("a frame is damaged")
            found.append((kind, number, payload))
            self._sequence += 1
            at = end
        del buffer[:at]
        return found
