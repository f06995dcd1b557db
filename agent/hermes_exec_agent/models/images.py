"""Images in messages: their type and size are read from their content, never from a name, before anything is sent."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import UsageError
from hermes_exec_agent.quoting import quote_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 3_750_000
"""Of an image; endpoints take 5 MB in base64."""
MAX_SIDE = 8000
"""Pixels."""
MAX_IMAGES = 16
"""Of one request."""
MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
TYPES = "PNG, JPEG, GIF or WebP"
_PIXELS_OF_A_TOKEN = 750
_MOST_TOKENS = 1600
"""Of an image, about; endpoints scale larger ones down."""
_MARKS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
_DATA_URL = "data:"


@dataclass(frozen=True, slots=True)
class Image:
    """A checked image."""

    name: str
    """Of its file; untrusted."""
    media_type: MediaType
    width: int
    height: int
    data: str
    """Its content in base64."""

    @property
    def tokens(self) -> int:
        """An estimate of the tokens that it takes in a prompt."""
        return min(-(-self.width * self.height // _PIXELS_OF_A_TOKEN), _MOST_TOKENS)

    def describe(self) -> str:
        """Return the name, the type and the size in one line."""
        size = len(self.data) * 3 // 4
        return f"{quote_name(self.name)} ({self.media_type}, {self.width}x{self.height}, {size:,} bytes)"

    def to_wire(self) -> dict[str, Any]:
        """Return the part of a message in the protocol's form."""
        return {"type": "image_url", "image_url": {"url": f"data:{self.media_type};base64,{self.data}"}}

    def to_record(self) -> dict[str, Any]:
        """Return the image as an event contains it."""
        return {"name": self.name, "media_type": self.media_type, "data": self.data}


def is_image(content: bytes) -> bool:
    """Whether bytes begin as an image of a known type does."""
    return content.startswith(_MARKS) or (content[:4] == b"RIFF" and content[8:12] == b"WEBP")


def parse_image(content: bytes, name: str) -> Image:
    """Check the content of an image.

    Raises:
        UsageError: it is not an image of a known type, or too large.
    """
    shown = quote_name(name)
    try:
        found = _measure(content)
    except (struct.error, IndexError):
        found = None
    if found is None:
        raise UsageError(f"{shown}: this is not an image", remedy=TYPES)
    media_type, width, height = found
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise UsageError(f"{shown}: it has {width}x{height} pixels", remedy=f"at most {MAX_SIDE} on each side")
    if len(content) > MAX_BYTES:
        raise UsageError(f"{shown}: it has {len(content):,} bytes", remedy=f"at most {MAX_BYTES:,}")
    return Image(name, media_type, width, height, base64.b64encode(content).decode("ascii"))


def parse_data_url(url: str, name: str) -> Image:
    """Check an image in a ``data:`` URL, whose own type is ignored.

    Raises:
        UsageError: it is another kind of URL, or no image, or too large.
    """
    head, _, data = url.partition(",")
    if not head.startswith(_DATA_URL) or not head.endswith(";base64"):
        raise UsageError(f"{name}: its URL is not fetched", remedy="the image itself, as data:image/png;base64,…")
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        raise UsageError(f"{name}: its URL is not base64") from None
    return parse_image(content, name)


def image_of_record(record: Mapping[str, Any]) -> Image | None:
    """Return the image in an event; None if it is damaged."""
    try:
        return parse_image(base64.b64decode(str(record["data"])), str(record["name"]))
    except (ValueError, KeyError):
        return None


def _measure(content: bytes) -> tuple[MediaType, int, int] | None:
    """Return the type, the width and the height; None if they cannot be read."""
    if content.startswith(_MARKS[0]):
        if content[12:16] != b"IHDR":
            return None
        width, height = struct.unpack(">II", content[16:24])
        return "image/png", width, height
    if content.startswith(_MARKS[2:]):
        width, height = struct.unpack("<HH", content[6:10])
        return "image/gif", width, height
    if content.startswith(_MARKS[1]):
        return _measure_jpeg(content)
    return _measure_webp(content) if is_image(content) else None


def _measure_jpeg(content: bytes) -> tuple[MediaType, int, int] | None:
    at = 2
    while at + 9 <= len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return "image/jpeg", width, height
        if marker in (0xD9, 0xDA):  # the end, or pixels without a size before
            return None
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return None


def _measure_webp(content: bytes) -> tuple[MediaType, int, int] | None:
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (24, 27))
        return ("image/webp", width, height) if len(content) >= 30 else None
    if kind == b"VP8L" and content[20] == 0x2F:
        bits = struct.unpack("<I", content[21:25])[0]
        return "image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", content[26:30])
        return "image/webp", width & 0x3FFF, height & 0x3FFF
    return None
