"""The vendor's service through its own asynchronous SDK, which is imported on first use.

The SDK reads settings that its configuration omits from ``.env`` files of the working directory, which other users may
have written. So it receives the key and the address explicitly, and every other variable that it reads is set
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import warnings
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec.extras import require
from hermes_exec_backends._shared.connectivity import Endpoint, Obstacle, find_obstacle
from hermes_exec_backends.daytona.errors import KEYS, sdk_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from hermes_exec_backends.profiles.daytona import DaytonaProfile

API_URL = "https://app.daytona.io/api"
_UNTRUSTED = "export SSL_CERT_FILE=FILE, with the certificate of the authority that signed it (a proxy's, often)"
REQUEST_S = 30.0
"""The time limit of one short request."""
STATE_S = 120.0
"""The time limit of a change of state, such as a start."""
VARIABLES = (
    "DAYTONA_API_KEY", "DAYTONA_API_URL", "DAYTONA_SERVER_URL", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID",
    "DAYTONA_TARGET", "DAYTONA_HAPPY_EYEBALLS_DELAY", "DAYTONA_USE_DEPRECATED_POLLING", "DAYTONA_OTEL_ENABLED",
    "DAYTONA_EXPERIMENTAL_OTEL_ENABLED",
)  # fmt: skip
"""All variables that the SDK reads."""
_variables = threading.Lock()


@dataclass(frozen=True, slots=True)
class Account:
    """An account and the address of its service, from a profile or the environment."""

    key: str
    api_url: str
    region: str | None
    organization: str | None

    @classmethod
    def of(cls, profile: DaytonaProfile) -> Account:
        """Look up the key; a profile's source may ask the user.

        Raises:
            PlaceUnavailable: the profile's source has no key.
        """
        from hermes_exec.config.secrets import resolve_secrets

        try:
            secret = resolve_secrets({"api_key": profile.api_key}, os.environ)["api_key"]
        except ConfigError as error:
            raise PlaceUnavailable(f"daytona: no key: {error.what}", remedy=KEYS) from None
        return cls(
            secret.reveal(),
            profile.api_url or os.environ.get("DAYTONA_API_URL") or API_URL,
            profile.region or os.environ.get("DAYTONA_TARGET"),
            profile.organization or os.environ.get("DAYTONA_ORGANIZATION_ID"),
        )

    def __repr__(self) -> str:
        """Return the account without its key."""
        return f"Account({self.api_url!r})"


@dataclass(frozen=True, slots=True)
class Preview:
    """The public address of a port: the ``token`` goes into the header x-daytona-preview-token."""

    url: str
    token: str = field(repr=False)


@contextlib.contextmanager
def _nothing_of_the_folder() -> Generator[None]:
    with _variables, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignoring such a file's address is intended
        unset = [name for name in VARIABLES if name not in os.environ]
        os.environ.update(dict.fromkeys(unset, ""))
        try:
            yield
        finally:
            for name in unset:
                os.environ.pop(name, None)


@dataclass(slots=True)
class _Shared:
    """A shared SDK client of one account on one event loop: creating one takes a tenth of a second."""

    client: asyncio.Task[Any]
    users: int = 0


_shared: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Account, _Shared]] = weakref.WeakKeyDictionary()


async def _use(account: Account) -> Any:
    """Return the client of an account, created if there is none; the caller releases it with ``_release_client``."""
    here = _shared.setdefault(asyncio.get_running_loop(), {})
    if account not in here:
        here[account] = _Shared(asyncio.get_running_loop().create_task(asyncio.to_thread(make, account)))
    shared = here[account]
    shared.users += 1
    try:
        return await asyncio.shield(shared.client)
    except BaseException:
        await _release_client(account)
        raise


async def _release_client(account: Account) -> None:
    """Decrement the number of users; close the client when it is 0."""
    here = _shared[asyncio.get_running_loop()]
    shared = here[account]
    shared.users -= 1
    if not shared.users:
        del here[account]
        with contextlib.suppress(ImportError):  # the caller of ``open`` receives this error
            await (await shared.client).close()


class Service:
    """The service as one target uses it, on one event loop. Every method raises this project's errors."""

    def __init__(self, profile: DaytonaProfile) -> None:
        self._profile = profile
        self._client: Any = None
        self.account: Account | None = None

    @property
    def client(self) -> Any:
        """Return the SDK's client.

        Raises:
            PlaceUnavailable: it is not open.
        """
        if self._client is None:
            raise PlaceUnavailable("daytona: the target is not open")
        return self._client

    async def open(self) -> None:
        """Create the client; no request is sent yet.

        Raises:
            MissingExtra: the SDK is not installed.
            PlaceUnavailable: there is no key.
        """
        require("daytona", "daytona")
        self.account = account = await asyncio.to_thread(Account.of, self._profile)
        with sdk_errors("the SDK"):
            self._client = await _use(account)

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None and self.account is not None:
            with sdk_errors("the connections were not closed"):
                await _release_client(self.account)

    async def find_obstacle(self) -> Obstacle | None:
        """Return the obstacle to a connection; None where the service answers, or the target is not open."""
        return await find_obstacle(endpoint(self.account.api_url)) if self.account else None

    async def get(self, name: str) -> Any:
        """Return the sandbox of that id or name in its present state.

        Raises:
            PlaceGone: there is none.
            PlaceUnavailable: the service does not answer.
        """
        with sdk_errors(f"sandbox {name!r}"):
            return await self.client.get(name, request_timeout=REQUEST_S)

    async def list_sandboxes(self, labels: dict[str, str]) -> list[Any]:
        """Return every sandbox with these labels."""
        from daytona import ListSandboxesQuery

        with sdk_errors("the list of sandboxes"):
            query = ListSandboxesQuery(labels=labels, limit=100)
            return [sandbox async for sandbox in self.client.list(query, request_timeout=REQUEST_S)]


