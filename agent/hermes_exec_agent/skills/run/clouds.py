"""A run of a skill in a sandbox that a vendor makes for it: what holds there is declared by the vendor, never proven.

Nothing there can be looked at from outside before the skill begins, so a policy is refused of which a required rule is
held by nothing; what is left is told with every run.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Exit
from hermes_exec.config.registry import backend_class
from hermes_exec.errors import PlaceUnavailable, TransferError, Unsupported
from hermes_exec.transport.shell.target import ask, send
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.run import preconditions
from hermes_exec_backends.sandbox.run import Ended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec.backend import Backend
    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.model import Policy

KINDS = ("modal", "daytona")
_ENV = "/usr/bin/env"
_LOOK = "import sys; print('python%d.%d' % sys.version_info[:2])"
_PACK = """import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode='w|') as made:
    made.add('/app/data', '.')
"""
_FILES_MAX = 256 << 20
_MANY = 10_000
_LATE_S = 30.0


def declared(policy: Policy, kind: str) -> tuple[str, ...]:
    """The rules of a policy that the vendor's word holds.

    Raises:
        Unsupported: a required rule is held by nothing there, or folders were granted; names them.
    """
    from hermes_exec_policies.explain import refuse_unless_enforceable
    from hermes_exec_policies.folders import seen_in
    from hermes_exec_policies.host import this_host

    if paths := [path for paths in seen_in(policy) for path in paths]:
        raise Unsupported(
            f"{kind}: no folder of this machine is there, so not {', '.join(paths)}", remedy="--on bubblewrap"
        )
    return tuple(each.rule for each in refuse_unless_enforceable(policy, kind, this_host()) if each.declared)


async def run(
    registry: Registry, version: Version, policy: Policy, profile: Profile, request: bytes, files: Path | None
) -> tuple[Ended, tuple[str, ...], tuple[str, ...]]:
    """Run a version in a new sandbox, which is gone afterwards; gives its end, the files, and what was not taken.

    Raises:
        Unsupported: a required rule of its policy is held by nothing there; nothing of it ran.
        Refused: files or packages are not what was signed, or the interpreter there is another; nothing of it ran.
        PlaceUnavailable: no sandbox can be backend; nothing of it ran.
        TransferError: it left more than can be taken.
    """
    declared(policy, profile.type)
    with private_folder() as folder:
        archive = _archive(registry, version, folder)
    backend = backend_class(profile.type).from_profile(profile_of(policy, profile))
    await backend.open()
    try:
        there = (await ask(backend, [_ENV, "python3", "-ISc", _LOOK])).stdout.decode("utf-8", "replace").strip()
        preconditions.same_language(version, there)
        ended = await _called(backend, version, policy, archive, request)
        if files is None:
            return ended, (), ()
        async with asyncio.timeout(_LATE_S):
            packed = await _bounded(backend, [_ENV, "python3", "-ISc", _PACK], b"", {}, _FILES_MAX)
        return ended, *take_files(packed.stdout, files)
    except TimeoutError:
        raise TransferError("what the skill left did not come in time") from None
    finally:
        await backend.close()


def profile_of(policy: Policy, profile: Profile) -> Profile:
    """A profile whose sandbox is a new one, with the options that the policy asks the vendor for.

    Raises:
        Unsupported: it is of a sandbox that others use as well.
    """
    if getattr(profile, "sandbox", None) or getattr(profile, "name", None) or getattr(profile, "volumes", None):
        raise Unsupported(f"{profile.target_text()}: a skill gets a sandbox of its own", remedy=f"{profile.type}:IMAGE")
    wanted: dict[str, Any] = {"network": "open" if policy.network.access == "open" else "blocked"}
    if policy.limits.memory is not None:
        wanted |= {"memory_limit" if profile.type == "modal" else "memory": policy.limits.memory}
    if policy.limits.time is not None and profile.type == "modal":
        wanted["timeout"] = int(policy.limits.time) + 120  # it is made, and what is left in it is taken
    return type(profile).model_validate({**profile.model_dump(exclude_unset=True), **wanted})


def _archive(registry: Registry, version: Version, folder: Path) -> bytes:
    from hermes_exec_policies.gate.launch import PACKAGES, SKILLS

    tree = folder / "tree"
    try:
        content.copy(registry.tree(version), version.files, tree)
    except content.Changed as error:
        registry.quarantine(version.name, version.number, f"changed: {error.what}")
        raise
    packages = preconditions.packages(registry, version, folder)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(tree, f"{SKILLS}/{version.module}".lstrip("/"), filter=_owned_by_root)
        if packages is not None:
            archive.add(packages, PACKAGES.lstrip("/"), filter=_owned_by_root)
    return buffer.getvalue()


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def _called(backend: Backend, version: Version, policy: Policy, archive: bytes, request: bytes) -> Ended:
    from hermes_exec_policies.gate.launch import caller, program

    argv = [_ENV, "python3", "-IBc", program("alone"), str(len(archive)), str(policy.user.first)]
    argv += caller(version.module, version.entry, version.function, packages=bool(version.environment))
    began = time.monotonic()
    try:
        async with asyncio.timeout(policy.limits.time):
            return await _bounded(backend, argv, archive + request, policy.environment.set, policy.limits.output)
    except TimeoutError:
        return Ended(Exit(lost="it was ended"), "wall", b"", b"", time.monotonic() - began)


async def _bounded(backend: Backend, argv: list[str], data: bytes, env: Mapping[str, str], most: int | None) -> Ended:
    """Run a program to its end; what it says is bounded."""
    output = _Said(most)
    began = time.monotonic()
    channel = await backend.spawn(argv, output, env=env)
    try:
        await send(channel, data)
        channel.write_eof()
        await output.over.wait()
    finally:
        if output.exit is None:
            channel.kill()
    exit = output.exit or Exit(lost="it was ended")
    if exit.lost and not output.full:
        raise PlaceUnavailable(f"the place was lost: {exit.lost}", state="what became of the skill is not known")
    limit = "output" if output.full else ""
    return Ended(exit, limit, bytes(output.kept[0]), bytes(output.kept[1]), time.monotonic() - began)


class _Said:
    """What a program says, up to a bound on both together."""

    def __init__(self, most: int | None) -> None:
        self.kept = (bytearray(), bytearray())
        self.exit: Exit | None = None
        self.full = False
        self.over = asyncio.Event()
        """Set when it has ended, or has said too much."""
        self._most = most

    def received(self, data: bytes) -> None:
        """Keep it."""
        self._keep(0, data)

    def stderr_received(self, data: bytes) -> None:
        """Keep it."""
        self._keep(1, data)

    def closed(self, exit: Exit) -> None:
        """It is over."""
        self.exit = exit
        self.over.set()

    def _keep(self, stream: int, data: bytes) -> None:
        room = len(data) if self._most is None else self._most - sum(map(len, self.kept))
        self.kept[stream].extend(data[: max(0, room)])
        if len(data) > room:
            self.full = True
            self.over.set()


def take_files(packed: bytes, into: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The plain files of an archive that comes from beside the skill: bounded, and none by a path that climbs."""
    from hermes_exec_policies.gate import verdict
    from hermes_exec_policies.gate.archive_members import Bounds, MemberKind, read_tar

    files: list[str] = []
    left: list[str] = []
    into.mkdir(mode=0o700)
    if not packed:
        return (), ()
    try:
        for member in read_tar(packed, Bounds(members=_MANY, file=_FILES_MAX, unpacked=_FILES_MAX)):
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or "\0" in member.name:
                raise TransferError("what the skill left cannot be taken: a path that leaves its folder")
            if member.kind is MemberKind.OTHER:
                left.append(f"{path}: no plain file")
            elif member.kind is MemberKind.FILE:
                target = into / path
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with target.open("xb") as file:
                    file.write(member.data)
                files.append(str(path))
    except verdict.Refused as error:
        raise TransferError(f"what the skill left cannot be taken: {error.findings[0].operator}") from error
    except OSError as error:
        raise TransferError(f"what the skill left cannot be taken: {error.strerror}", code=error.errno or 0) from error
    return tuple(sorted(files)), tuple(left)
