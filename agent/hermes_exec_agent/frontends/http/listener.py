"""Listening, at an address or at a unix socket of this user's, and an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hermes_exec_agent.frontends.http.app import Server

REQUEST_S = 30.0
"""So long a connection may take to send the next request's first lines, a byte at a time or not at all."""
_LINE = 8190
"""Bytes of the first line and of each header, of which there are 128 at most."""
_AT_ONCE_S = 0.01
"""To the library no time at all is one without an end."""
_AT_ONCE = 16
"""Connections that are accepted before those that were accepted earlier are read from: too few to push them all out."""
_WAITING = 128
"""Connections that wait in the kernel to be accepted."""


async def serve_until_cancelled(
    server: Server, where: tuple[str, int] | Path, *, grace_s: float, listening: Callable[[str], None]
) -> None:
    """Serve until cancelled; then let turns end for ``grace_s`` seconds, interrupt the others, and close the places.

    Args:
        server: what answers.
        where: an address and a port, or the path of a unix socket, which is made.
        grace_s: how long turns may go on at the end.
        listening: is called with each URL, or with ``unix:PATH``.

    Raises:
        OSError: the address cannot be had.
        ConfigError: the socket cannot be made, or others could reach it; an address without a token.
    """
    if not isinstance(where, Path) and not server.requires_token:
        raise ConfigError("an address needs a token: other users of this machine reach it too")
    runner = web.AppRunner(
        server.app,
        access_log=None,
        handler_cancellation=True,  # whoever went away has no use for what would still be done
        auto_decompress=False,  # a small body must not become a large one
        shutdown_timeout=max(grace_s, _AT_ONCE_S),
        keepalive_timeout=REQUEST_S,
        max_line_size=_LINE,
        max_field_size=_LINE,
    )
    await runner.setup()
    if runner.server is None:
        raise RuntimeError("a runner that was set up has no server")
    server.connections.set_protocol_factory(runner.server)
    door: asyncio.Server | None = None
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(where, Path):
                made = stack.enter_context(_unix_socket(where))
                door = await loop.create_unix_server(server.connections, sock=made, backlog=_AT_ONCE)
                listening(f"unix:{where}")
            else:
                door = await loop.create_server(server.connections, *where, backlog=_AT_ONCE)
                for each in door.sockets:
                    listening(_url(each))
            for each in door.sockets:
                with socket.socket(fileno=os.dup(each.fileno())) as same:
                    same.listen(_WAITING)
            await asyncio.Event().wait()
        finally:
            server.stopping = True
            if door is not None:
                door.close()
            await runner.cleanup()
            await server.close()


@contextlib.contextmanager
def _unix_socket(path: Path) -> Generator[socket.socket]:
    """A socket (0600) in a folder of this user's (0700), which is made; its name goes at the end."""
    make_private_folder(path.parent)
    folder = path.parent.stat()
    if folder.st_uid != os.geteuid() or folder.st_mode & 0o077:
        raise ConfigError(
            f"{to_printable(path.parent)}: others may come in (mode {stat.S_IMODE(folder.st_mode):04o})",
            remedy="--socket in a folder that is yours alone (0700), which is made if it is not there",
        )
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        old = os.umask(0o177)
        try:
            made.bind(str(path))
        finally:
            os.umask(old)
        inode = path.lstat().st_ino
    except OSError as error:
        made.close()
        raise ConfigError(
            f"{to_printable(path)}: {error.strerror or error}", remedy="--socket with another path"
        ) from error
    try:
        yield made
    finally:
        made.close()
        with contextlib.suppress(OSError):
            if path.lstat().st_ino == inode:
                path.unlink()


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that has ended.

    Raises:
        OSError: something else is there, or a server that runs.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(0, "it is there already, and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(0, "a server listens there already")


def _url(listens: socket.socket) -> str:
    address, port = listens.getsockname()[:2]
    named = f"[{address}]" if listens.family == socket.AF_INET6 else address
    return f"http://{named}:{port}/v1"
