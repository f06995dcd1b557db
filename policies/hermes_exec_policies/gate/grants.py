"""The resources that a skill declares as needed, and those that it is granted."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.folders import SharedFolder
from hermes_exec_policies.gate.verdict import Finding, functional
from hermes_exec_policies.load import load_policy, override_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_policies.model import Policy, PolicyLimits

_FOLDER = re.compile(r"/app/data(/[A-Za-z0-9._-]{1,64}){0,4}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")
_SHARED = re.compile(r"[a-z0-9][a-z0-9-]{0,31}(:rw)?")
_LIMITS = {
    "limit-memory-mib": (64, 16384),
    "limit-seconds": (1, 86400),
    "limit-disk-mib": (1, 65536),
    "limit-processes": (16, 1024),
}
"""The least and the highest value of each limit: below the least, no interpreter runs and no proof is possible."""
_MANY = 20
_MIB = 1 << 20
_MEMORY, _DISK = "limit-memory-mib", "limit-disk-mib"
_BOUNDS = {
    _MEMORY: (_MIB, "memory", ""),
    "limit-seconds": (1, "time", "cpu_time"),
    _DISK: (_MIB, "disk", "file_size"),
    "limit-processes": (1, "processes", ""),
}
"""By the manifest's name: the unit, the policy's limit, and another limit that must be raised together with it."""
_ROOM = {"skill-validate": "skill-run"}
"""The policy whose limits are the most that a skill can be granted; for other policies, their own limits are."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources that a skill declares in the ``metadata`` of SKILL.md, in addition to those of every skill."""

    data: tuple[str, ...] = ()
    """Folders that it writes to, below /app/data; every skill may write to that folder itself."""
    folders: tuple[str, ...] = ()
    """Names of folders of the machine, with ``:rw`` if it writes to them."""
    hosts: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Limits that replace those of the policy: ``limit-memory-mib``, ``limit-seconds``, …"""

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Grants:
    """The resources that a skill may have; by default only packages."""

    data: tuple[str, ...] = ("/app/data",)
    folders: tuple[str, ...] = ()
    """``NAME=DIR``, with ``:rw`` if it may write to the folder."""
    hosts: tuple[str, ...] = ()
    packages: bool = True
    limits: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Grants:
        """Create grants from recorded ``facts``, in which every tuple has become a list."""
        values: dict[str, Any] = dict(facts)
        for name in {"data", "folders", "hosts"} & values.keys():
            values[name] = tuple(values[name])
        return cls(**values)

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)

    def select_folders(self, needs: Needs) -> list[SharedFolder]:
        """Return the folders that are both needed and granted; a folder is writable only if the skill declares that."""
        given = {each.name: each for each in map(SharedFolder.parse_grant, self.folders)}
        asked = [SharedFolder.parse_request(word) for word in needs.folders]
        return [replace(given[each.name], writable=each.writable) for each in asked if each.name in given]

    def find_lacking(self, needs: Needs) -> list[Finding]:
        """Return findings about needs that are not granted, except limits, which ``resolve_bounds`` checks."""
        found = [
            _not_granted("the folder", folder)
            for folder in needs.data
            if not any(folder == each or folder.startswith(each + "/") for each in self.data)
        ]
        given = {each.name: each.writable for each in map(SharedFolder.parse_grant, self.folders)}
        for folder in map(SharedFolder.parse_request, needs.folders):
            if folder.name not in given:
                found.append(_not_granted("the folder", folder.name))
            elif folder.writable and not given[folder.name]:
                found.append(
                    _wrong(f"the folder {folder.name} is asked for to be written to, and was granted for reading")
                )
        found += [_not_granted("the host", host) for host in needs.hosts if host not in self.hosts]
        if needs.packages and not self.packages:
            found.append(_not_granted("packages", ", ".join(needs.packages)))
        return found


def parse_needs(metadata: Mapping[str, str]) -> tuple[Needs, list[Finding]]:
    """Parse the needs that ``metadata`` declares, and return findings about them."""
    wrong: list[Finding] = []
    data = _words(metadata, "needs-data", _FOLDER, wrong)
    hosts = _words(metadata, "needs-hosts", _HOST, wrong)
    folders = _words(metadata, "needs-folders", _SHARED, wrong)
    limits: dict[str, int] = {}
    for name in _LIMITS:
        if name in metadata:
            try:
                limits[name] = parse_limit(name, metadata[name])
            except ValueError as error:
                wrong.append(functional("manifest.needs", str(error), "SKILL.md"))
    unknown = sorted(name for name in metadata if name.startswith(("needs-", "limit-")) and name not in _KNOWN)
    wrong += [
        functional("manifest.needs", f"{name!r} is nothing that a skill can need: {', '.join(_KNOWN)}", "SKILL.md")
        for name in unknown
    ]
    return Needs(data, folders, hosts, tuple(metadata.get("needs-packages", "").split()), limits), wrong


def parse_limit(name: str, value: str) -> int:
    """Parse ``value`` as the limit ``name``.

    Raises:
        ValueError: the value is invalid, or there is no such limit.
    """
    if name not in _LIMITS:
        raise ValueError(f"{name!r} is not a limit: {', '.join(_LIMITS)}")
    least, most = _LIMITS[name]
    if not value.isascii() or not value.isdigit() or len(value) > 6 or not least <= int(value) <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}")
    return int(value)


_KNOWN = ("needs-data", "needs-folders", "needs-hosts", "needs-packages", *_LIMITS)


def _words(metadata: Mapping[str, str], name: str, shape: re.Pattern[str], wrong: list[Finding]) -> tuple[str, ...]:
    words = tuple(metadata.get(name, "").split())
    names = [word.removesuffix(":rw") for word in words]
    bad = [
        word
        for word, name in zip(words, names, strict=True)
        if not shape.fullmatch(word) or ".." in word or names.count(name) > 1
    ]
    if bad or len(words) > _MANY:
        wrong.append(functional("manifest.needs", f"{name} cannot hold {bad[0] if bad else 'so many'!r}", "SKILL.md"))
    return tuple(word for word in words if word not in bad)


def _not_granted(what: str, which: str) -> Finding:
    return _wrong(f"{what} {which} is asked for and was not granted")


def _wrong(what: str) -> Finding:
    return functional("manifest.not-granted", what, "SKILL.md")


def resolve_bounds(policy: Policy, needs: Needs, grants: Grants) -> tuple[dict[str, int], list[Finding]]:
    """Return the limits that differ from the policy's own, and findings about the declared and granted ones.

    A skill may declare less than the policy's own limit. More must be granted, up to the policy's maximum.
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


def apply_bounds(policy: Policy, bounds: Mapping[str, int]) -> Policy:
    """Return the policy with the limits of ``resolve_bounds``; the same object if there are none.

    Raises:
        ValueError: a limit exceeds the policy's maximum, or has an unknown name.
    """
    room = _room(policy)
    limits: dict[str, object] = {}
    for name, value in bounds.items():
        if name not in _BOUNDS:
            raise ValueError(f"{name} is not a limit")
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
    return override_policy(policy, {"limits": limits}) if limits else policy


def _room(policy: Policy) -> PolicyLimits:
    name = _ROOM.get(policy.name)
    return load_policy(name).limits if name else policy.limits


def _amount(limits: PolicyLimits, name: str) -> int | None:
    """Return a limit in the manifest's unit; None if the policy has no such limit."""
    unit, key, _ = _BOUNDS[name]
    value: float | None = getattr(limits, key)
    return None if value is None else int(value // unit)
