"""Why Modal cannot be used from here, step by step: each check names the command that mends it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends.modal.account import Account, bound_throttling, credentials
from hermes_exec_backends.modal.failures import NEW_TOKEN

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.modal import ModalProfile

TESTED = (1, 6)
"""The release of the SDK that the tests drive; its wire format is recorded there."""
_HELLO_S = 15.0
_UPGRADE = "pip install --upgrade 'hermes-exec[modal]'"


async def checks(profile: ModalProfile | None = None) -> list[Check]:
    """The SDK, its version, the token, the service, the clock, and what is alive."""
    from hermes_exec_backends.profiles.modal import ModalProfile

    bound_throttling()
    wanted = profile or ModalProfile()
    version = _version()
    if version is None:
        return [Check("SDK", "missing", "the package 'modal' is not installed", "pip install 'hermes-exec[modal]'")]
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
        return Check("SDK", "ok", f"modal {version}")
    tested = ".".join(map(str, TESTED))
    return Check("SDK", "warning", f"modal {version}, and this version was tested with {tested}", _UPGRADE)


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

    try:
        account = await Account.of(profile)
    except PlaceUnavailable as error:
        return [Check("service", "missing", error.what, error.remedy or "check the network and status.modal.com")]
    try:
        await account.call("modal", account.client.hello.aio(), _HELLO_S)
        alive = await creating.alive(account, {})
        return [
            Check("service", "ok", f"{_server()} answers, and takes the token"),
            Check("app", "ok", f"{profile.app}: {len(alive)} sandboxes are alive", ""),
        ]
    except PlaceUnavailable as error:
        return [Check("service", "missing", error.what, error.remedy or "check the network and status.modal.com")]
    finally:
        await account.leave()


def _server() -> str:
    from modal.config import config

    settings: Any = config
    return str(settings.get("server_url"))
