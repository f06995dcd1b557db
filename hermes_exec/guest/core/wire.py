"""The protocol's bytes, the same file on both sides: frames, and values packed as MessagePack.

A frame is a 22-byte header (payload length, kind, channel, request id, position; big-endian) and its payload, each
followed by a four-byte check of all bytes of the direction so far. docs/protocol.md defines the kinds. Values use a
subset of MessagePack: nil, booleans, integers, float 64, binary, strings, arrays and maps.
"""

import struct
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

VERSION = 2

ATTACH, REQUEST, DATA, EOF, CREDIT, CANCEL, FORGET, LOAD, BYE, RETURN, PING = range(1, 12)
WELCOME, RESULT, EVENT, FATAL, HANDOFF, RECLAIM, PONG = range(16, 23)

STDIN, STDOUT, STDERR = 0, 1, 2

WINDOW = 4 << 20
"""Bytes of one stream that may be in flight or unread."""
CHUNK = (256 << 10) - 30
"""Maximum bytes of one DATA frame: with header and checks 256 KiB, a multiple of pages and of the transports' pieces,
and small enough that no control frame waits long behind it."""
RESENT = 16 << 10
"""Bytes of the first DATA frame after a reconnect, so that a short-lived connection still makes progress."""
MAX_REQUEST = 64 << 20
"""Maximum bytes of one frame to the guest."""
MAX_REPLY = 8 << 20
"""Maximum bytes of one frame from the guest."""
MAX_DEPTH = 16

HEADER = struct.Struct(">IBBQQ")
CHECK = struct.Struct(">I")
OFFSET = struct.Struct(">Q")
RETURN_FIELDS = struct.Struct(">QQ")
"""In RETURN: the offset that was read up to, and the offset that was consumed up to."""
HANDOFF_FIELDS = struct.Struct(">IIQQ")
"""In HANDOFF: the guest's process id, its descriptor, the pipe's inode, and the stream's offset."""


class WireError(ValueError):
    """The peer violated the protocol."""


class DamageError(WireError):
    """A frame arrived damaged: this connection must end, and a new one resumes."""


def frame(kind: int, channel: int, request: int, payload: bytes = b"", position: int = 0) -> bytes:
    """Return a frame without checks, which ``Sealer`` adds for each connection."""
    return HEADER.pack(len(payload), kind, channel, request, position) + payload


class Sealer:
    """Counts the bytes of one direction of a connection, so that each check proves that none is missing."""

    def __init__(self) -> None:
        self.checksum = False  # whether the CRC covers the content of DATA too
        self._sent = 0

    def check(self, data: "bytes | bytearray | memoryview", *, summed: bool = True) -> int:
        """The check of a header or payload: bytes of the direction so far plus its CRC-32, modulo 2**32."""
        self._sent += len(data) + 4
        return self._sent + (crc32(data) if summed else 0) & 0xFFFFFFFF

    def parts(self, head: bytes, payload: "bytes | memoryview") -> "tuple[bytes, bytes | memoryview, bytes]":
        """Return a frame with its checks, in parts."""
        head += CHECK.pack(self.check(head))
        return head, payload, CHECK.pack(self.check(payload, summed=self.checksum or head[4] != DATA))

    def seal(self, frame: bytes) -> bytes:
        """Return a frame with its checks."""
        return b"".join(self.parts(frame[:22], frame[22:]))


class Parser:
    """Splits a byte stream into frames, and passes on each that is complete and verified."""

    def __init__(
        self,
        on_frame: "Callable[[int, int, int, bytes], None]",
        on_data: "Callable[[int, int, int, bytes], None]",
        limit: int,
    ) -> None:
        self.sealer = Sealer()
        self._on_frame = on_frame
        self._on_data = on_data
        self._limit = limit
        self._held = bytearray()
        self._need = 26

    def feed(self, chunk: bytes) -> None:
        """Take received bytes; raise DamageError when a check fails."""
        held = self._held
        held += chunk
        while len(held) >= self._need:
            size, kind, channel, request, position = HEADER.unpack_from(held)
            if self._need == 26:
                self._verify(held[:22], 22)
                if size > (CHUNK if kind == DATA else self._limit):
                    raise DamageError("a frame of {} bytes".format(size))
                self._need = size + 30
                continue
            payload = bytes(memoryview(held)[26 : size + 26])
            self._verify(payload, size + 26, summed=self.sealer.checksum or kind != DATA)
            del held[: self._need]
            self._need = 26
            if kind == DATA:
                self._on_data(channel, request, position, payload)
            else:
                self._on_frame(kind, channel, request, payload)

    def _verify(self, data: "bytes | bytearray", at: int, *, summed: bool = True) -> None:
        if CHECK.unpack_from(self._held, at)[0] != self.sealer.check(data, summed=summed):
            raise DamageError("bytes are missing or changed")


