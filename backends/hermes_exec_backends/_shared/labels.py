"""Labels of containers and sandboxes that this project creates: their owner, their lease, and their profile.

Docker and Daytona call them labels, Modal calls them tags.
"""

from __future__ import annotations

import getpass
import hashlib
import math
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
"""Seconds that it outlives its orchestrator; everything that this project creates has this label."""
CREATED = "hermes_exec.created"
"""Seconds since 1970."""
PROFILE = "hermes_exec.profile"
"""A digest of the profile, by which the sandboxes of a profile are counted."""
COST = "hermes_exec.hourly_cost"
"""The price in US dollars an hour that the profile names."""
ESTIMATE = "hermes_exec.estimated_cost"
"""The least price in US dollars an hour by the vendor's published prices, and their source."""
STATE = "hermes_exec.state"
"""``open``, ``kept`` for a later ``open``, or ``jobs`` after it was left to its jobs."""
_NOT_PART_OF_A_SANDBOX = {
    "description", "hourly_cost", "most_cost", "max_sandboxes", "max_hours", "allowed_gpus", "env", "secrets",
    "lease_s", "job_lease_s", "max_output", "cwd", "setup", "login", "shell", "python", "carrier",
}  # fmt: skip
_DIGEST = 12


def owner_labels(lease_s: float) -> dict[str, str]:
    """Return the labels that everything created by this process has."""
    return {
        OWNER: f"{_user()}@{platform.node()} pid {os.getpid()}",
        LEASE: f"{lease_s:g}",
        CREATED: str(int(time.time())),
    }


def sandbox_labels(profile: CloudProfile, lease_s: float) -> dict[str, str]:
    """Return the labels of a new sandbox, those that the profile names included."""
    cost = {} if profile.hourly_cost is None else {COST: f"{profile.hourly_cost:g}"}
    return {**profile.tags, **profile_label(profile), **owner_labels(lease_s), **cost, STATE: "open"}


def profile_label(profile: CloudProfile) -> dict[str, str]:
    """Return the label by which the sandboxes of a profile are found."""
    return {PROFILE: digest(profile.model_dump_json(exclude=_NOT_PART_OF_A_SANDBOX, fallback=str))}


def digest(text: str) -> str:
    """Return a short digest of ``text``, for labels that must not show their content."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def read_created(found: Mapping[str, str]) -> float | None:
    """Return the time of creation in seconds since 1970; None without the label."""
    return _read_number(found, CREATED)


def read_lease(found: Mapping[str, str]) -> float | None:
    """Return the lease in seconds; None without the label, as this project did not create it then."""
    return _read_number(found, LEASE)


def read_hourly_cost(found: Mapping[str, str]) -> float | None:
    """Return the price in US dollars an hour; None without the label, as it is not known then."""
    cost = _read_number(found, COST)
    return cost if cost is not None and math.isfinite(cost) and cost > 0 else None


def estimate_label(hourly_cost: float | None, source: str) -> dict[str, str]:
    """Return the label of an estimated price; none without an estimate."""
    return {} if hourly_cost is None else {ESTIMATE: f"{hourly_cost:.6g} {source}"}


def read_price(found: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the price in US dollars an hour, if it is known, and the source of an estimate."""
    stated = read_hourly_cost(found)
    if stated is not None:
        return stated, ""
    cost, _, source = str(found.get(ESTIMATE, "")).partition(" ")
    estimated = read_hourly_cost({COST: cost})
    return (None, "") if estimated is None else (estimated, source)


def _read_number(found: Mapping[str, str], name: str) -> float | None:
    try:
        return float(found[name])
    except (KeyError, TypeError, ValueError):
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user ID without a name
        return str(os.getuid())
