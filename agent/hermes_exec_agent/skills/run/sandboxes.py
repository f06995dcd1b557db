"""One new sandbox for one run of a skill: its own copy of the files, started from outside, looked at, and held."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, Refused, Unsupported
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.run import preconditions

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_backends.sandbox.run import Run
    from hermes_exec_policies.egress import Egress
    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.start_program import Place

DATA = "/app/data"
"""Where a skill leaves files."""
_FILES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox in which a skill waits for the word."""

    version: Version
    policy: Policy
    tree: Path
    """The copy of its files that is seen inside."""
    packages: Path | None
    """Those that it needs, as they are seen inside."""
    run: Run
    proxy: Egress | None = None
    """Its way out, where it was granted hosts."""


async def ready(
    registry: Registry, version: Version, policy: Policy, place: Place, stdin: bytes | None, stack: AsyncExitStack
) -> Sandbox:
    """Make a sandbox whose policy was proven, and hold the skill in it; it is gone when ``stack`` is closed.

    ``stdin`` is the request, or None where that comes with the word.

    Raises:
        Refused: files or packages are not what was signed, which keeps the version back; the place is another one
            than it was proven for; or a folder that it was granted cannot be given. Nothing of it ran.
        Unsupported: the sandbox is not what its policy asks for; nothing of it ran.
        PlaceUnavailable: no sandbox can be made; nothing of it ran.
    """
    from hermes_exec_policies.canaries.outside import amiss
    from hermes_exec_policies.egress import egress, with_net
    from hermes_exec_policies.folders import see_given, with_given
    from hermes_exec_policies.gate import behavior_rules
    from hermes_exec_policies.gate.launch import launch
    from hermes_exec_policies.start_program import start

    folder = stack.enter_context(private_folder())
    tree = folder / "tree"
    packages = preconditions.packages(registry, version, folder)
    folders = preconditions.folders_of(version)
    call = launch(
        policy,
        tree,
        version.module,
        entry=version.entry,
        function=version.function,
        environment=packages,
        place=place.kind,
    )
    confinement, proxy = with_given(call.confinement, folders), None
    if policy.network.access == "hosts":
        proxy = await stack.enter_async_context(egress(policy.network.hosts))
        confinement = with_net(confinement, proxy)
    exposed = registry.home.exposes(bind.source for bind in confinement.binds)
    if exposed:
        raise Refused(f"the policy {policy.name} lets a skill see {exposed}, which holds the registry or its key")
    which = {each: preconditions.given(registry, each, confinement.uid) for each in folders}
    watch = behavior_rules.REFUSED if watched(policy, place) else None
    tree.mkdir()
    tree.chmod(0o755)  # whatever our umask is, a sandbox's user must reach it
    starting = asyncio.ensure_future(start(place, confinement, call.argv, stdin=stdin, limits=call.limits, watch=watch))
    stack.push_async_callback(_ended, starting)
    await asyncio.sleep(0)  # it begins to be made, and nothing in it looks at the files before the word
    try:
        content.copy(registry.tree(version), version.files, tree)
    except content.Changed as error:
        registry.quarantine(version.name, version.number, f"changed: {error.what}")
        raise
    run = await starting
    if seen := amiss(policy, confinement, run.facts):
        raise Unsupported(f"the sandbox is not what {policy.name} asks for: {'; '.join(seen)}")
    for each, one in which.items():
        see_given(each, one, run.facts.pid)
    try:
        there = PurePosixPath(os.readlink(f"/proc/{run.facts.pid}/exe")).name  # noqa: PTH115  a magic link
    except OSError as error:
        raise PlaceUnavailable(f"the interpreter of a sandbox cannot be looked at: {error.strerror}") from error
    preconditions.same_language(version, there)
    return Sandbox(version, policy, tree, packages, run, proxy)


async def _ended(starting: asyncio.Future[Run]) -> None:
    """End what was being made, or was made, also where nobody waits for it any more."""
    starting.cancel()
    (run,) = await asyncio.gather(starting, return_exceptions=True)
    if not isinstance(run, BaseException):
        await run.close()


def watched(policy: Policy, place: Place) -> bool:
    """Whether what a skill is refused there is seen from outside: where its filter is of our own making, it is."""
    from hermes_exec_policies.start_program import BUBBLEWRAP

    return place.kind == BUBBLEWRAP and policy.syscalls.filtered


def collected(sandbox: Sandbox, into: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the skill's files to the new folder ``into``; return their paths, and a line for each file left behind.

    Raises:
        TransferError: there is more than can be transfer.
    """
    transfer = sandbox.run.collect(DATA, into, max_bytes=_FILES_MAX)
    found = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file())
    return tuple(found), tuple(transfer.left)
