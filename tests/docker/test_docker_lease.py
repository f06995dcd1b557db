"""No container is left behind: not by an orchestrator that was killed, nor for ever to be reused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.testing.place import link, marker
from hermes_exec_backends.docker import DockerBackend, lease
from hermes_exec_backends.docker.cleanup import reap
from hermes_exec_backends.docker.engine import Engine as Way
from tests.rigs.bounded import until, wait_until
from tests.rigs.docker_engine import BUSYBOX, DEBIAN
from tests.rigs.processes import every, name, namespace, runs

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from hermes_exec.backend import Channel, Leftover, Receiver
    from tests.rigs.docker_engine import Engine

ORCHESTRATOR = """
import asyncio, sys
import hermes_exec
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.profiles.docker import DockerProfile

async def main():
    options = {"reuse": True, "name": sys.argv[3]} if len(sys.argv) > 3 else {}
    profile = DockerProfile(engine=sys.argv[1], image=sys.argv[2], pull="never", lease_s=3, **options)
    terminal = await hermes_exec.open(DockerBackend(profile), audit=False)
    await terminal.run("sleep 1000 >/dev/null 2>&1 &")
    print("open", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""
NAME = "hermes-exec-test-lease"


@pytest.fixture(autouse=True)
def _nothing_left(dock: Engine) -> Generator[None]:
    yield
    for container in dock.containers():
        dock.client.remove_container(container["Id"], v=True, force=True)


def orchestrator(dock: Engine, image: str, *name: str) -> subprocess.Popen[bytes]:
    """Another process that has opened a container."""
    argv = [sys.executable, "-c", ORCHESTRATOR, dock.address, dock.image(image), *name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    child.stdout.close()
    return child


async def swept(dock: Engine) -> list[Leftover]:
    way = Way(dock.address)
    await way.open()
    try:
        return await reap(way)
    finally:
        await way.close()


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_a_killed_orchestrator_leaves_no_container_after_the_lease(dock: Engine, image: str) -> None:
    child = orchestrator(dock, image)
    assert len(dock.containers()) == 1
    child.send_signal(signal.SIGKILL)
    child.wait()
    dock.wait_until_none()


def test_a_guest_that_is_killed_with_its_orchestrator_holds_no_container(dock: Engine) -> None:
    child = orchestrator(dock, DEBIAN)
    (container,) = dock.containers()
    space = namespace(dock.inspect(container["Id"])["State"]["Pid"], "pid")
    child.send_signal(signal.SIGKILL)
    child.wait()
    for pid in [pid for pid in every() if namespace(pid, "pid") == space and name(pid).startswith("python")]:
        os.kill(pid, signal.SIGKILL)
    dock.wait_until_none()


@pytest.mark.parametrize("program", ["bash", "dash", "busybox", "python3"])
def test_a_container_is_held_for_as_long_as_a_guest_runs(dock: Engine, program: str) -> None:
    shell, python = lease.commands(1, 1000)
    words = {"python3": python, "busybox": ["busybox", *shell]}.get(program, [program, *shell[1:]])
    host = dock.client.create_host_config(network_mode="none")
    image = dock.image(BUSYBOX if program == "busybox" else DEBIAN)
    made = dock.client.create_container(image, words[1:], entrypoint=words[:1], host_config=host)
    try:
        dock.client.start(made)
        guest = dock.client.exec_create(made, ["sh", "-c", "sleep 5; exit 3", "line\nload('<hx 0>')"])["Id"]
        dock.client.exec_start(guest)
        assert dock.client.exec_inspect(guest)["ExitCode"] == 3
        assert dock.client.wait(made, timeout=30)["StatusCode"] == 0
    finally:
        dock.client.remove_container(made, force=True)


def test_a_container_outlives_its_lease_while_the_orchestrator_lives(run: Any, dock: Engine) -> None:
    async def stay() -> None:
        backend = DockerBackend(dock.profile(BUSYBOX, lease_s=2))
        async with hermes_exec.open(backend, audit=False) as terminal:
            await asyncio.sleep(5)
            assert (await terminal.run("echo on")).stdout == b"on\n"

    run(stay())


def wait_until_it_heeds_signals(dock: Engine, container: str, program: str) -> None:
    """Return once a first process waits: a shell for a child with its traps set, a Python for signals."""
    words = ["sh", "-c", "cat /proc/1/status; echo Children: $(cat /proc/1/task/1/children)"]
    term, child = 1 << signal.SIGTERM - 1, 1 << signal.SIGCHLD - 1

    def heeds() -> bool:
        told = dock.client.exec_start(dock.client.exec_create(container, words)["Id"]).decode()
        said = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
        caught = int(said.get("SigCgt", "0"), 16)
        if program == "python3":
            # It has a handler for ended children right before it waits, and sleeps nowhere else after that.
            return bool(caught & child) and said["State"].split()[0] == "S"
        return bool(caught & term and said["Children"].strip())

    wait_until(heeds)


@pytest.mark.parametrize("program", ["bash", "dash", "python3"])
@pytest.mark.parametrize(("sign", "code"), [("", 0), (lease.FINISH, 0), ("SIGTERM", lease.KEPT)])
def test_the_first_process_ends_when_it_is_to(dock: Engine, program: str, sign: str, code: int) -> None:
    shell, python = lease.commands(2 if not sign else 1000, 1000)
    words = [program, *(python if program == "python3" else shell)[1:]]
    host = dock.client.create_host_config(network_mode="none")
    made = dock.client.create_container(dock.image(DEBIAN), words[1:], entrypoint=words[:1], host_config=host)
    try:
        dock.client.start(made)
        if sign:
            wait_until_it_heeds_signals(dock, made["Id"], program)
            dock.client.kill(made, signal=sign)
        assert dock.client.wait(made, timeout=30)["StatusCode"] == code
    finally:
        dock.client.remove_container(made, force=True)


def test_an_image_with_a_python_and_no_shell_is_guarded_too(dock: Engine) -> None:
    bare = "hermes-exec-test-shell-less:1"
    made = dock.client.create_container(dock.image(DEBIAN), ["python3", "-c", "import os; os.unlink('/usr/bin/sh')"])
    dock.client.start(made)
    assert dock.client.wait(made)["StatusCode"] == 0
    dock.client.commit(made, *bare.split(":"))
    dock.client.remove_container(made)

    async def use() -> None:
        backend = DockerBackend(dock.profile(DEBIAN, lease_s=2).model_copy(update={"image": bare}))
        terminal = await hermes_exec.open(backend, audit=False, carrier="guest")
        await asyncio.sleep(4)
        assert (await terminal.run(["python3", "-c", "print('on')"])).stdout == b"on\n"
        await backend.suspend()
        await backend.resume()
        await terminal.close(keep=True)
        await asyncio.sleep(4)
        (container,) = dock.containers()
        dock.client.kill(container["Id"], signal=lease.FINISH)

    try:
        asyncio.run(use())
        dock.wait_until_none()
    finally:
        dock.client.remove_image(bare, force=True)


def test_reap_removes_what_was_to_be_reused_and_whose_orchestrator_vanished(run: Any, dock: Engine) -> None:
    child = orchestrator(dock, BUSYBOX, NAME)
    child.kill()
    child.wait()
    wait_until(lambda: not dock.inspect(NAME)["State"]["Running"])
    assert [(each.target, each.left) for each in run(swept(dock))] == [(f"docker:@{NAME}", "")]
    assert dock.containers() == []


def test_reap_leaves_what_runs_what_is_kept_and_what_is_not_ours(run: Any, dock: Engine) -> None:
    foreign = dock.client.create_container(dock.image(BUSYBOX), ["true"])

    async def try_it() -> None:
        kept = await hermes_exec.open(DockerBackend(dock.profile(BUSYBOX, name=NAME, reuse=True)), audit=False)
        await kept.close(keep=True)
        async with hermes_exec.open(DockerBackend(dock.profile(BUSYBOX)), audit=False) as terminal:
            assert await swept(dock) == []
            assert (await terminal.run("echo on")).stdout == b"on\n"
        assert dock.inspect(NAME)["State"]["ExitCode"] == lease.KEPT

    try:
        run(try_it())
        assert dock.inspect(foreign["Id"])
    finally:
        dock.client.remove_container(foreign)


def test_reap_removes_what_was_created_and_never_started(run: Any, dock: Engine) -> None:
    made = dock.client.create_container(dock.image(BUSYBOX), ["true"], labels={"hermes_exec.lease_s": "1"})
    time.sleep(2.5)  # times of creation are told to the second
    assert len(run(swept(dock))) == 1
    assert made["Id"] not in [each["Id"] for each in dock.client.containers(all=True)]


def test_a_container_is_left_to_its_job_by_whoever_was_away_for_longer_than_the_lease(run: Any, dock: Engine) -> None:
    class Asleep(DockerBackend):
        awake = asyncio.Event()

        async def spawn(
            self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
        ) -> Channel:
            await self.awake.wait()
            return await super().spawn(argv, receiver, env=env)

    async def work() -> None:
        backend, mark = Asleep(dock.profile(DEBIAN)), marker()
        backend.awake.set()
        async with hermes_exec.open(backend, audit=False, lease_s=1.0, carrier="guest") as terminal:
            await terminal.start(["sleep", "1000"])
            await terminal.run(f"sleep {mark} >/dev/null 2>&1 &")
            await until(lambda: runs(mark))
            backend.awake.clear()
            link(terminal).break_connection()
            await until(lambda: not runs(mark))
            backend.awake.set()
            assert (await terminal.run(["echo", "on"])).stdout == b"on\n"
        (container,) = dock.containers()
        assert container["State"] == "running"

    run(work())
