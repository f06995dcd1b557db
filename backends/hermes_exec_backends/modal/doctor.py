"""Checks of ``doctor`` for Modal: the SDK, the token, the service, the clock and the account."""

from __future__ import annotations

import asyncio
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends._shared.doctor import check_clock, check_package
from hermes_exec_backends.modal import create
from hermes_exec_backends.modal.account import Account, credentials, limit_throttling
from hermes_exec_backends.modal.connectivity import look, servers
from hermes_exec_backends.modal.errors import DOCTOR, NEW_TOKEN

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.modal import ModalProfile

TESTED = "1.6"
"""The release of the SDK that the tests drive; its wire format is recorded there."""
_ANSWER_S = 8.0
_DATE_S = 3.0
_NETWORK = "check the network and its proxy, MODAL_SERVER_URL, and status.modal.com"


async def checks(profile: ModalProfile | None = None) -> list[Check]:
    """Check the SDK, the token, the service, the clock, and the app of a profile."""
    from hermes_exec_backends.profiles.modal import ModalProfile

    limit_throttling()
    wanted = profile or ModalProfile()
    sdk = check_package("modal", "modal", tested=TESTED)
    if sdk.status == "missing":
        return [sdk]
    token = _token(wanted)
    return [sdk, token] if token.status == "missing" else [sdk, token, *await _service(wanted)]


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
        detail = "its id and its secret come from two sources, which may be halves of two tokens"
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
    date = await asyncio.to_thread(_date, server)
    clock = [check_clock(date)] if date else []
    try:
        async with asyncio.timeout(_ANSWER_S):
            alive = await _count(profile)
    except TimeoutError:
        return [Check("service", "missing", f"{server} does not answer within {_ANSWER_S:g} s", _NETWORK), *clock]
    except PlaceUnavailable as error:
        remedy = _NETWORK if error.remedy in {"", DOCTOR} else error.remedy
        return [Check("service", "missing", error.what, remedy), *clock]
    app = f"{profile.app}: {alive} sandboxes are running; Modal reports a quota only once it is exceeded"
    return [Check("service", "ok", f"{server} answers and accepts the token"), *clock, Check("app", "ok", app)]


async def _count(profile: ModalProfile) -> int:
    """Count the running sandboxes of the app."""
    account = await Account.of(profile)
    try:
        await account.call("modal", account.client.hello.aio())
        return len(await create.list_running(account, {}))
    finally:
        await account.leave()


def _date(server: str) -> str:
    """Return the Date header of a response of the service; empty where there is none."""
    if not server.startswith("https://"):
        return ""
    try:
        with urllib.request.urlopen(server, timeout=_DATE_S) as reply:  # noqa: S310  an https address of Modal's settings
            return reply.headers.get("Date") or ""
    except urllib.error.HTTPError as refusal:
        return refusal.headers.get("Date") or ""
    except (OSError, ValueError):
        return ""
