"""From a policy to the launch specification of a sandbox on this machine, whatever kind of place makes it."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec_backends.sandbox import Bind, Confinement, Landlock, Limits, PathRule, PortRule, Tmpfs
from hermes_exec_backends.sandbox.host import this_host
from hermes_exec_policies.explain import refuse_unless_enforceable
from hermes_exec_policies.folders import seen_in
from hermes_exec_policies.load import load
from hermes_exec_policies.render import bpf, landlock, oci
from hermes_exec_policies.render.apparmor import profile_name
from hermes_exec_policies.render.bubblewrap import layout
from hermes_exec_policies.render.filter import filter_of
from hermes_exec_policies.render.rlimits import rlimits
from hermes_exec_policies.start_program import BUBBLEWRAP, DOCKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_backends.sandbox.host import Host
    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.render.bubblewrap import Folder, Layout
    from hermes_exec_policies.render.landlock import Ruleset

PLACE = BUBBLEWRAP
LANDLOCKED = "HERMES_LANDLOCK"
_UNBOUND = (1 << 40) - 1
"""What a folder in memory is given where the policy sets no bound: more than any machine has."""
_EMPTY = 4096
"""Bytes of a folder that has, with room for itself alone, nothing in it."""
_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"})
"""What a sandbox has of them."""
_USERS = 5000
"""How many numbers, from the policy's first on, a unique user is taken from."""


