"""Why Modal cannot be used from here, step by step: each check names the command that mends it."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends.modal.account import Account, bound_throttling, credentials
from hermes_exec_backends.modal.failures import NEW_TOKEN

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.modal import ModalProfile

TESTED = (1, 6)
"""The release of the SDK that the tests drive; its wire format is recorded there."""
_HELLO_S = 15.0
_KNOCK_S = 5.0
_CLOCK_S = 60.0
_NETWORK = "check the network and its proxy, MODAL_SERVER_URL, and status.modal.com"
_UPGRADE = "pip install --upgrade 'hermes-exec[modal]'"


async def checks(profile: ModalProfile | None = None) -> list[Check]:
    """The SDK, its version, the token, the service, the clock, and what is alive."""
    from hermes_exec_backends.profiles.modal import ModalProfile

    bound_throttling()
    wanted = profile or ModalProfile()
    version = _version()
    if version is None:
        return [Check("sdk", "missing", "the package 'modal' is not installed", "pip install 'hermes-exec[modal]'")]
    found = [_drift(version)]
    token = _token(wanted)
    found.append(token)
    if token.status == "missing":
        return found
    return found + await _service(wanted)


def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("modal")
    except PackageNotFoundError:
        return None


def _drift(version: str) -> Check:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers == TESTED:
        return Check("sdk", "ok", f"modal {version}")
    tested = ".".join(map(str, TESTED))
    return Check("sdk", "warning", f"modal {version}, and this version was tested with {tested}", _UPGRADE)


def _token(profile: ModalProfile) -> Check:
    try:
        credentials(profile)
    except HermesError as error:
        return Check("token", "missing", error.what, error.remedy or NEW_TOKEN)
    if profile.token_id:
        where = "the profile"
    elif os.environ.get("MODAL_TOKEN_ID"):
        where = "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
    else:
        where = os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml"
    return Check("token", "ok", f"from {where}")


async def _service(profile: ModalProfile) -> list[Check]:
    from hermes_exec_backends.modal import creating

    server = _server()
    unreachable = await _knock(server)
    if unreachable:
        return [Check("service", "missing", f"{server} cannot be reached: {unreachable}", _NETWORK)]
    clock = _clock(await asyncio.to_thread(_served_at, server))
    try:
        account = await Account.of(profile)
    except PlaceUnavailable as error:
        return [Check("service", "missing", error.what, error.remedy or _NETWORK), *clock]
    try:
        await account.call("modal", account.client.hello.aio(), _HELLO_S)
        alive = await creating.alive(account, {})
    except PlaceUnavailable as error:
        return [Check("service", "missing", error.what, error.remedy or _NETWORK), *clock]
    finally:
        await account.leave()
    app = f"{profile.app}: {len(alive)} sandboxes are alive; quotas are told only when one is exceeded"
    return [Check("service", "ok", f"{server} answers, and takes the token"), *clock, Check("app", "ok", app)]


def _server() -> str:
    from modal.config import config

    settings: Any = config
    return str(settings.get("server_url")).partition(",")[0]


async def _knock(server: str) -> str:
    """Why nobody answers at the service's address; nothing where a proxy is between, which the SDK goes through."""
    parts = urlsplit(server)
    if any(urllib.request.getproxies().get(kind) for kind in ("http", "https", "all")) or not parts.hostname:
        return ""
    try:
        async with asyncio.timeout(_KNOCK_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443)
    except TimeoutError:
        return f"no answer within {_KNOCK_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return ""


def _served_at(server: str) -> float | None:
    """The service's time in seconds since 1970, by the date that it puts on whatever it answers."""
    if not server.startswith("https://"):
        return None
    try:
        with urllib.request.urlopen(server, timeout=_KNOCK_S) as reply:  # noqa: S310  an https address of Modal's settings
            date = reply.headers.get("Date")
    except urllib.error.HTTPError as refusal:
        date = refusal.headers.get("Date")
    except (OSError, ValueError):
        return None
    return parsedate_to_datetime(date).timestamp() if date else None


def _clock(served_at: float | None) -> list[Check]:
    if served_at is None:
        return []
    apart = abs(time.time() - served_at)
    if apart <= _CLOCK_S:
        return [Check("clock", "ok", "as the service's")]
    detail = f"this machine's clock is {apart:.0f} s off the service's, so tokens seem expired or not valid yet"
    return [Check("clock", "warning", detail, "sudo timedatectl set-ntp true")]
