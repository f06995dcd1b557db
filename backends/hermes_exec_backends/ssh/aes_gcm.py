"""Encryption of single SSH packets with AES-GCM (RFC 5647, in OpenSSH's variant ``aes256-gcm@openssh.com``)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = struct.Struct(">I")
_TAG = 16
_BLOCK = 16
_MAX_PACKET = 256 << 10
"""The largest packet in bytes, as in OpenSSH."""


def whole_size(data: bytes, at: int) -> int:
    """Return the size of the packet that begins at ``at``, with length and tag; raise ValueError if impossible."""
    size: int = _LENGTH.unpack_from(data, at)[0]
    if not _BLOCK <= size <= _MAX_PACKET or size % _BLOCK:
        raise ValueError(f"a length of {size}")
    return _LENGTH.size + size + _TAG


class Key:
    """The key of one direction, with the invocation counter that each packet increments (RFC 5647, 7.1)."""

    def __init__(self, engine: Any, first: bytes) -> None:
        self.used = 0
        """Bytes encrypted or decrypted with this key."""
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
        """Return one encrypted packet that contains ``parts``; packets must be sent in the order of encryption.

        The padding need not be random: its nonce is never used again, as in the modes of RFC 4344.
        """
        padding = _BLOCK - (sum(map(len, payload)) + 1) % _BLOCK
        padding += _BLOCK if padding < 4 else 0  # RFC 4253, 6: at least four bytes
        plain = b"".join((bytes((padding,)), *payload, bytes(padding)))
        length = _LENGTH.pack(len(plain))
        return length, self._encrypt(self._number(len(plain)), plain, length)

    def open(self, packet: memoryview) -> bytes:
        """Decrypt a whole packet; return the number of padding bytes, the payload and the padding.

        Raises InvalidTag when the packet was modified or is out of order.
        """
        return self._decrypt(self._number(len(packet)), packet[_LENGTH.size :], packet[: _LENGTH.size])
