"""What a container of ours says of itself: whose it is, its lease, and what it was made from."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "hermes_exec.owner"
"""The orchestrator that created it: user, host and process."""
LEASE = "hermes_exec.lease_s"
"""Seconds that it goes on after its orchestrator vanished; every container of ours has this label."""
CREATED = "hermes_exec.created"
"""Seconds since 1970."""
CONFIGURATION = "hermes_exec.configuration"
"""A digest of each option that it was created with, so that nothing of their values is shown."""
OURS = (OWNER, LEASE, CREATED, CONFIGURATION)


def labels(options: Mapping[str, Any], lease_s: float) -> dict[str, str]:
    """Our labels for a new container."""
    return {
        OWNER: f"{_user()}@{platform.node()} pid {os.getpid()}",
        LEASE: f"{lease_s:g}",
        CREATED: str(int(time.time())),
        CONFIGURATION: json.dumps(digests(options), separators=(",", ":")),
    }


def digests(options: Mapping[str, Any]) -> dict[str, str]:
    """A short digest of each option's value."""
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
        for name, value in options.items()
    }


def differing(options: Mapping[str, Any], found: Mapping[str, str]) -> list[str]:
    """The names of the options that a container with the labels ``found`` was not created with."""
    try:
        theirs: Any = json.loads(found.get(CONFIGURATION, "{}"))
        ours = digests(options)
        return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    except (ValueError, TypeError, AttributeError):
        return sorted(options)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return str(os.getuid())
