"""Frames on a connection to a sandbox, on both of its ends: here, and in the sandbox, where this is sent as source.

What is large goes beside the connection: as files in a folder of the relay's, by the vendor's own way of moving files,
which is many times faster than a terminal. The frame that stands for one takes its turn among the others.

Every frame is numbered and has a checksum, because the vendor's daemon drops what is too much for a slow client, and
that has to be noticed.
"""

import struct
import zlib

HEADER = struct.Struct("!2sBxIIII")
"""The mark, the kind, the program's number, the frame's number, the length, a checksum of them and of the payload."""
MARK = b"hx"
START, MORE, INPUT, FILED, EOF, USED, KILL, LEAVE, RECEIVED, HERE = range(10)
"""Sent to the relay: MORE comes before a START that is long, FILED is an INPUT that is in a file, HERE is answered
by a HERE."""
OUT, ERR, STORED, TAKEN, EXIT, ENDED, FAILED, READY = range(16, 24)
"""What it tells: STORED is an output that is in a file, EXIT a program's end, ENDED that of its outputs as well."""
COUNT = struct.Struct("!Q")
COUNTS = struct.Struct("!QQ")
STATUS = struct.Struct("!i")
FILE = struct.Struct("!BQQI")
"""Of a file: the kind of frame that it stands for, its number, its size, and its checksum."""
LONGEST = 32 << 10
"""Bytes in a frame; the daemon takes messages of at most 64 KiB."""
WINDOW = 1 << 20
"""Bytes of one program's output, or input, that are on their way before somebody has used them up."""
BULK = 256 << 10
"""Bytes that are worth a file."""
LARGEST = 2 << 20
"""Bytes in a file."""
BULK_WINDOW = 8 << 20
"""As ``WINDOW``, where they go by files."""
FLIGHT = 640 << 10
"""Bytes of all of them that have not arrived; the daemon drops a client for whom 256 messages of 4 KiB wait."""
FRAMES = 120
"""Frames that have not arrived."""
_CHECKED = struct.Struct("!BIII")


def frame(kind: int, number: int, sequence: int, payload: bytes) -> bytes:
    """A frame as it is sent."""
    head = _CHECKED.pack(kind, number, sequence & 0xFFFFFFFF, len(payload))
    checksum = zlib.crc32(payload, zlib.crc32(head))
    return HEADER.pack(MARK, kind, number, sequence & 0xFFFFFFFF, len(payload), checksum) + payload


class Parser:
    """Bytes to frames, in whatever pieces they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._sequence = 0

    def feed(self, data: bytes) -> "list[tuple[int, int, bytes]]":
        """The frames (kind, program, payload) that are whole now; raises ValueError when they are damaged."""
        buffer = self._buffer
        buffer += data
        found: "list[tuple[int, int, bytes]]" = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            mark, kind, number, sequence, length, checksum = HEADER.unpack_from(buffer, at)
            if mark != MARK or length > LONGEST or sequence != self._sequence & 0xFFFFFFFF:
                raise ValueError("what came is no frame, or one is missing")
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
