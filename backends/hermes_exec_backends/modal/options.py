"""Conversion of a profile to the SDK's parameters: the image, and the sandbox's options."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any

from hermes_exec_backends.modal.account import sdk

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_backends.modal.account import Account
    from hermes_exec_backends.profiles.modal import ModalProfile

LONGEST_S = 24 * 3600
"""The vendor's limit of a sandbox's life."""
_MIB = 1 << 20
_SWITCH = "MODAL_SANDBOX_V2"
_firsts = 0
_before: str | None = None


async def image(account: Account, profile: ModalProfile) -> Any:
    """Return the image of a profile; one that this account has used before needs no request.

    Raises:
        NotFound: there is no image of that ID.
    """
    key = _digest(profile)
    if key not in account.images:
        account.images[key] = _describe_image(account, profile)
    return account.images[key]


def _describe_image(account: Account, profile: ModalProfile) -> Any:
    if profile.image and profile.image.startswith("im-"):
        return sdk().Image.from_id(profile.image, client=account.client)
    if profile.dockerfile:
        made = sdk().Image.from_dockerfile(profile.dockerfile)
    elif profile.image:
        made = sdk().Image.from_registry(profile.image)
    else:
        made = sdk().Image.debian_slim(python_version=profile.python_version)
    if profile.packages:
        made = made.apt_install(*profile.packages)
    if profile.requirements:
        made = made.pip_install(*profile.requirements)
    return made


def _digest(profile: ModalProfile) -> str:
    dockerfile = profile.dockerfile.read_bytes().hex() if profile.dockerfile else ""
    parts = [profile.image, dockerfile, profile.python_version, profile.packages, profile.requirements]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sandbox(account: Account, profile: ModalProfile) -> dict[str, Any]:
    """Return the keyword arguments for a new sandbox, apart from its name, its image and its tags."""
    options: dict[str, Any] = {
        "app": account.app,
        "client": account.client,
        "timeout": min(profile.timeout, LONGEST_S),
        "idle_timeout": profile.idle_timeout,
        "gpu": profile.gpu,
        "region": list(profile.region) or None,
        "cpu": _request(profile.cpu, profile.cpu_limit, 0.125),
        "memory": _request(_mib(profile.memory), _mib(profile.memory_limit), 128),
        "block_network": profile.network == "blocked",
        "unencrypted_ports": list(profile.ports),
    }
    if profile.allow:
        options["outbound_cidr_allowlist"] = list(profile.allow)
    if profile.volumes:
        options["volumes"] = {
            folder: sdk().Volume.from_name(name, create_if_missing=True, environment_name=profile.environment)
            for folder, name in profile.volumes.items()
        }
    if profile.vendor_secrets:
        options["secrets"] = [
            sdk().Secret.from_name(name, environment_name=profile.environment) for name in profile.vendor_secrets
        ]
    return options


@contextlib.contextmanager
def generation(wanted: str) -> Generator[None]:
    """Make the SDK create sandboxes of the given generation: its only setting is a variable of this process.

    Sandboxes created at the same moment without an explicit generation get the same one.
    """
    global _firsts, _before  # noqa: PLW0603  the variable is the process's too
    if wanted == "auto":
        yield
        return
    if _firsts == 0:
        _before = os.environ.get(_SWITCH)
    _firsts += 1
    os.environ[_SWITCH] = "0" if wanted == "v1" else "1"
    try:
        yield
    finally:
        _firsts -= 1
        if _firsts == 0:
            os.environ.pop(_SWITCH)
            if _before is not None:
                os.environ[_SWITCH] = _before


def _request(reserved: float | None, limit: float | None, least: float) -> Any:
    """Return a reservation and a limit for the SDK; a limit alone needs the vendor's smallest reservation."""
    if limit is None:
        return reserved
    return (reserved if reserved is not None else min(least, limit), limit)


def _mib(count: int | None) -> int | None:
    return None if count is None else math.ceil(count / _MIB)
