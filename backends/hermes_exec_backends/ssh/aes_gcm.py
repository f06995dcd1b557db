"""One packet of SSH sealed by AES-GCM, and opened (RFC 5647, as OpenSSH's ``aes256-gcm@openssh.com`` has it)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = struct.Struct(">I")
_TAG = 16
_BLOCK = 16
_MAX_PACKET = 256 << 10
"""Bytes of a packet that OpenSSH too takes at most."""


def whole_size(data: bytes, at: int) -> int:
    """Bytes of the packet that begins there, with its length and its tag; raises ValueError on an impossible one."""
    size: int = _LENGTH.unpack_from(data, at)[0]
    if not _BLOCK <= size <= _MAX_PACKET or size % _BLOCK:
        raise ValueError(f"a length of {size}")
    return _LENGTH.size + size + _TAG


class Key:
    """The key of one direction, with the number that each packet counts up (RFC 5647, 7.1)."""

    def __init__(self, engine: Any, first: bytes) -> None:
        self.used = 0
        """Bytes sealed or opened with it."""
        self._encrypt: Callable[[bytes, bytes, bytes], bytes] = engine.encrypt
        self._decrypt: Callable[[bytes, memoryview, memoryview], bytes] = engine.decrypt
        self._fixed = first[:4]
        self._count = int.from_bytes(first[4:], "big")

    def _number(self, size: int) -> bytes:
        number = self._fixed + self._count.to_bytes(8, "big")
        self._count = (self._count + 1) & (1 << 64) - 1
        self.used += size
        return number

    def seal(self, *payload: bytes | memoryview) -> tuple[bytes, bytes]:
        """A whole packet of some parts, to be sent after those that were sealed before it.

        The padding needs no chance here: what it is sealed with never comes again, as in RFC 4344's modes.
        """
        padding = _BLOCK - (sum(map(len, payload)) + 1) % _BLOCK
        padding += _BLOCK if padding < 4 else 0  # RFC 4253, 6: at least four bytes
        plain = b"".join((bytes((padding,)), *payload, bytes(padding)))
        length = _LENGTH.pack(len(plain))
        return length, self._encrypt(self._number(len(plain)), plain, length)

    def open(self, packet: memoryview) -> bytes:
        """What is in a whole packet: the number of bytes of padding, the payload, the padding.

        Raises InvalidTag when it is not what was sealed, in that order.
        """
        return self._decrypt(self._number(len(packet)), packet[_LENGTH.size :], packet[: _LENGTH.size])
