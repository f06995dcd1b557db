"""Access to an engine: an SDK client for requests, and raw sockets for streams.

Both are created only here, so that another route (a tunnel) replaces one class. The SDK blocks; its calls run in a few
threads of the backend. Streams need no thread: their sockets are on the event loop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.extras import require
from hermes_exec.transport.heartbeat import DEFAULT_S
from hermes_exec_backends.docker import address as addresses
from hermes_exec_backends.docker.errors import sdk_errors, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hermes_exec_backends.docker.address import Address

T = TypeVar("T")
_THREADS = 4
_CONNECT_S = 20.0
_thread = threading.local()
REQUEST_S = 120.0
"""Seconds without a byte that one request may take; pulls and builds report progress all the time."""
SOON_S = 45.0
"""The same for requests that an engine answers at once."""


class Engine:
    """One engine, reached directly. Use it on one event loop."""

    def __init__(self, wanted: str | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.keepalive_s = DEFAULT_S
        """See ``Profile``."""
        self._wanted = wanted
        self._environ = os.environ if environ is None else environ
        self._address: Address | None = None
        self._client: Any = None  # the SDK's own types are incomplete
        self._threads: ThreadPoolExecutor | None = None

    @property
    def address(self) -> Address:
        """Return the engine's address.

        Raises:
            ConfigError: the configured address is invalid.
            PlaceUnavailable: no address is configured, and no default socket answers.
        """
        if self._address is None:
            self._address = addresses.find(self._wanted, self._environ)
        return self._address

    @property
    def version(self) -> str:
        """Return the version of the API that both sides support; known once the engine is open."""
        return str(self._client.api_version) if self._client is not None else ""

    async def open(self) -> None:
        """Connect, and negotiate a version of the API. Safe to call twice.

        Raises:
            MissingExtra: the SDK is not installed.
            PlaceUnavailable: there is no engine, or no permission.
        """
        if self._client is None:
            self._client = await self._run(self.connect_client)

    def connect_client(self) -> Any:
        """Return a new SDK client; blocks."""
        require("docker", "docker")
        with sdk_errors("docker: the engine cannot be used", self.address):
            from docker import APIClient
            from docker.tls import TLSConfig

            class Client(APIClient):
                """A client that trusts the engine's authority, and not those that variables name for the web."""

                def merge_environment_settings(
                    self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
                ) -> Any:
                    known = self.verify if verify is None else verify
                    return super().merge_environment_settings(url, proxies, stream, known, cert)

                def request(self, *args: Any, **options: Any) -> Any:
                    if patience_s := getattr(_thread, "patience_s", None):
                        options["timeout"] = patience_s
                    return super().request(*args, **options)

            tls: Any = None
            folder = self.address.certificates
            if folder is not None:
                tls = TLSConfig(
                    client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
                    ca_cert=str(folder / "ca.pem"),
                    verify=self.address.verify,
                )
            return Client(base_url=str(self.address), version="auto", timeout=int(REQUEST_S), tls=tls or False)

    async def call(self, what: str, request: Callable[[Any], T], patience_s: float | None = None) -> T:
        """Send a request; ``what`` begins the error's text, ``patience_s`` is for a request that is answered at once.

        Raises:
            PlaceUnavailable: the engine refused, or could not be reached.
        """
        client = self._client
        if client is None:
            raise PlaceUnavailable(f"{what}: the engine's connection is closed")

        def work() -> T:
            _thread.patience_s = patience_s  # the SDK's methods have no parameter for it
            with sdk_errors(what, self.address):
                return request(client)

        return await self._run(work)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "hermes-exec-docker")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def connect(self) -> socket.socket:
        """Return a new connected socket for a stream; it does not block.

        Raises:
            PlaceUnavailable: the engine does not answer.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await self._socket()
        except (OSError, ssl.SSLError) as error:  # also the time-out
            raise unreachable("docker: the engine cannot be reached", self.address, error) from error

    async def _socket(self) -> socket.socket:
        where = self.address
        loop = asyncio.get_running_loop()
        if where.path:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            target: Any = where.path
        else:
            ((family, kind, protocol, _, target), *_) = await loop.getaddrinfo(
                where.host, where.port, type=socket.SOCK_STREAM
            )
            made = socket.socket(family, kind, protocol)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made.setblocking(False)
            await loop.sock_connect(made, target)
            if where.certificates is not None:
                return await self._run(lambda: self._with_tls(made))
        except BaseException:
            made.close()
            raise
        return made

    def _with_tls(self, made: socket.socket) -> socket.socket:
        folder = self.address.certificates
        context = ssl.create_default_context(cafile=f"{folder}/ca.pem" if self.address.verify else None)
        if not self.address.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
        made.settimeout(_CONNECT_S)
        secured = context.wrap_socket(made, server_hostname=self.address.host)
        secured.setblocking(False)
        return secured

    async def close(self) -> None:
        """Close every connection. Safe to call twice; ``open`` opens the engine again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
