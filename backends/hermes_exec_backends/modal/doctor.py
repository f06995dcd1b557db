"""Why Modal cannot be used from here, step by step: each check names the command that mends it."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec.extras import install_command
from hermes_exec_backends.modal import create
from hermes_exec_backends.modal.account import Account, bound_throttling, credentials
from hermes_exec_backends.modal.connectivity import look, servers
from hermes_exec_backends.modal.errors import DOCTOR, NEW_TOKEN

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.modal import ModalProfile

TESTED = (1, 6)
"""The release of the SDK that the tests drive; its wire format is recorded there."""
_ANSWER_S = 8.0
_DATE_S = 3.0
_CLOCK_S = 60.0
_NETWORK = "check the network and its proxy, MODAL_SERVER_URL, and status.modal.com"


async def checks(profile: ModalProfile | None = None) -> list[Check]:
    """The SDK, its version, the token, the service, the clock, and what is alive."""
    from hermes_exec_backends.profiles.modal import ModalProfile

    bound_throttling()
    wanted = profile or ModalProfile()
    version = _version()
    if version is None:
        return [Check("sdk", "missing", "the package 'modal' is not installed", install_command("modal"))]
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
    return Check(
        "sdk",
        "warning",
        f"modal {version}, and this version was tested with {tested}",
        install_command("modal", upgrade=True),
    )


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
    if bool(profile.token_id) != bool(profile.token_secret) or (not profile.token_id and _is_mixed()):
        detail = "its id and its secret come from two places, which may be halves of two tokens"
        return Check("token", "warning", detail, "set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET both, or neither")
    return Check("token", "ok", f"from {where}")


def _is_mixed() -> bool:
    """Whether the environment has only one half of a token."""
    return bool(os.environ.get("MODAL_TOKEN_ID")) != bool(os.environ.get("MODAL_TOKEN_SECRET"))


async def _service(profile: ModalProfile) -> list[Check]:
    server = servers()[0]
    obstacle = await look()
    if obstacle is not None:
        return [Check("service", "missing", f"{server} cannot be reached: {obstacle.what}", obstacle.remedy)]
    clock = _clock(await asyncio.to_thread(_served_at, server))
    try:
        async with asyncio.timeout(_ANSWER_S):
            alive = await _count(profile)
    except TimeoutError:
        return [Check("service", "missing", f"{server} gives no answer within {_ANSWER_S:g} s", _NETWORK), *clock]
    except PlaceUnavailable as error:
        remedy = _NETWORK if error.remedy in {"", DOCTOR} else error.remedy
        return [Check("service", "missing", error.what, remedy), *clock]
    app = f"{profile.app}: {alive} sandboxes are alive; quotas are told only when one is exceeded"
    return [Check("service", "ok", f"{server} answers, and takes the token"), *clock, Check("app", "ok", app)]


async def _count(profile: ModalProfile) -> int:
    """How many sandboxes of the app are alive."""
    account = await Account.of(profile)
    try:
        await account.call("modal", account.client.hello.aio())
        return len(await create.alive(account, {}))
    finally:
        await account.leave()


def _served_at(server: str) -> float | None:
    """The service's time in seconds since 1970, by the date that it puts on whatever it answers."""
    if not server.startswith("https://"):
        return None
    try:
        with urllib.request.urlopen(server, timeout=_DATE_S) as reply:  # noqa: S310  an https address of Modal's settings
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
