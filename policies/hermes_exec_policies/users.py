"""The user that a sandbox runs as: one that nothing else here runs as."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_policies.start_program import DOCKER

if TYPE_CHECKING:
    from hermes_exec_policies.host import Host
    from hermes_exec_policies.model import Policy

_USERS = 5000
"""How many numbers, from the policy's first on, a unique user is taken from."""


def chosen(policy: Policy, host: Host, place: str, *, fresh: bool) -> int | None:
    """A user that nothing runs as and that has no name here; None where we cannot become one, or need not.

    An engine, which is root whoever we are, is told to take our own user where we are no root.
    """
    if not (host.root and policy.user.ordinary):
        return host.uid if place == DOCKER and not host.root else None
    first = policy.user.first
    if not fresh:
        return first
    running = _running()
    offset = secrets.randbelow(_USERS)
    for step in range(_USERS):
        number = first + (offset + step) % _USERS
        if number not in running and not _named(number):
            return number
    raise PlaceUnavailable(f"every user from {first} to {first + _USERS} is taken on this machine")


def _running() -> set[int]:
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    found.add(entry.stat().st_uid)
                except FileNotFoundError:
                    continue  # it ended while we looked
    return found


def _named(number: int) -> bool:
    import pwd

    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
