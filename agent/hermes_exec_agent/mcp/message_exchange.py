"""The messages of a program that speaks the protocol over its standard streams, wherever it runs."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from hermes_exec._async import cancel_and_wait, shield_to_completion
from hermes_exec.errors import HermesError
from hermes_exec_agent.mcp.json_lines import LineTooLong, MessageParser, encode_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    Incoming = SessionMessage | Exception
    Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]

LONGEST_LINE = 16 << 20
_MOST_UNANSWERED = 100
"""Requests of the server whose answers it has not read."""
_POLL_S = 0.01


class MessageExchange:
    """Passes messages to and from one program, within limits."""

    def __init__(self, on_end: Callable[[], None], read_limit_s: float) -> None:
        """``on_end`` is called once no further message can come; a message has to be read in ``read_limit_s``."""
        self.reason = ""
        """Why it ended; empty if the program did."""
        self._on_end = on_end
        self._read_limit_s = read_limit_s
        self._unanswered = 0

    @asynccontextmanager
    async def run(
        self,
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
        *others: asyncio.Task[None],
    ) -> AsyncGenerator[Streams]:
        """Yield the streams of messages, and end the program with the block.

        Args:
            read: returns output of the program; nothing at its end.
            write: sends it input, and returns when it may have more.
            stop: ends it.
            others: tasks that end with it.
        """
        read_send, read_receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_send, write_receive = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read_messages(read, read_send)),
            asyncio.create_task(self._write_messages(write, write_receive, read_send)),
            *others,
        ]
        try:
            yield read_receive, write_send
        finally:
            with anyio.CancelScope(shield=True):
                await shield_to_completion(_end(stop, tasks), limit_s=None)
            for stream in (read_send, read_receive, write_send, write_receive):
                stream.close()

    async def _read_messages(
        self, read: Callable[[], Awaitable[bytes]], into: MemoryObjectSendStream[Incoming]
    ) -> None:
        parser = MessageParser(LONGEST_LINE)
        try:
            with into, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                while data := await read():
                    for message in parser.feed(data):
                        if not self._count_request(message):
                            return
                        await into.send(message)
        except LineTooLong as error:
            self.reason = f"it sent {error}"
        except HermesError as error:  # its target
            self.reason = error.what
        finally:
            self._on_end()

    def _count_request(self, message: Incoming) -> bool:
        """Return whether a message may be taken: a server that reads no answers may not send requests without end."""
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
            self._unanswered += 1
        if self._unanswered <= _MOST_UNANSWERED:
            return True
        self.reason = f"it sent more than {_MOST_UNANSWERED} requests and read no answers"
        return False

    async def _write_messages(
        self,
        write: Callable[[bytes], Awaitable[None]],
        messages: MemoryObjectReceiveStream[SessionMessage],
        reading: MemoryObjectSendStream[Incoming],
    ) -> None:
        try:
            async with messages:
                async for message in messages:
                    async with asyncio.timeout(self._read_limit_s):
                        await write(encode_message(message))
                    if isinstance(message.message, JSONRPCResponse | JSONRPCError):
                        self._unanswered -= 1
        except TimeoutError:
            self.reason = f"it did not read a message within {self._read_limit_s:g} s"
            reading.close()
            self._on_end()
        except (OSError, RuntimeError, HermesError):  # its input is closed
            reading.close()


async def _end(stop: Callable[[], Awaitable[None]], tasks: list[asyncio.Task[None]]) -> None:
    await stop()
    await asyncio.wait(tasks, timeout=_POLL_S)  # its last output is read
    await cancel_and_wait(tasks)
