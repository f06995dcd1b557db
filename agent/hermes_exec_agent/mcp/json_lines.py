"""Messages of the protocol as lines of JSON, of bounded length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from collections.abc import Iterator


class LineTooLong(ValueError):
    """The other side sent a line that is longer than permitted."""


class MessageParser:
    """Splits bytes into messages; a line that is not a message is yielded as the error of its parser."""

    def __init__(self, most: int) -> None:
        """``most``: bytes of a line."""
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[SessionMessage | Exception]:
        """Yield the messages that end in ``data``.

        Raises:
            LineTooLong: a line is longer than permitted.
        """
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            whole = b"".join(self._parts)
            self._parts, self._size = [], 0
            if whole.strip():
                yield _parse(whole)
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            raise LineTooLong(f"a message of more than {self._most} bytes")
        if part:
            self._parts.append(part)


def _parse(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def encode_message(message: SessionMessage) -> bytes:
    """Return a message as a line."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