def pack(value: "Any") -> bytes:
    """Pack a value; raise WireError on an unsupported type."""
    out: "list[bytes]" = []
    try:
        _pack(value, out.append)
    except UnicodeEncodeError as error:
        raise WireError("cannot pack text with a lone surrogate: {}".format(error)) from error
    return b"".join(out)


def _pack(value: "Any", put: "Callable[[bytes], Any]") -> None:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]  of any type
    if kind is int:
        _pack_int(value, put)
    elif kind is str:
        data = value.encode("utf-8", "surrogateescape")
        size = len(data)
        put(bytes((0xA0 | size,)) if size < 32 else b"\xdb" + struct.pack(">I", size))
        put(data)
    elif kind is bytes:
        put(b"\xc4" + bytes((len(value),)) if len(value) < 256 else b"\xc6" + struct.pack(">I", len(value)))
        put(value)
    elif value is None:
        put(b"\xc0")
    elif kind is bool:
        put(b"\xc3" if value else b"\xc2")
    elif kind is float:
        put(b"\xcb" + struct.pack(">d", value))
    elif kind is list or kind is tuple:
        put(bytes((0x90 | len(value),)) if len(value) < 16 else b"\xdd" + struct.pack(">I", len(value)))
        for item in value:
            _pack(item, put)
    elif kind is dict:
        put(bytes((0x80 | len(value),)) if len(value) < 16 else b"\xdf" + struct.pack(">I", len(value)))
        for key, item in value.items():
            _pack(key, put)
            _pack(item, put)
    else:
        raise WireError("cannot pack " + kind.__name__)


def _pack_int(value: int, put: "Callable[[bytes], Any]") -> None:
    if 0 <= value < 128:
        put(bytes((value,)))
    elif 0 <= value < 1 << 64:
        put(b"\xcf" + struct.pack(">Q", value))
    elif -1 << 63 <= value < 0:
        put(b"\xd3" + struct.pack(">q", value))
    else:
        raise WireError("an integer of more than 64 bits")


def unpack(data: bytes) -> "Any":
    """Unpack the one value that fills ``data``; raise WireError, and no other error, on anything else."""
    try:
        value, end = _unpack(data, 0, 0)
    except (IndexError, struct.error, UnicodeError, TypeError) as error:
        raise WireError("a truncated or malformed value") from error
    if end != len(data):
        raise WireError("bytes after the value")
    return value


def _unpack(data: bytes, at: int, depth: int) -> "tuple[Any, int]":
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag < 0x90:
        return _unpack_map(data, at, tag & 15, depth)
    if tag < 0xA0:
        return _unpack_list(data, at, tag & 15, depth)
    if tag < 0xC0:
        return _slice(data, at, tag & 31).decode("utf-8", "surrogateescape"), at + (tag & 31)
    if tag == 0xC0:
        return None, at
    if tag in {194, 195}:
        return tag == 0xC3, at
    if tag == 0xC4:
        return _slice(data, at + 1, data[at]), at + 1 + data[at]
    if tag == 0xCB:
        return struct.unpack_from(">d", data, at)[0], at + 8
    if tag == 0xCF:
        return struct.unpack_from(">Q", data, at)[0], at + 8
    if tag == 0xD3:
        return struct.unpack_from(">q", data, at)[0], at + 8
    if tag in (0xC6, 0xDB, 0xDD, 0xDF):
        size = struct.unpack_from(">I", data, at)[0]
        at += 4
        if tag == 0xC6:
            return _slice(data, at, size), at + size
        if tag == 0xDB:
            return _slice(data, at, size).decode("utf-8", "surrogateescape"), at + size
        if size > len(data):
            raise WireError("a container longer than its frame")
        return (_unpack_list if tag == 0xDD else _unpack_map)(data, at, size, depth)
    raise WireError("an unknown tag {:#x}".format(tag))


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise WireError("a truncated value")
    return data[at : at + size]


def _unpack_list(data: bytes, at: int, count: int, depth: int) -> "tuple[list[Any], int]":
    if depth >= MAX_DEPTH:
        raise WireError("values nested too deeply")
    items: "list[Any]" = []
    for _ in range(count):
        item, at = _unpack(data, at, depth + 1)
        items.append(item)
    return items, at


def _unpack_map(data: bytes, at: int, count: int, depth: int) -> "tuple[dict[Any, Any], int]":
    if depth >= MAX_DEPTH:
        raise WireError("values nested too deeply")
    result: "dict[Any, Any]" = {}
    for _ in range(count):
        key, at = _unpack(data, at, depth + 1)
        result[key], at = _unpack(data, at, depth + 1)
    return result, at
