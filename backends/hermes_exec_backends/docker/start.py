"""Start of one program in one container, controlled from outside: no process inside the container is trusted.

For untrusted code. The engine applies the restrictions that it has options for; the launcher, which is the
container's first process, applies the others: Landlock and limits of a process. The container's state is read from the
kernel and not requested from the engine, so the engine must run on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, PlaceUnavailable, Unsupported
from hermes_exec.guest.core import process_tree
from hermes_exec_backends.docker import labels
from hermes_exec_backends.docker.attached import Attached
from hermes_exec_backends.docker.cgroups import ContainerBounds
from hermes_exec_backends.docker.channel import Container
from hermes_exec_backends.docker.confinement import check, options
from hermes_exec_backends.docker.engine import Engine
from hermes_exec_backends.docker.errors import Refused
from hermes_exec_backends.sandbox.control import build_streamed_argv, launcher_payload, read_report
from hermes_exec_backends.sandbox.mounts import DOCKER_MOUNTS, HeldSources
from hermes_exec_backends.sandbox.ready import verify_and_hold
from hermes_exec_backends.sandbox.spec import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_backends.sandbox.run import Run
    from hermes_exec_backends.sandbox.spec import Confinement

_START_S = 120.0
_LEFT_S = 3600.0
"""Seconds after which a container that was not removed counts as left behind."""


async def start(
    confinement: Confinement,
    argv: Sequence[str],
    *,
    image: str,
    stdin: bytes = b"",
    limits: Limits | None = None,
    python: str = "/usr/bin/python3",
    engine: str = "",
) -> Run:
    """Create a container and hold ``argv`` in it, ready to begin.

    Args:
        confinement: the restrictions and mounts of the container, apart from the image.
        argv: the program by its absolute path inside, and its arguments.
        image: the name of an image that is present.
        stdin: all data of its standard input.
        limits: the limits that end the whole container.
        python: the interpreter in the image that confines it, Python 3.6 or later.
        engine: the address of an engine of this machine; the default one if omitted.

    Raises:
        UsageError: the specification or the program is invalid.
        Unsupported: a required restriction cannot be applied, or the engine is on another machine; nothing was started.
        PlaceUnavailable: the container cannot be created; nothing was started.
    """
    check(confinement, argv)
    limits = limits or Limits()
    there = Engine(engine or None)
    made: Made | None = None
    try:
        async with asyncio.timeout(_START_S):
            await there.open()
            with HeldSources(confinement.binds) as sources:
                made = await _create_sandbox(there, confinement, argv, image, limits, python)
                return await _run_held(made, confinement, stdin, limits, sources)
    except BaseException as error:
        if made is not None:
            await asyncio.shield(made.release())
        else:
            await there.close()
        if isinstance(error, TimeoutError):
            raise PlaceUnavailable(f"docker: no container within {_START_S:g} s") from None
        raise


async def image_of(name: str, engine: str = "") -> str:
    """Return the digest by which an engine identifies an image, and the versions of the engine and its components.

    Raises:
        PlaceUnavailable: there is no such image, or no engine.
    """
    there = Engine(engine or None)
    try:
        await there.open()
        found = await there.call(f"docker: image {name}", lambda client: client.inspect_image(name))
        version = await there.call("docker: the engine's version", lambda client: client.version())
        parts = [f"{each.get('Name')} {each.get('Version')}" for each in version.get("Components") or ()]
        return " ".join([found["Id"], str(version.get("Version")), str(version.get("KernelVersion")), *parts])
    finally:
        await there.close()


class Made:
    """A container whose first process is the launcher; see ``SandboxHandle``."""

    def __init__(self, engine: Engine, container: Container, streams: Attached, bounds: ContainerBounds) -> None:
        self.first = 0
        self.pid = 0
        self.streams = streams
        self.container = container
        self.bounds = bounds
        self.stdin = b""
        self.mark = ""
        self._engine = engine

    def begin(self, output: Callable[[int, bytes], None], stdin: bytes | None) -> None:
        """Start the program; see ``SandboxHandle``."""
        self.streams.begin(output)
        self.streams.send(b"go" + (self.stdin if stdin is None else stdin))
        self.streams.end_input()

    async def wait_status(self) -> tuple[int | None, str]:
        """Return the wait status; an engine reports one number, so an exit with 137 equals an end by signal 9."""
        await self.streams.over()
        await self._engine.call("docker: a sandbox's end", lambda client: client.wait(self.container.id))
        state = (await self.container.inspect())["State"]
        self.bounds.record_end(out_of_memory=bool(state.get("OOMKilled")))
        code = int(state.get("ExitCode") or 0)
        return (code - 128 if 128 < code < 193 else code << 8), ""

    async def wait_gone(self) -> None:
        """Wait until the container has ended, as the engine reports; see ``SandboxHandle``."""

    async def release(self) -> None:
        """Remove the container; see ``SandboxHandle``."""
        self.streams.close()
        with contextlib.suppress(HermesError):  # a container that remains is found by its label
            await self.container.remove()
        await self._engine.close()


async def _create_sandbox(
    engine: Engine, confinement: Confinement, argv: Sequence[str], image: str, limits: Limits, python: str
) -> Made:
    ours = replace(confinement, apparmor="")  # the engine already applies it to the launcher
    source = launcher_payload(ours, argv, mounts=False, wall_s=limits.wall_s)
    mark = secrets.token_hex(16)
    config: dict[str, Any] = {
        **options(confinement, limits),
        "Image": image,
        "Entrypoint": build_streamed_argv(python, len(source), mark),
        "Cmd": [],
        "Labels": labels.container_labels({"specification": confinement.digest}, _LEFT_S),
    }
    try:
        made = await engine.call(
            "docker: a sandbox could not be created", lambda client: client.create_container_from_config(config)
        )
    except Refused as error:
        raise PlaceUnavailable(f"docker: no sandbox of {image}: {error.said}") from error
    container = Container(engine, str(made["Id"]))
    try:
        streams = Attached(await engine.connect())
    except BaseException:
        with contextlib.suppress(HermesError):
            await container.remove()
        raise
    held = Made(engine, container, streams, ContainerBounds(limits))
    try:
        await streams.start(engine.version, container.id)
        await engine.call("docker: a sandbox could not be started", lambda client: client.start(container.id))
    except BaseException:
        await held.release()
        raise
    held.mark = mark
    streams.send(source)
    return held


async def _run_held(made: Made, confinement: Confinement, stdin: bytes, limits: Limits, sources: HeldSources) -> Run:
    applied = await made.streams.message()
    told = read_report("docker", applied, await made.streams.message() if applied.startswith(b"applied") else b"")
    if told is None:
        said = made.streams.complaint.splitlines()[-1:] or ["it gave no reason"]
        raise PlaceUnavailable(f"docker: a sandbox ended before its program: {said[0]}")
    first = int((await made.container.inspect())["State"]["Pid"])
    children = process_tree.descendants([first])
    if made.mark.encode() not in _words(first) or len(children) != 1:
        raise Unsupported(
            "docker: the engine runs containers elsewhere, so nothing of a sandbox can be seen from outside",
            remedy="an engine of this machine",
        )
    made.first, made.pid, made.stdin = first, children[0], stdin
    return await verify_and_hold(made, told, confinement, limits, DOCKER_MOUNTS, sources, made.bounds)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
