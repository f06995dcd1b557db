"""One new sandbox for one run of a skill: with a copy of its files, started and inspected from outside, and held."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, Refused, Unsupported
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.run import preconditions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_backends.sandbox.observe import WatchSpec
    from hermes_exec_backends.sandbox.run import Run
    from hermes_exec_policies.egress import EgressProxy
    from hermes_exec_policies.folders import SharedFolder
    from hermes_exec_policies.gate.launch import SkillLaunch
    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.start_program import SandboxTarget

DATA = "/app/data"
"""The folder in which a skill leaves files."""
_FILES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class SkillSandbox:
    """A sandbox in which a skill waits for its start."""

    version: Version
    policy: Policy
    tree: Path
    """The copy of its files that the sandbox sees."""
    packages: Path | None
    """The packages that the sandbox sees."""
    run: Run
    proxy: EgressProxy | None = None
    """Its network access, if hosts were granted."""


async def create_sandbox(
    registry: Registry,
    version: Version,
    policy: Policy,
    place: SandboxTarget,
    stdin: bytes | None,
    stack: AsyncExitStack,
    *,
    observed: bool = False,
) -> SkillSandbox:
    """Create a sandbox whose policy was proven, and hold the skill's function in it; closing ``stack`` ends it.

    ``stdin`` is the request, or None if it is sent later; ``observed`` is whether every system call is observed, as in
    a check, and not only those that the sandbox refuses.

    Raises:
        Refused: files or packages differ from the signed list, which quarantines the version; the target is another one
            than that of the proof; or a granted folder cannot be mounted. Nothing of it ran.
        Unsupported: the sandbox does not meet its policy; nothing of it ran.
        PlaceUnavailable: no sandbox can be created; nothing of it ran.
    """
    from hermes_exec_policies.gate import behavior_rules
    from hermes_exec_policies.gate.launch import copy_path, launch_call

    folder = stack.enter_context(private_folder())
    tree = copy_path(folder, version.name)
    packages = preconditions.prepare_packages(registry, version, folder)
    call = launch_call(
        policy,
        tree,
        version.module,
        entry=version.entry,
        function=version.function,
        environment=packages,
        place=place.kind,
    )
    folders = preconditions.read_folders(version)
    sandbox = await hold(registry, version, policy, place, call, stdin, stack, tree=tree, folders=folders,
                         calls=behavior_rules.WATCH if observed else behavior_rules.REFUSED_CALLS)  # fmt: skip
    try:
        there = PurePosixPath(os.readlink(f"/proc/{sandbox.run.facts.pid}/exe")).name  # noqa: PTH115  a magic link
    except OSError as error:
        raise PlaceUnavailable(f"the interpreter of a sandbox cannot be looked at: {error.strerror}") from error
    preconditions.check_interpreter(version, there)
    return replace(sandbox, packages=packages)


async def hold(  # noqa: PLR0913  each is a part of the launch
    registry: Registry,
    version: Version,
    policy: Policy,
    place: SandboxTarget,
    launch: SkillLaunch,
    stdin: bytes | None,
    stack: AsyncExitStack,
    *,
    tree: Path,
    folders: Sequence[SharedFolder],
    calls: WatchSpec,
    copied: bool = False,
) -> SkillSandbox:
    """Start a launch in a new sandbox with a verified copy of the skill's files at ``tree``, and hold it there.

    ``calls`` are the system calls to observe, where that is possible. The files are copied while the sandbox is
    created, unless they were ``copied`` before.

    Raises:
        Refused: files differ from the signed list, which quarantines the version; or a granted folder cannot be
            mounted. Nothing of it ran.
        Unsupported: the sandbox does not meet its policy; nothing of it ran.
        PlaceUnavailable: no sandbox can be created; nothing of it ran.
    """
    from hermes_exec_policies.canaries.deviations import find_deviations
    from hermes_exec_policies.egress import bind_proxy, open_egress
    from hermes_exec_policies.folders import bind_folders, verify_shared
    from hermes_exec_policies.start_program import start

    confinement, proxy = bind_folders(launch.confinement, folders), None
    if policy.network.access == "hosts":
        proxy = await stack.enter_async_context(open_egress(policy.network.hosts))
        confinement = bind_proxy(confinement, proxy)
    exposed = registry.home.find_exposed(bind.source for bind in confinement.binds)
    if exposed:
        raise Refused(f"the policy {policy.name} lets a skill see {exposed}, which holds the registry or its key")
    which = {each: preconditions.check_folder(registry, each, confinement.uid) for each in folders}
    watch = calls if is_watched(policy, place) else None
    starting = asyncio.ensure_future(
        start(place, confinement, launch.argv, stdin=stdin, limits=launch.limits, watch=watch)
    )
    stack.push_async_callback(_end_starting, starting)
    await asyncio.sleep(0)  # creation starts; nothing in it reads the files before the skill starts
    if not copied:
        preconditions.copy_files(registry, version, tree)
    run = await starting
    if seen := find_deviations(policy, confinement, run.facts):
        raise Unsupported(f"the sandbox differs from the policy {policy.name}: {'; '.join(seen)}")
    for each, one in which.items():
        verify_shared(each, one, run.facts.pid)
    return SkillSandbox(version, policy, tree, None, run, proxy)


async def _end_starting(starting: asyncio.Future[Run]) -> None:
    """End a sandbox that is being created or was created, also after a cancellation."""
    starting.cancel()
    (run,) = await asyncio.gather(starting, return_exceptions=True)
    if not isinstance(run, BaseException):
        await run.close()


def is_watched(policy: Policy, place: SandboxTarget) -> bool:
    """Whether refused operations are observed from outside, which our own filters of system calls permit."""
    from hermes_exec_policies.start_program import BUBBLEWRAP

    return place.kind == BUBBLEWRAP and policy.syscalls.filtered


def collect_files(sandbox: SkillSandbox, into: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the skill's files to the new folder ``into``; return their paths, and a line for each file left behind.

    Raises:
        TransferError: there is more than can be transferred.
    """
    transfer = sandbox.run.collect(DATA, into, max_bytes=_FILES_MAX)
    found = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file())
    return tuple(found), tuple(transfer.left)
