"""The bounds of a skill: what it asks for and was granted, within the most that its policy lets anybody have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.gate.verdict import Finding, functional
from hermes_exec_policies.load import load, overridden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_policies.gate.grants import Grants, Needs
    from hermes_exec_policies.model import Limits, Policy

_MIB = 1 << 20
_MEMORY, _DISK = "limit-memory-mib", "limit-disk-mib"
_BOUNDS = {
    _MEMORY: (_MIB, "memory", ""),
    "limit-seconds": (1, "time", "cpu_time"),
    _DISK: (_MIB, "disk", "file_size"),
    "limit-processes": (1, "processes", ""),
}
"""By the manifest's name: how much one is, the policy's limit, and another one that would stand in the way of more."""
_ROOM = {"skill-validate": "skill-run"}
"""The policy that says how much a skill can be granted at most; of any other policy its own limits are the most."""


def bounds_of(policy: Policy, needs: Needs, grants: Grants) -> tuple[dict[str, int], list[Finding]]:
    """The bounds that are not the policy's own, and what is wrong with what is asked for or granted.

    Less than the policy's own anybody can ask for. More has to be granted, and no more than the policy has room for.
    """
    room = _room(policy)
    found: dict[str, int] = {}
    wrong: list[Finding] = []
    for name in _BOUNDS:
        own, most = _amount(policy.limits, name), _amount(room, name)
        granted = grants.limits.get(name)
        if granted is not None and most is not None and granted > most:
            wrong.append(_wrong(f"{name} of {granted} is more than the policy {policy.name} allows: {most}"))
            continue
        asked, given = needs.limits.get(name, own), own if granted is None else granted
        if given is not None and asked is not None and name in needs.limits and asked > given:
            wrong.append(_wrong(f"{name} of {asked} is asked for and was not granted"))
            continue
        least = min((each for each in (asked, given) if each is not None), default=None)
        if least is not None and least != own:
            found[name] = least
    disk, memory = found.get(_DISK), found.get(_MEMORY, _amount(policy.limits, _MEMORY))
    if disk is not None and memory is not None and disk * 2 > memory:
        wrong.append(_wrong(f"{_DISK} of {disk} needs a {_MEMORY} of {disk * 2}: files are kept in memory"))
    return found, wrong


def bounded(policy: Policy, bounds: Mapping[str, int]) -> Policy:
    """The policy with these bounds, which ``bounds_of`` gave; itself where there are none.

    Raises:
        ValueError: the policy has no room for one of them, or knows none of that name.
    """
    room = _room(policy)
    limits: dict[str, object] = {}
    for name, value in bounds.items():
        if name not in _BOUNDS:
            raise ValueError(f"{name} is no limit")
        most = _amount(room, name)
        if most is not None and value > most:
            raise ValueError(f"{name} of {value} is more than the policy {policy.name} allows: {most}")
        unit, key, other = _BOUNDS[name]
        own = _amount(policy.limits, name)
        limits[key] = value * unit
        if other and own is not None and value > own:
            beside: float | None = getattr(room, other)
            limits[other] = value * unit if beside is None else min(value * unit, beside)
    if _MEMORY in bounds and _DISK not in bounds and policy.limits.disk is not None:
        limits["disk"] = min(policy.limits.disk, bounds[_MEMORY] * _MIB // 2)  # files are kept in memory
    return overridden(policy, {"limits": limits}) if limits else policy


def _room(policy: Policy) -> Limits:
    name = _ROOM.get(policy.name)
    return load(name).limits if name else policy.limits


def _amount(limits: Limits, name: str) -> int | None:
    """A limit in the manifest's unit; None where there is none."""
    unit, key, _ = _BOUNDS[name]
    value: float | None = getattr(limits, key)
    return None if value is None else int(value // unit)


def _wrong(what: str) -> Finding:
    return functional("manifest.not-granted", what, "SKILL.md")
