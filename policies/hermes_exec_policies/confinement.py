"""Build the launch specification of a sandbox on this machine from a policy, for any kind of sandbox."""

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
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.explain import refuse_unless_enforceable
from hermes_exec_policies.folders import shared_paths
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import bpf, landlock, oci
from hermes_exec_policies.render.apparmor import profile_name
from hermes_exec_policies.render.bubblewrap import layout
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.render.rlimits import rlimits
from hermes_exec_policies.start_program import BUBBLEWRAP, DOCKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_backends.sandbox.host import Machine
    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.render.bubblewrap import Layout, MemoryFolder
    from hermes_exec_policies.render.landlock import Ruleset

DEFAULT_KIND = BUBBLEWRAP
LANDLOCK_VARIABLE = "HERMES_LANDLOCK"
_UNBOUND = (1 << 40) - 1
"""The size of a tmpfs folder without a limit in the policy: more than any machine has."""
_EMPTY = 4096
"""The size in bytes of a folder that stays empty."""
_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"})
"""The devices of a sandbox."""
_USERS = 5000
"""The size of the range of unique users, which begins at the policy's ``first``."""


def confinement(
    policy: str,
    *,
    overrides: Mapping[str, object] | None = None,
    writable: Mapping[str, str] | None = None,
    readonly: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> tuple[Confinement, Limits]:
    """Return the specification of a named policy on this machine, and the limits to enforce from outside.

    ``writable`` and ``readonly`` map folders of this machine to their paths inside.

    Raises:
        ConfigError: there is no such policy, or an override is invalid.
        UsageError: the policy does not allow a folder at its path inside.
        Unsupported: a required rule cannot be enforced here; names a remedy.
        PlaceUnavailable: the filter of a custom policy cannot be compiled.
    """
    return build_confinement(
        load_policy(policy, overrides), this_machine(), writable=writable, readonly=readonly, cwd=cwd
    )


def build_confinement(
    policy: Policy,
    host: Machine,
    *,
    writable: Mapping[str, str] | None = None,
    readonly: Mapping[str, str] | None = None,
    cwd: str | None = None,
    place: str = DEFAULT_KIND,
    started: bool = True,
) -> tuple[Confinement, Limits]:
    """Like ``confinement``, for a loaded policy and any kind of sandbox that is started from outside.

    Granted folders of the policy are empty in the result; ``folders.bind_folders`` replaces them. A specification that
    is not ``started``, only compared, has the first unique user of the policy instead of a free one.

    Raises:
        UsageError: the policy does not allow a folder at its path inside.
        Unsupported: a required rule cannot be enforced here; names a remedy.
        PlaceUnavailable: the filter of a custom policy cannot be compiled.
    """
    if place == DOCKER:  # the start of a sandbox reports whether an engine answers
        host = replace(host, versions={"docker engine": "", **host.versions})
    fixed = _build_fixed(_CacheKey(policy.digest, place, host, policy))
    mapped = [
        *_map_folders(policy.writable, writable or {}, policy),
        *_map_folders(_readable(policy), readonly or {}, None),
    ]
    wanted = fixed.layout
    taken = {bind.target for bind in mapped}
    folders = [_tmpfs(each) for each in wanted.folders if each.target not in taken]
    folders += [Tmpfs(target=path, size=_EMPTY, inodes=1) for path in shared_paths(policy)[0]]
    own = taken | {folder.target for folder in folders}
    local = place == BUBBLEWRAP  # in a container, system folders and links come from the image
    binds, links = _system_binds(_list_root(own) if wanted.whole else wanted.binds, policy) if local else ([], [])
    there = {*(bind.target for bind in (*binds, *mapped)), *(path for path, _ in links), "/"}
    # Without a pid namespace the sandbox shares the outer /proc, so no new one is needed.
    proc = not local or not host.proc or "pid" not in wanted.namespaces
    there |= {folder.target for folder in folders} | _DEVICES | {"/dev"} | ({"/proc"} if proc else set[str]())
    rules = _landlock(fixed.rules, there if local else None) if fixed.rules else None
    user = choose_user(policy, host, place, fresh=started)
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
    """The key of what all sandboxes of a policy and a kind share."""

    digest: str
    place: str
    host: Machine = field(hash=False)
    policy: Policy = field(compare=False)
    """The policy with this digest."""


@dataclass(frozen=True)
class _Fixed:
    """The parts of a specification that all sandboxes of a policy and a kind share."""

    layout: Layout
    seccomp: bytes
    filter_document: str
    rules: Ruleset | None
    required: frozenset[str]


@lru_cache(maxsize=32)
def _build_fixed(asked: _CacheKey) -> _Fixed:
    """Build the shared parts, once in the process; an error is not cached."""
    policy, host, docker = asked.policy, asked.host, asked.place == DOCKER
    refuse_unless_enforceable(policy, asked.place, host)
    filter_ = build_filter(policy, counted=docker or is_memory_counted(policy, host))
    return _Fixed(
        layout=layout(policy),
        seccomp=bpf.load_program(filter_) if filter_ and not docker else b"",
        filter_document=oci.render(filter_, host.machine) if filter_ and docker else "",
        rules=landlock.ruleset(policy) if host.landlock_abi else None,
        required=_list_required_mechanisms(policy, host),
    )


def is_memory_counted(policy: Policy, host: Machine) -> bool:
    """Whether the enforcer of the memory limit counts all memory; otherwise the filter forbids uncounted memory."""
    limited = policy.limits.memory is not None and policy.strength("limits.memory") == "required"
    return bool(host.groups.memory) or not limited


def _list_required_mechanisms(policy: Policy, host: Machine) -> frozenset[str]:
    """The mechanisms that a required rule depends on."""
    found = {"rlimits"}
    if policy.syscalls.filtered and policy.strength("syscalls.filtered") == "required":
        found.add("seccomp")
    if policy.lsm and policy.strength("lsm") == "required":
        found.add("landlock" if host.landlock_abi else "apparmor")
    return frozenset(found)


def _readable(policy: Policy) -> tuple[str, ...]:
    return (*policy.files.run, *policy.files.read) if policy.files.hidden else ("/",)


def _map_folders(allowed: Iterable[str], folders: Mapping[str, str], policy: Policy | None) -> list[Bind]:
    """Binds of the caller. ``policy`` is that of writable binds, whose targets are in its writable folders."""
    for target in folders.values():
        if not any((target + "/").startswith(each.rstrip("/") + "/") for each in allowed):
            raise UsageError(f"the policy allows no folder at {target}", remedy=", ".join(allowed))
    writable = policy is not None
    executable = policy.files.run_written if policy is not None else True
    return [
        Bind(source=source, target=target, writable=writable, executable=executable)
        for source, target in folders.items()
    ]


def _list_root(own: set[str]) -> list[str]:
    """The entries of the root folder, except those that a sandbox creates itself."""
    return sorted(str(entry) for entry in Path("/").iterdir() if str(entry) not in {*own, "/proc", "/dev", "/sys"})


def _system_binds(paths: Iterable[str], policy: Policy) -> tuple[list[Bind], list[tuple[str, str]]]:
    """The binds of system files and folders, and the links."""
    binds: list[Bind] = []
    links: list[tuple[str, str]] = []
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            links.append((path, os.readlink(path)))  # noqa: PTH115  the link's text, unchanged
        else:
            executable = path in policy.files.run or not policy.files.hidden
            binds.append(Bind(source=path, target=path, executable=executable))
    return binds, links


def _tmpfs(folder: MemoryFolder) -> Tmpfs:
    return Tmpfs(
        target=folder.target,
        size=_UNBOUND if folder.size is None else folder.size,
        inodes=_UNBOUND if folder.inodes is None else folder.inodes,
        executable=folder.executable,
    )


def _landlock(rules: Ruleset, there: set[str] | None) -> Landlock:
    """The rules for the existing paths ``there``; for all paths if an image decides which exist."""
    # A rule needs an existing path; parent folders of mounted paths exist too.
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
    """The complete environment. One variable says that Landlock is applied, which the kernel does not show."""
    landlocked = {LANDLOCK_VARIABLE: "1"} if landlock else {}
    kept = {name: os.environ[name] for name in policy.environment.keep if name in os.environ}
    inherited = {} if policy.environment.cleared else dict(os.environ)
    return tuple(sorted({**inherited, **kept, **policy.environment.set, **landlocked}.items()))


def choose_user(policy: Policy, host: Machine, place: str, *, fresh: bool) -> int | None:
    """Choose a user without processes and without a name on this machine; None to keep the current user.

    A container engine runs as root, so unless this process is root, it must use the same user.
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
    raise PlaceUnavailable(f"every user ID from {first} to {first + _USERS} is in use on this machine")


def _running_users() -> set[int]:
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    found.add(entry.stat().st_uid)
                except FileNotFoundError:
                    continue  # it has just ended
    return found


def _has_name(number: int) -> bool:
    import pwd

    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
