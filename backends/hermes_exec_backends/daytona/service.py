"""The vendor's service through its own asynchronous SDK, which is imported when it is first needed.

The SDK takes what its configuration leaves out from ``.env`` files of the working directory, which anybody may have
written. So the key and the address are given to it, and every other variable that it looks for is set while it looks.
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
"""For one short request."""
STATE_S = 120.0
"""For a change of state, such as a start."""
VARIABLES = (
    "DAYTONA_API_KEY", "DAYTONA_API_URL", "DAYTONA_SERVER_URL", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID",
    "DAYTONA_TARGET", "DAYTONA_HAPPY_EYEBALLS_DELAY", "DAYTONA_USE_DEPRECATED_POLLING", "DAYTONA_OTEL_ENABLED",
    "DAYTONA_EXPERIMENTAL_OTEL_ENABLED",
)  # fmt: skip
"""All that the SDK reads."""
_variables = threading.Lock()


@dataclass(frozen=True, slots=True)
class Account:
    """Whose sandboxes, and where: what a profile says, or the environment."""

    key: str
    api_url: str
    region: str | None
    organization: str | None

    @classmethod
    def of(cls, profile: DaytonaProfile) -> Account:
        """Look the key up, which may ask its person something.

        Raises:
            PlaceUnavailable: there is no key where the profile says.
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
        """Without the key."""
        return f"Account({self.api_url!r})"


@dataclass(frozen=True, slots=True)
class Preview:
    """Where a port is reached from anywhere: the ``token`` goes into the header x-daytona-preview-token."""

    url: str
    token: str = field(repr=False)


@contextlib.contextmanager
def _nothing_of_the_folder() -> Generator[None]:
    with _variables, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that such a file's address is ignored is what we want
        unset = [name for name in VARIABLES if name not in os.environ]
        os.environ.update(dict.fromkeys(unset, ""))
        try:
            yield
        finally:
            for name in unset:
                os.environ.pop(name, None)


@dataclass(slots=True)
class _Shared:
    """The SDK's client of one account on one event loop, for everybody there: making one takes a tenth of a second."""

    client: asyncio.Task[Any]
    users: int = 0


_shared: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Account, _Shared]] = weakref.WeakKeyDictionary()


async def _use(account: Account) -> Any:
    """The client of an account, made when there is none; whoever got it says when it is ``_done``."""
    here = _shared.setdefault(asyncio.get_running_loop(), {})
    if account not in here:
        here[account] = _Shared(asyncio.get_running_loop().create_task(asyncio.to_thread(make, account)))
    shared = here[account]
    shared.users += 1
    try:
        return await asyncio.shield(shared.client)
    except BaseException:
        await _done(account)
        raise


async def _done(account: Account) -> None:
    """One user less; with the last one the client is closed."""
    here = _shared[asyncio.get_running_loop()]
    shared = here[account]
    shared.users -= 1
    if not shared.users:
        del here[account]
        with contextlib.suppress(ImportError):  # which is told to whoever asked for it
            await (await shared.client).close()


class Service:
    """The service as one place uses it, on one event loop. Every method raises our errors."""

    def __init__(self, profile: DaytonaProfile) -> None:
        self._profile = profile
        self._client: Any = None
        self.account: Account | None = None

    @property
    def client(self) -> Any:
        """The SDK's client.

        Raises:
            PlaceUnavailable: it is not open.
        """
        if self._client is None:
            raise PlaceUnavailable("daytona: the place is not open")
        return self._client

    async def open(self) -> None:
        """Make the client; nothing is asked yet.

        Raises:
            MissingExtra: no SDK.
            PlaceUnavailable: no key.
        """
        require("daytona", "daytona")
        self.account = account = await asyncio.to_thread(Account.of, self._profile)
        with sdk_errors("the SDK"):
            self._client = await _use(account)

    async def close(self) -> None:
        """Let go of every connection. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None and self.account is not None:
            with sdk_errors("the connections were not closed"):
                await _done(self.account)

    async def find_obstacle(self) -> Obstacle | None:
        """What keeps a connection from the service; None where it answers, or the place is not open."""
        return await find_obstacle(endpoint(self.account.api_url)) if self.account else None

    async def get(self, name: str) -> Any:
        """The sandbox of that id or name, as it is now.

        Raises:
            PlaceGone: there is none.
            PlaceUnavailable: the service does not say.
        """
        with sdk_errors(f"sandbox {name!r}"):
            return await self.client.get(name, request_timeout=REQUEST_S)

    async def listed(self, labels: dict[str, str]) -> list[Any]:
        """Every sandbox with these labels."""
        from daytona import ListSandboxesQuery

        with sdk_errors("the list of sandboxes"):
            query = ListSandboxesQuery(labels=labels, limit=100)
            return [sandbox async for sandbox in self.client.list(query, request_timeout=REQUEST_S)]


def endpoint(api_url: str) -> Endpoint:
    """How the service is looked at."""
    parts = urlsplit(api_url)
    lines = [
        f"GET {parts.path}/api-keys/current HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        "Connection: close",
    ]
    return Endpoint(api_url, ("\r\n".join(lines) + "\r\n\r\n").encode(), _UNTRUSTED)


def unconfigured() -> DaytonaProfile:
    """What there is without a profile: the environment's key, at the vendor's own address or the environment's."""
    from hermes_exec_backends.profiles.daytona import DaytonaProfile

    return DaytonaProfile()


@contextlib.asynccontextmanager
async def open_service(profile: DaytonaProfile | None) -> AsyncGenerator[Service]:
    """The service of an account, to be asked something."""
    service = Service(profile or unconfigured())
    await service.open()
    try:
        yield service
    finally:
        await service.close()


def make(account: Account) -> Any:
    """A client for an account. The first one imports the SDK, which takes seconds; meant for a thread."""
    from daytona import AsyncDaytona, DaytonaConfig

    config = DaytonaConfig(
        api_key=account.key, api_url=account.api_url, target=account.region, organization_id=account.organization
    )
    with _nothing_of_the_folder():
        return AsyncDaytona(config)


def is_gone(state: str) -> bool:
    """Whether a sandbox in this state has lost everything that ran in it."""
    return state in {
        "stopped", "stopping", "archived", "archiving", "destroyed", "destroying", "error", "build_failed",
    }  # fmt: skip


def describe(sandbox: Any) -> str:
    """The state of a sandbox, for people."""
    state = str(getattr(sandbox.state, "value", sandbox.state))
    if sandbox.spot_evicted_at:
        return "the sandbox was evicted for somebody who pays more"
    words = {
        "stopped": "was stopped", "stopping": "was stopped", "archived": "was archived", "archiving": "was archived",
        "destroyed": "was deleted", "destroying": "was deleted", "error": "failed",
    }  # fmt: skip
    reason = f": {sandbox.error_reason}" if sandbox.error_reason else ""
    return f"the sandbox {words.get(state, 'is ' + state)}{reason}"
