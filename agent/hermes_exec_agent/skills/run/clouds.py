"""Run a skill in a sandbox of a cloud provider, whose isolation the provider declares and the gate cannot prove.

The sandbox cannot be inspected from outside before the skill begins, so a policy is refused if the provider enforces
none of a required rule; rules that the provider declares are reported with every run.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Exit
from hermes_exec.config.registry import find_backend_class
from hermes_exec.errors import PlaceUnavailable, TransferError, Unsupported
from hermes_exec.transport.shell.target import run_helper, send_all
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.run import preconditions
from hermes_exec_backends.sandbox.run import ProgramResult

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


def find_declared_rules(policy: Policy, kind: str) -> tuple[str, ...]:
    """Return the rules of a policy that the provider's declaration covers.

    Raises:
        Unsupported: the provider does not enforce a required rule, or folders were granted; the message names them.
    """
    from hermes_exec_backends.sandbox.host import this_machine
    from hermes_exec_policies.explain import refuse_unless_enforceable
    from hermes_exec_policies.folders import shared_paths

    if paths := [path for paths in shared_paths(policy) for path in paths]:
        raise Unsupported(
            f"{kind}: no folder of this machine is there, so not {', '.join(paths)}", remedy="--on bubblewrap"
        )
    return tuple(each.rule for each in refuse_unless_enforceable(policy, kind, this_machine()) if each.declared)


async def run(
    registry: Registry, version: Version, policy: Policy, profile: Profile, request: bytes, files: Path | None
) -> tuple[ProgramResult, tuple[str, ...], tuple[str, ...]]:
    """Run a version in a new sandbox, which is deleted afterwards; return its end, its files, and those left behind.

    Raises:
        Unsupported: the provider does not enforce a required rule of its policy; nothing of it ran.
        Refused: files or packages differ from the signed list, or the interpreter is another one; nothing of it ran.
        PlaceUnavailable: no sandbox can be created; nothing of it ran.
        TransferError: its files exceed the limits.
    """
    find_declared_rules(policy, profile.type)
    with private_folder() as folder:
        archive = _archive(registry, version, folder)
    backend = find_backend_class(profile.type).from_profile(profile_of(policy, profile))
    await backend.open()
    try:
        there = (await run_helper(backend, [_ENV, "python3", "-ISc", _LOOK])).stdout.decode("utf-8", "replace").strip()
        preconditions.check_interpreter(version, there)
        ended = await _call_skill(backend, version, policy, archive, request)
        if files is None:
            return ended, (), ()
        async with asyncio.timeout(_LATE_S):
            packed = await _run_bounded(backend, [_ENV, "python3", "-ISc", _PACK], b"", {}, _FILES_MAX)
        return ended, *extract_files(packed.stdout, files)
    except TimeoutError:
        raise TransferError("the skill's files did not arrive in time") from None
    finally:
        await backend.close()


def profile_of(policy: Policy, profile: Profile) -> Profile:
    """Return a profile of a new sandbox, with the provider's options for the policy.

    Raises:
        Unsupported: the profile is of a sandbox with other users.
    """
    if getattr(profile, "sandbox", None) or getattr(profile, "name", None) or getattr(profile, "volumes", None):
        raise Unsupported(f"{profile.target_text()}: a skill gets a sandbox of its own", remedy=f"{profile.type}:IMAGE")
    wanted: dict[str, Any] = {"network": "open" if policy.network.access == "open" else "blocked"}
    if policy.limits.memory is not None:
        wanted |= {"memory_limit" if profile.type == "modal" else "memory": policy.limits.memory}
    if policy.limits.time is not None and profile.type == "modal":
        wanted["timeout"] = int(policy.limits.time) + 120  # time to create it and to fetch its files
    return type(profile).model_validate({**profile.model_dump(exclude_unset=True), **wanted})


def _archive(registry: Registry, version: Version, folder: Path) -> bytes:
    from hermes_exec_policies.gate.launch import PACKAGES, SKILLS

    tree = folder / "tree"
    try:
        content.copy_verified(registry.tree(version), version.files, tree)
    except content.ContentChanged as error:
        registry.quarantine(version.name, version.number, f"changed: {error.what}")
        raise
    packages = preconditions.prepare_packages(registry, version, folder)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(tree, f"{SKILLS}/{version.module}".lstrip("/"), filter=_set_root_owner)
        if packages is not None:
            archive.add(packages, PACKAGES.lstrip("/"), filter=_set_root_owner)
    return buffer.getvalue()


def _set_root_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def _call_skill(
    backend: Backend, version: Version, policy: Policy, archive: bytes, request: bytes
) -> ProgramResult:
    from hermes_exec_policies.gate.launch import caller_argv, read_program

    argv = [_ENV, "python3", "-IBc", read_program("alone"), str(len(archive)), str(policy.user.first)]
    argv += caller_argv(version.module, version.entry, version.function, packages=bool(version.environment))
    began = time.monotonic()
    try:
        async with asyncio.timeout(policy.limits.time):
            return await _run_bounded(backend, argv, archive + request, policy.environment.set, policy.limits.output)
    except TimeoutError:
        return ProgramResult(Exit(lost="it was ended"), "wall", b"", b"", time.monotonic() - began)


async def _run_bounded(
    backend: Backend, argv: list[str], data: bytes, env: Mapping[str, str], most: int | None
) -> ProgramResult:
    """Run a program until it ends; its output is limited."""
    output = _OutputCollector(most)
    began = time.monotonic()
    channel = await backend.spawn(argv, output, env=env)
    try:
        await send_all(channel, data)
        channel.write_eof()
        await output.over.wait()
    finally:
        if output.exit is None:
            channel.kill()
    exit = output.exit or Exit(lost="it was ended")
    if exit.lost and not output.full:
        raise PlaceUnavailable(f"the target was lost: {exit.lost}", state="the outcome of the skill is unknown")
    limit = "output" if output.full else ""
    return ProgramResult(exit, limit, bytes(output.kept[0]), bytes(output.kept[1]), time.monotonic() - began)


class _OutputCollector:
    """Collects a program's output, up to a limit on both streams together."""

    def __init__(self, most: int | None) -> None:
        self.kept = (bytearray(), bytearray())
        self.exit: Exit | None = None
        self.full = False
        self.over = asyncio.Event()
        """Set when the program has ended, or its output exceeds the limit."""
        self._most = most

    def on_data(self, data: bytes) -> None:
        """Collect output."""
        self._keep(0, data)

    def on_stderr(self, data: bytes) -> None:
        """Collect error output."""
        self._keep(1, data)

    def on_close(self, exit: Exit) -> None:
        """Note the end."""
        self.exit = exit
        self.over.set()

    def _keep(self, stream: int, data: bytes) -> None:
        room = len(data) if self._most is None else self._most - sum(map(len, self.kept))
        self.kept[stream].extend(data[: max(0, room)])
        if len(data) > room:
            self.full = True
            self.over.set()


def extract_files(packed: bytes, into: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Extract the regular files of an untrusted archive: limited in size, and none outside of the folder."""
    from hermes_exec_policies.gate import verdict
    from hermes_exec_policies.gate.archive_members import ArchiveBounds, MemberKind, read_tar

    files: list[str] = []
    left: list[str] = []
    into.mkdir(mode=0o700)
    if not packed:
        return (), ()
    try:
        for member in read_tar(packed, ArchiveBounds(members=_MANY, file=_FILES_MAX, unpacked=_FILES_MAX)):
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or "\0" in member.name:
                raise TransferError("the skill's files cannot be copied: a path that leaves its folder")
            if member.kind is MemberKind.OTHER:
                left.append(f"{path}: not a regular file")
            elif member.kind is MemberKind.FILE:
                target = into / path
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with target.open("xb") as file:
                    file.write(member.data)
                files.append(str(path))
    except verdict.SkillRefused as error:
        raise TransferError(f"the skill's files cannot be copied: {error.findings[0].operator}") from error
    except OSError as error:
        raise TransferError(f"the skill's files cannot be copied: {error.strerror}", code=error.errno or 0) from error
    return tuple(sorted(files)), tuple(left)
