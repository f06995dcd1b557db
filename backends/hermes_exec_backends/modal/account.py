"""Access to Modal: one client for each token and event loop, shared by all backends with that token.

Every call has a time limit: the SDK waits without one when it is throttled, and for most of its responses.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec.config.secrets import resolve_secrets
from hermes_exec_backends._shared.connectivity import Obstacle, Unreached, abandon, explain_delay
from hermes_exec_backends.modal.connectivity import look
from hermes_exec_backends.modal.errors import NEW_TOKEN, AmbiguousOutcome, NotFound, Refused, sdk_errors

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hermes_exec_backends.profiles.modal import ModalProfile

T = TypeVar("T")
CALL_S = 60.0
"""Seconds that one request may take, with all retries of the SDK."""
BUILD_S = 3600.0
"""Seconds that building an image may take."""
_THROTTLED_S = "20"
_SWITCH = "MODAL_MAX_THROTTLE_WAIT"
_accounts: dict[tuple[object, ...], Account] = {}


def limit_throttling() -> None:
    """Make the SDK give up after long throttling, unless a limit is set; a variable is its only setting for that."""
    os.environ.setdefault(_SWITCH, _THROTTLED_S)


class Account:
    """A client of the SDK, with cached results: the app, and built images."""

    def __init__(self, key: tuple[object, ...]) -> None:
        self.app: Any = None
        self.images: dict[str, Any] = {}
        self._key = key
        self._users = 0
        self._client: Any = None
        self._lock = asyncio.Lock()

    @classmethod
    async def of(cls, profile: ModalProfile) -> Account:
        """Return the account of a profile, or of Modal's own settings; the caller must ``leave`` it in the end.

        Raises:
            ConfigError: a source of the token has no value.
            PlaceUnavailable: there is no SDK, no token, or no such app and no permission to create it.
        """
        token_id, token_secret = credentials(profile)
        digest = hashlib.sha256(token_secret.encode()).hexdigest()
        server = os.environ.get("MODAL_SERVER_URL", "")
        loop = asyncio.get_running_loop()
        key = (loop, server, token_id, digest, profile.app, profile.environment)
        account = _accounts.setdefault(key, cls(key))
        account._users += 1  # noqa: SLF001  our own
        try:
            await account._open(profile, token_id, token_secret)  # noqa: SLF001  our own
        except BaseException:
            await account.leave()
            raise
        return account

    async def _open(self, profile: ModalProfile, token_id: str, token_secret: str) -> None:
        async with self._lock:
            if self.app is not None:
                return
            modal = sdk()
            try:
                await explain_delay(self._reach(modal, profile, token_id, token_secret), look, _build_unreached_error)
            except AmbiguousOutcome as error:
                obstacle = await look()
                if obstacle is None:
                    raise
                raise _build_unreached_error(obstacle) from error
            except NotFound as error:
                name = profile.environment or "of the account's default"
                raise Refused(f"{error.what} (environment {name})", remedy="modal environment list") from error

    async def _reach(self, modal: Any, profile: ModalProfile, token_id: str, token_secret: str) -> None:
        if self._client is None:
            with sdk_errors("modal: no connection"):
                self._client = await modal.Client.from_credentials.aio(token_id, token_secret)
        self.app = await self.call(
            f"modal: the app {profile.app!r}",
            modal.App.lookup.aio(
                profile.app,
                create_if_missing=True,
                environment_name=profile.environment,
                client=self._client,
            ),
        )

    @property
    def client(self) -> Any:
        """Return the SDK's client."""
        return self._client

    async def call(self, what: str, work: Awaitable[T], limit_s: float = CALL_S) -> T:
        """Wait for a request of the SDK; ``what`` begins the error's text.

        Raises:
            PlaceUnavailable: Modal refused, could not be reached, or did not answer in time.
        """
        with sdk_errors(what):
            task = asyncio.ensure_future(work)
            try:
                done, _ = await asyncio.wait([task], timeout=limit_s)
            except asyncio.CancelledError:
                abandon(task)
                raise
            if not done:
                abandon(task)
                raise TimeoutError
            return task.result()

    async def leave(self) -> None:
        """Release the account; the last user closes the client."""
        self._users -= 1
        if self._users <= 0:
            _accounts.pop(self._key, None)
            client, self._client = self._client, None
            if client is not None:
                await client.close.aio()


def _build_unreached_error(obstacle: Obstacle) -> Unreached:
    return Unreached("modal", obstacle)


def sdk() -> Any:
    """Return the SDK, imported on first use; its own types are incomplete.

    Raises:
        PlaceUnavailable: it is not installed.
    """
    with sdk_errors("modal: the SDK cannot be used"):
        import modal
        import modal.experimental  # pyright: ignore[reportUnusedImport]  it is not imported by the package itself

        return modal


def credentials(profile: ModalProfile) -> tuple[str, str]:
    """Return the token of a profile, or of Modal's own settings.

    Raises:
        ConfigError: a source has no value.
        PlaceUnavailable: there is no token, or no SDK.
    """
    sources = {"token_id": profile.token_id, "token_secret": profile.token_secret}
    named = resolve_secrets({name: source for name, source in sources.items() if source}, os.environ)
    with sdk_errors("modal: the settings cannot be read"):
        from modal.config import config

        found = [
            named[name].reveal() if name in named else str(config.get(name) or "")
            for name in ("token_id", "token_secret")
        ]
    if not any(found):
        raise Refused("modal: there is no token", remedy=NEW_TOKEN)
    if not all(found):
        half, other = ("id", "secret") if not found[0] else ("secret", "id")
        raise Refused(f"modal: there is no token: its {other} is set, but not its {half}", remedy=NEW_TOKEN)
    return found[0], found[1]
