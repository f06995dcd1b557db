"""Serve over standard input and output.

The streams are read and written on the event loop, without threads, so that a signal ends the server at once. While it
serves, the prints of libraries go to standard error, and not among the messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage

from hermes_exec._async import cancel_and_wait
from hermes_exec.cli.console import say
from hermes_exec.cli.stdio import Output, read
from hermes_exec_agent.mcp.json_lines import LineTooLong, MessageParser, encode_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel.server import Server

    Incoming = SessionMessage | Exception

LONGEST_LINE = 64 << 20
_FLUSH_S = 2.0
"""Seconds in which the last messages are written after the end."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our standard input."""
    async with _open_streams() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def _open_streams() -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
]:
    with _private_output() as fd:
        output = Output(fd, None)
        read_send, read_receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_send, write_receive = anyio.create_memory_object_stream[SessionMessage](0)
        reading = asyncio.create_task(_read_messages(read_send))
        writing = asyncio.create_task(_write_messages(write_receive, output, read_send))
        try:
            yield read_receive, write_send
        finally:
            write_send.close()
            await asyncio.wait([writing], timeout=_FLUSH_S)
            await cancel_and_wait([reading, writing])
            for stream in (read_send, read_receive, write_receive):
                stream.close()
            output.close()


async def _read_messages(into: MemoryObjectSendStream[Incoming]) -> None:
    parser = MessageParser(LONGEST_LINE)
    with into, contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            while data := await read(0):
                for message in parser.feed(data):
                    await into.send(message)
        except LineTooLong as error:
            say(f"the client sent {error}; the connection ends")


async def _write_messages(
    messages: MemoryObjectReceiveStream[SessionMessage], output: Output, reading: MemoryObjectSendStream[Incoming]
) -> None:
    try:
        async with messages:
            async for message in messages:
                await output.write(encode_message(message))
    except OSError:
        reading.close()  # the client has gone, so that no request is worth being answered


@contextmanager
def _private_output() -> Generator[int]:
    """Return a descriptor of our standard output, which prints to standard error meanwhile."""
    fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(2, 1)
    try:
        yield fd
    finally:
        os.dup2(fd, 1)
        os.close(fd)