def confinement(
    policy: str,
    *,
    overrides: Mapping[str, object] | None = None,
    writable: Mapping[str, str] | None = None,
    readonly: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> tuple[Confinement, Limits]:
    """The specification that the policy of this name asks for here, and the limits that are held from outside.

    ``writable`` and ``readonly`` are folders of this machine and where they are seen inside.

    Raises:
        ConfigError: there is no such policy, or an override is wrong.
        UsageError: a folder is to be seen where the policy does not allow it.
        Unsupported: a required rule cannot be enforced here; says what mends it.
        PlaceUnavailable: a filter of one's own cannot be compiled.
    """
    return confined(load(policy, overrides), this_host(), writable=writable, readonly=readonly, cwd=cwd)


def confined(
    policy: Policy,
    host: Host,
    *,
    writable: Mapping[str, str] | None = None,
    readonly: Mapping[str, str] | None = None,
    cwd: str | None = None,
    place: str = PLACE,
    started: bool = True,
) -> tuple[Confinement, Limits]:
    """As ``confinement``, for a policy at hand, and for any kind of place that starts programs from outside.

    Where the policy speaks of folders that were granted there are empty ones; see ``folders.with_given``.
    One that is not to be ``started``, but compared with others, has the first of all users where it would have its own.

    Raises:
        UsageError: a folder is to be seen where the policy does not allow it.
        Unsupported: a required rule cannot be enforced here; says what mends it.
        PlaceUnavailable: a filter of one's own cannot be compiled.
    """
    if place == DOCKER:  # whether an engine answers is told when it is asked for a sandbox
        host = replace(host, versions={"docker engine": "", **host.versions})
    fixed = _build_fixed(_CacheKey(policy.digest, place, host, policy))
    mapped = [
        *_map_folders(policy.writable, writable or {}, policy),
        *_map_folders(_readable(policy), readonly or {}, None),
    ]
    wanted = fixed.layout
    taken = {bind.target for bind in mapped}
    folders = [_tmpfs(each) for each in wanted.folders if each.target not in taken]
    folders += [Tmpfs(target=path, size=_EMPTY, inodes=1) for path in seen_in(policy)[0]]
    own = taken | {folder.target for folder in folders}
    local = place == BUBBLEWRAP  # elsewhere the system is the image's, and so are its folders and links
    binds, links = _system_binds(_list_root(own) if wanted.whole else wanted.binds, policy) if local else ([], [])
    there = {*(bind.target for bind in (*binds, *mapped)), *(path for path, _ in links), "/"}
    # One that shares the processes of the place shares its /proc too, so no new one is needed.
    proc = not local or not host.proc or "pid" not in wanted.namespaces
    there |= {folder.target for folder in folders} | _DEVICES | {"/dev"} | ({"/proc"} if proc else set[str]())
    rules = _landlock(fixed.rules, there if local else None) if fixed.rules else None
    user = chosen(policy, host, place, fresh=started)
    made = Confinement(
        binds=(*binds, *mapped),
        links=tuple(links),
        tmpfs=tuple(folders),
        masked=(*(wanted.masked if proc else ()), *(() if local else ("/sys",))),
        proc=proc,
        cwd=cwd or next((path for path in policy.files.write if path in there), "/"),
        env=_environment(policy, landlock=rules is not None and "landlock" in fixed.required),
        uid=user,
        gid=user,
        namespaces=frozenset({*wanted.namespaces} - {"user"} if place == DOCKER else {"user", *wanted.namespaces}),
        seccomp=fixed.seccomp,
        filter_document=fixed.filter_document,
        landlock=rules,
        apparmor=profile_name(policy) if profile_name(policy) in host.profiles else "",
        rlimits=rlimits(
            policy,
            memory=not host.groups.memory and place != DOCKER,
            processes=host.root and user is not None and policy.user.unique,
        ),
        required=fixed.required,
    )
    limits = policy.limits
    return made, Limits(
        wall_s=limits.time,
        output=limits.output,
        memory=limits.memory,
        processes=limits.processes,
        cpus=limits.cpus,
    )


@dataclass(frozen=True)
class _CacheKey:
    """What is the same for every sandbox of a policy in a kind of place."""

    digest: str
    place: str
    host: Host = field(hash=False)
    policy: Policy = field(compare=False)
    """The one with this digest."""


@dataclass(frozen=True)
class _Fixed:
    """What follows from that alone."""

    layout: Layout
    seccomp: bytes
    filter_document: str
    rules: Ruleset | None
    required: frozenset[str]


@lru_cache(maxsize=32)
def _build_fixed(asked: _CacheKey) -> _Fixed:
    """Work it out, once a process; a refusal is worked out each time."""
    policy, host, docker = asked.policy, asked.host, asked.place == DOCKER
    refuse_unless_enforceable(policy, asked.place, host)
    filter_ = filter_of(policy, counted=docker or counts_memory(policy, host))
    return _Fixed(
        layout=layout(policy),
        seccomp=bpf.program(filter_) if filter_ and not docker else b"",
        filter_document=oci.render(filter_, host.machine) if filter_ and docker else "",
        rules=landlock.ruleset(policy) if host.landlock_abi else None,
        required=_required_mechanisms(policy, host),
    )


def counts_memory(policy: Policy, host: Host) -> bool:
    """Whether what holds the policy's limit of memory sees all of it; else the filter keeps unseen memory away."""
    limited = policy.limits.memory is not None and policy.strength("limits.memory") == "required"
    return bool(host.groups.memory) or not limited


def _required_mechanisms(policy: Policy, host: Host) -> frozenset[str]:
    """The mechanisms that a required rule rests on."""
    found = {"rlimits"}
    if policy.syscalls.filtered and policy.strength("syscalls.filtered") == "required":
        found.add("seccomp")
    if policy.lsm and policy.strength("lsm") == "required":
        found.add("landlock" if host.landlock_abi else "apparmor")
    return frozenset(found)


def _readable(policy: Policy) -> tuple[str, ...]:
    return (*policy.files.run, *policy.files.read) if policy.files.hidden else ("/",)


def _map_folders(allowed: Iterable[str], folders: Mapping[str, str], policy: Policy | None) -> list[Bind]:
    """Binds of the caller's; those that can be written have a policy, and lie in what it lets be written."""
    for target in folders.values():
        if not any((target + "/").startswith(each.rstrip("/") + "/") for each in allowed):
            raise UsageError(f"the policy does not let a folder be seen as {target}", remedy=", ".join(allowed))
    writable = policy is not None
    executable = policy.files.run_written if policy is not None else True
    return [
        Bind(source=source, target=target, writable=writable, executable=executable)
        for source, target in folders.items()
    ]


def _list_root(own: set[str]) -> list[str]:
    """What there is in the root folder, but for what a sandbox has of its own."""
    return sorted(str(entry) for entry in Path("/").iterdir() if str(entry) not in {*own, "/proc", "/dev", "/sys"})


def _system_binds(paths: Iterable[str], policy: Policy) -> tuple[list[Bind], list[tuple[str, str]]]:
    """What of the system is seen: folders and files as they are, and links as links."""
    binds: list[Bind] = []
    links: list[tuple[str, str]] = []
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            links.append((path, os.readlink(path)))  # noqa: PTH115  the text of the link, as it is
        else:
            executable = path in policy.files.run or not policy.files.hidden
            binds.append(Bind(source=path, target=path, executable=executable))
    return binds, links


def _tmpfs(folder: Folder) -> Tmpfs:
    return Tmpfs(
        target=folder.target,
        size=_UNBOUND if folder.size is None else folder.size,
        inodes=_UNBOUND if folder.inodes is None else folder.inodes,
        executable=folder.executable,
    )


def _landlock(rules: Ruleset, there: set[str] | None) -> Landlock:
    """The rules for the paths that are there; for all of them where what is there is an image's matter."""
    # A rule needs its path; a folder above one that is seen exists as well.
    paths = [
        PathRule(path=path, access=access, needed=there is not None)
        for path, access in rules.paths
        if there is None or path in there or any(each.startswith(path + "/") for each in there)
    ]
    return Landlock(
        handled_fs=rules.handled_files,
        paths=tuple(paths),
        handled_net=rules.handled_network,
        scoped=rules.scoped,
        ports=tuple(PortRule(port=port, access=access) for port, access in rules.ports),
    )


def _environment(policy: Policy, *, landlock: bool) -> tuple[tuple[str, str], ...]:
    """All variables. One says what the kernel tells nobody: that Landlock is applied, or nothing had started."""
    told = {LANDLOCKED: "1"} if landlock else {}
    kept = {name: os.environ[name] for name in policy.environment.keep if name in os.environ}
    inherited = {} if policy.environment.cleared else dict(os.environ)
    return tuple(sorted({**inherited, **kept, **policy.environment.set, **told}.items()))


def chosen(policy: Policy, host: Host, place: str, *, fresh: bool) -> int | None:
    """A user that nothing runs as and that has no name here; None where we cannot become one, or need not.

    An engine, which is root whoever we are, is told to take our own user where we are no root.
    """
    if not (host.root and policy.user.ordinary):
        return host.uid if place == DOCKER and not host.root else None
    first = policy.user.first
    if not fresh:
        return first
    running = _running_users()
    offset = secrets.randbelow(_USERS)
    for step in range(_USERS):
        number = first + (offset + step) % _USERS
        if number not in running and not _has_name(number):
            return number
    raise PlaceUnavailable(f"every user from {first} to {first + _USERS} is taken on this machine")


def _running_users() -> set[int]:
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    found.add(entry.stat().st_uid)
                except FileNotFoundError:
                    continue  # it ended while we looked
    return found


def _has_name(number: int) -> bool:
    import pwd

    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
