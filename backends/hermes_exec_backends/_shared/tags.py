"""What a sandbox of ours says of itself, in the vendor's own tags: whose it is, its lease, and its profile."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_backends.profiles.cloud import CloudProfile

OWNER = "hermes_exec.owner"
"""The orchestrator that created it: user, host and process."""
LEASE = "hermes_exec.lease_s"
"""Seconds that it goes on after its orchestrator vanished; every sandbox of ours has this tag."""
CREATED = "hermes_exec.created"
"""Seconds since 1970."""
PROFILE = "hermes_exec.profile"
"""A digest of what the profile asks for, by which its sandboxes are counted."""
STATE = "hermes_exec.state"
"""``open``, ``kept`` for a later ``open``, or ``jobs`` when it was left to those."""
_BESIDE = {
    "description", "max_sandboxes", "max_hours", "allowed_gpus", "env", "secrets", "lease_s", "job_lease_s",
    "max_output", "cwd", "setup", "login", "shell", "python", "carrier",
}  # fmt: skip


def tags(profile: CloudProfile, lease_s: float) -> dict[str, str]:
    """The tags of a new sandbox: the profile's own, and ours."""
    return {
        **profile.tags,
        **of_profile(profile),
        OWNER: f"{_user()}@{platform.node()} pid {os.getpid()}",
        LEASE: f"{lease_s:g}",
        CREATED: str(int(time.time())),
        STATE: "open",
    }


def of_profile(profile: CloudProfile) -> dict[str, str]:
    """The tag by which the sandboxes of a profile are found."""
    asked = profile.model_dump_json(exclude=_BESIDE, fallback=str)
    return {PROFILE: hashlib.sha256(asked.encode()).hexdigest()[:12]}


def created(found: Mapping[str, str]) -> float | None:
    """When a sandbox with these tags was created, in seconds since 1970; None if it is not ours."""
    try:
        return float(found[CREATED])
    except (KeyError, ValueError):
        return None


def lease_s(found: Mapping[str, str]) -> float | None:
    """The lease of a sandbox with these tags; None if it is not ours."""
    try:
        return float(found[LEASE])
    except (KeyError, ValueError):
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return str(os.getuid())
