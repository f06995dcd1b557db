"""Small images of each type, made here byte by byte."""

from __future__ import annotations

import struct
import zlib
from typing import Any


def png(width: int = 2, height: int = 3) -> bytes:
    """A whole PNG, black."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = zlib.compress((b"\0" + bytes(width * 3)) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def gif(width: int = 4, height: int = 5) -> bytes:
    """The head of a GIF, and its end."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def jpeg(width: int = 6, height: int = 7) -> bytes:
    """The segments of a JPEG that tell its size, after others."""
    other = b"\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xff\xdb\x00\x04\x00\x00"
    size = b"\xff\xc0\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\x01\x01\x11\x00"
    return b"\xff\xd8" + other + size + b"\xff\xd9"


def webp(kind: str, width: int = 8, height: int = 9) -> bytes:
    """The head of a WebP of a kind."""
    body = {
        "VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
        "VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14),
        "VP8X": bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }[kind]
    chunk = kind.encode() + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def count_images(body: dict[str, Any]) -> list[int]:
    """How many images each message of a request to a model has."""
    contents: list[Any] = [each["content"] for each in body["messages"]]
    return [0 if isinstance(each, str) else sum(part["type"] == "image_url" for part in each) for each in contents]
