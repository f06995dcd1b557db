"""From what a launcher tells to a run that may begin: read, held on to, and looked at with our own eyes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, Unsupported
from hermes_exec_backends.sandbox.mounts import differences
from hermes_exec_backends.sandbox.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_backends.sandbox.bounds import Bounds
    from hermes_exec_backends.sandbox.control import Report
    from hermes_exec_backends.sandbox.mounts import RuntimeMounts
    from hermes_exec_backends.sandbox.procfs import Facts
    from hermes_exec_backends.sandbox.sandbox_handle import Held
    from hermes_exec_backends.sandbox.spec import Confinement, Limits

_FILTERED = 2
NAMESPACE_RULES = {
    "user": "privileges.capabilities",
    "pid": "processes.hidden",
    "net": "network.isolated",
    "ipc": "processes.ipc",
    "uts": "processes.hidden",
    "cgroup": "processes.hidden",
}
"""The rule of policies that each namespace holds."""


class NotAsSpecified(Unsupported):
    """A sandbox that was made is not what was specified; nothing of the program ran, and it is gone."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        """Each begins with the rule that it breaks, as policies name them."""
        super().__init__(
            f"a sandbox is not what was specified, seen from outside: {'; '.join(differences)}",
            remedy="look at the program that makes the sandboxes, and whether it is the distribution's own",
        )


async def ready(
    held: Held,
    told: Report,
    confinement: Confinement,
    limits: Limits,
    runtime: RuntimeMounts,
    bounds: Bounds | None = None,
) -> Run:
    """A run of what is held, if it is what was specified.

    Raises:
        NotAsSpecified: it is not; nothing of the program ran, and the sandbox is gone.
        PlaceUnavailable: it ended, or cannot be looked at.
    """
    run = Run(held, told, limits, bounds)
    try:
        for folder in confinement.tmpfs:
            run.keep(folder.target)
        _verify(run.facts, confinement, runtime)
    except BaseException:
        await run.close()
        raise
    return run


def _verify(seen: Facts, confinement: Confinement, runtime: RuntimeMounts) -> None:
    """See with our own eyes what has to be so for every sandbox, whatever the launcher said."""
    found = [f"privileges.capabilities: {name} is {value:x}" for name, value in seen.caps.items() if value]
    if not seen.no_new_privs:
        found.append("privileges.none_gained: no_new_privs is not set")
    filtered = confinement.seccomp or confinement.filter_document
    if filtered and "seccomp" in confinement.required and seen.seccomp != _FILTERED:
        found.append(f"syscalls.filtered: its mode of seccomp is {seen.seccomp}")
    if confinement.uid is not None and set(seen.uids) != {confinement.uid}:
        found.append(f"user.unique: its users are {seen.uids}, and {confinement.uid} was asked for")
    labels = {seen.label.partition(" (")[0], seen.next_label.partition(" (")[0]}
    if confinement.apparmor and "apparmor" in confinement.required and confinement.apparmor not in labels:
        found.append(f"lsm: its label is {seen.label!r}, then {seen.next_label!r}")
    found += [
        f"{NAMESPACE_RULES[name]}: it shares our namespace {name}"
        for name in sorted(confinement.namespaces)
        if seen.namespaces[name] == Path("/proc/self/ns", name).stat().st_ino
    ]
    try:
        found += differences(confinement, seen.mounts, seen.pid, runtime)
    except (OSError, ValueError) as error:
        raise PlaceUnavailable(f"the mounts of a sandbox cannot be looked at: {error}") from error
    if found:
        raise NotAsSpecified(found)
