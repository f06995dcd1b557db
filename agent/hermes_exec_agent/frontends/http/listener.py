"""Listen on an address or a unix socket of this user, and shut down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from hermes_exec._async import shield_to_completion
from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator

    from hermes_exec_agent.frontends.http.connections import Connections

REQUEST_S = 30.0
"""The time limit for a connection to send the headers of its next request."""
_LINE = 8190
"""The limit of bytes of the request line and of each of at most 128 headers."""
_AT_ONCE_S = 0.01
"""The shortest timeout: the library treats zero as none."""
_AT_ONCE = 16
"""Connections accepted in one batch, before earlier ones are read: too few to evict all of these."""
_WAITING = 128
"""The limit of connections that the kernel queues."""


class HttpServer(Protocol):
    """What answers the requests of a listener."""

    stopping: bool
    connections: Connections
    app: web.Application

    @property
    def requires_token(self) -> bool:
        """Whether requests need a token."""
        ...

    async def end_runs(self, grace_s: float, /) -> None:
        """End work that no client waits for; called at shutdown, before connections are closed."""
        ...

    async def close(self) -> None:
        """Release everything; called after the last request."""
        ...


async def serve_until_cancelled(
    server: HttpServer,
    where: tuple[str, int] | Path,
    *,
    grace_s: float,
    listening: Callable[[str], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until cancelled; then wait ``grace_s`` seconds for turns, interrupt the others, and close the targets.

    Args:
        server: answers the requests.
        where: an address and a port, or the path of a unix socket to create.
        grace_s: the time for turns to end at shutdown.
        listening: called with each URL, or with ``unix:PATH``.
        tls: serves HTTPS at an address.

    Raises:
        ConfigError: the address is not available, or has no token; or the socket cannot be created, or other users
            could reach it.
    """
    if not isinstance(where, Path) and not server.requires_token:
        raise ConfigError("an address needs a token: other users of this machine reach it too")
    runner = web.AppRunner(
        server.app,
        access_log=None,
        handler_cancellation=True,  # a client that has disconnected needs no response
        auto_decompress=False,  # a small body must not become a large one
        shutdown_timeout=max(grace_s, _AT_ONCE_S),
        keepalive_timeout=REQUEST_S,
        max_line_size=_LINE,
        max_field_size=_LINE,
    )
    await runner.setup()
    if runner.server is None:
        raise RuntimeError("the runner has no server after its setup")
    server.connections.set_protocol_factory(runner.server)
    listener: asyncio.Server | None = None
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(where, Path):
                bound = stack.enter_context(_bind_unix_socket(where))
                listener = await loop.create_unix_server(server.connections, sock=bound, backlog=_AT_ONCE)
                listening(f"unix:{where}")
            else:
                listener = await _listen(server.connections, *where, tls)
                for each in listener.sockets:
                    listening(_format_url(each, "https" if tls else "http"))
            for each in listener.sockets:
                with socket.socket(fileno=os.dup(each.fileno())) as same:
                    same.listen(_WAITING)
            await asyncio.Event().wait()
        finally:
            server.stopping = True
            if listener is not None:
                listener.close()
            await shield_to_completion(server.end_runs(grace_s), limit_s=None)
            await runner.cleanup()
            await server.close()


async def _listen(connections: Connections, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(connections, host, port, backlog=_AT_ONCE, ssl=tls)
    except (OSError, UnicodeError) as error:  # an invalid name raises a UnicodeError
        code = error.errno if isinstance(error, OSError) else None
        why = os.strerror(code) if code is not None and code > 0 else "the address is not known here"
        raise ConfigError(
            f"{to_printable(host)}:{port}: {why}", remedy="another --port, or --port 0; or another --host"
        ) from error


@contextlib.contextmanager
def _bind_unix_socket(path: Path) -> Generator[socket.socket]:
    """Bind a socket (0600) in a folder of this user (0700), which is created; remove the socket at the end."""
    try:
        make_private_folder(path.parent)
        folder = path.parent.stat()
    except OSError as error:
        raise ConfigError(
            f"{to_printable(path.parent)}: {error.strerror}", remedy="--socket in a folder that can be created"
        ) from error
    if folder.st_uid != os.geteuid() or folder.st_mode & 0o077:
        raise ConfigError(
            f"{to_printable(path.parent)}: other users have access (mode {stat.S_IMODE(folder.st_mode):04o})",
            remedy="--socket in a private folder (0700), which is created if it does not exist",
        )
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        old = os.umask(0o177)
        try:
            bound.bind(str(path))
        finally:
            os.umask(old)
        inode = path.lstat().st_ino
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{to_printable(path)}: {error.strerror or error}", remedy="--socket with another path"
        ) from error
    try:
        yield bound
    finally:
        bound.close()
        with contextlib.suppress(OSError):
            if path.lstat().st_ino == inode:
                path.unlink()


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that has ended.

    Raises:
        OSError: the path is another file, or a running server listens on it.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(0, "the file exists, and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(0, "a server is already listening on it")


def _format_url(listening: socket.socket, scheme: str) -> str:
    address, port = listening.getsockname()[:2]
    named = f"[{address}]" if listening.family == socket.AF_INET6 else address
    return f"{scheme}://{named}:{port}"