def endpoint(api_url: str) -> Endpoint:
    """Return the endpoint that checks the connection to the service."""
    parts = urlsplit(api_url)
    lines = [
        f"GET {parts.path}/api-keys/current HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        "Connection: close",
    ]
    return Endpoint(api_url, ("\r\n".join(lines) + "\r\n\r\n").encode(), _UNTRUSTED)


def build_default_profile() -> DaytonaProfile:
    """Return the account without a profile: the environment's key, at the vendor's address or the environment's."""
    from hermes_exec_backends.profiles.daytona import DaytonaProfile

    return DaytonaProfile()


@contextlib.asynccontextmanager
async def open_service(profile: DaytonaProfile | None) -> AsyncGenerator[Service]:
    """Open the service of an account for a few requests."""
    service = Service(profile or build_default_profile())
    await service.open()
    try:
        yield service
    finally:
        await service.close()


def make(account: Account) -> Any:
    """Create a client of an account. The first one imports the SDK, which takes seconds; meant for a thread."""
    from daytona import AsyncDaytona, DaytonaConfig

    config = DaytonaConfig(
        api_key=account.key, api_url=account.api_url, target=account.region, organization_id=account.organization
    )
    with _nothing_of_the_folder():
        return AsyncDaytona(config)


def is_gone(state: str) -> bool:
    """Return whether a sandbox in this state has lost all of its processes."""
    return state in {
        "stopped", "stopping", "archived", "archiving", "destroyed", "destroying", "error", "build_failed",
    }  # fmt: skip


def describe(sandbox: Any) -> str:
    """Return the state of a sandbox, for display."""
    state = str(getattr(sandbox.state, "value", sandbox.state))
    if sandbox.spot_evicted_at:
        return "the sandbox was evicted for a customer who pays more"
    words = {
        "stopped": "was stopped", "stopping": "was stopped", "archived": "was archived", "archiving": "was archived",
        "destroyed": "was deleted", "destroying": "was deleted", "error": "failed",
    }  # fmt: skip
    reason = f": {sandbox.error_reason}" if sandbox.error_reason else ""
    return f"the sandbox {words.get(state, 'is ' + state)}{reason}"
