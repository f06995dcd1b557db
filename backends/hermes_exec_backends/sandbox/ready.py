"""Verify a sandbox from outside before its program may begin, whatever its launcher reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, Unsupported
from hermes_exec_backends.sandbox.mounts import find_differences
from hermes_exec_backends.sandbox.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_backends.sandbox.bounds import LimitEnforcer
    from hermes_exec_backends.sandbox.control import LauncherReport
    from hermes_exec_backends.sandbox.mounts import HeldSources, RuntimeMounts
    from hermes_exec_backends.sandbox.procfs import ProcessFacts
    from hermes_exec_backends.sandbox.sandbox_handle import SandboxHandle
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
"""The policy rule that each namespace enforces."""


class NotAsSpecified(Unsupported):
    """A sandbox does not match its specification. The program has not run, and the sandbox is gone."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        """Each begins with the policy rule that it breaks."""
        super().__init__(
            f"a sandbox is not what was specified, seen from outside: {'; '.join(differences)}",
            remedy="check that the program that creates sandboxes is the unmodified one of the distribution",
        )


async def verify_and_hold(
    held: SandboxHandle,
    report: LauncherReport,
    confinement: Confinement,
    limits: Limits,
    runtime: RuntimeMounts,
    sources: HeldSources,
    bounds: LimitEnforcer | None = None,
) -> Run:
    """Return a run of the held program once the sandbox matches its specification.

    ``sources`` were held before the sandbox was created.

    Raises:
        NotAsSpecified: it does not match; the program has not run, and the sandbox is gone.
        PlaceUnavailable: the sandbox has ended or cannot be inspected.
    """
    run = Run(held, report, limits, bounds)
    try:
        for folder in confinement.tmpfs:
            run.keep(folder.target)
        _verify(run.facts, confinement, runtime, sources)
    except BaseException:
        await run.close()
        raise
    return run


def _verify(seen: ProcessFacts, confinement: Confinement, runtime: RuntimeMounts, sources: HeldSources) -> None:
    """Compare the kernel's view of a sandbox with its specification."""
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
        found += find_differences(confinement, seen.mounts, seen.pid, runtime, sources)
    except (OSError, ValueError) as error:
        raise PlaceUnavailable(f"the mounts of a sandbox cannot be read: {error}") from error
    if found:
        raise NotAsSpecified(found)
