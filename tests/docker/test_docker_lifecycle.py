"""What is there after a close, and what an open finds: removed, kept, reused, attached, copied, left to jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.backend import OpenOptions
from hermes_exec.errors import PlaceGone, PlaceUnavailable
from hermes_exec.testing.place import wait_until
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.docker.cleanup import reap
from hermes_exec_backends.docker.engine import Engine as Way
from tests.rigs.bounded import within
from tests.rigs.docker_engine import BUSYBOX, DEBIAN
from tests.rigs.orphans import check_next_guest_ends_orphans

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Leftover
    from hermes_exec.terminal.terminal import Terminal
    from tests.docker.conftest import Opened
    from tests.rigs.docker_engine import Engine

NAME = "hermes-exec-test-named"


@pytest.fixture(autouse=True)
def _nothing_left(dock: Engine) -> Generator[None]:
    yield
    for container in dock.containers():
        dock.client.remove_container(container["Id"], v=True, force=True)


async def text(terminal: Terminal, command: str) -> str:
    return (await terminal.run(["sh", "-c", command], check=True)).stdout_text


async def open_one(dock: Engine, image: str = BUSYBOX, **options: Any) -> Terminal:
    return await hermes_exec.open(DockerBackend(dock.profile(image, **options)), audit=False)


async def swept(dock: Engine) -> list[Leftover]:
    way = Way(dock.address)
    await way.open()
    try:
        return await reap(way)
    finally:
        await way.close()


def test_a_closed_container_is_gone(run: Any, opened: Opened, dock: Engine) -> None:
    async def use() -> None:
        async with opened(BUSYBOX):
            assert len(dock.containers()) == 1

    run(use())
    assert dock.containers() == []


def test_what_cannot_be_opened_leaves_no_container(run: Any, dock: Engine) -> None:
    async def fail() -> None:
        with pytest.raises(PlaceUnavailable):
            await hermes_exec.open(DockerBackend(dock.profile(BUSYBOX)), carrier="guest", audit=False)

    run(fail())
    assert dock.containers() == []


def test_a_kept_container_goes_on_and_is_found_by_its_target(run: Any, dock: Engine) -> None:
    async def keep() -> None:
        backend = DockerBackend(dock.profile(BUSYBOX, lease_s=1))
        terminal = await hermes_exec.open(backend, audit=False)
        target = backend.target
        await text(terminal, "echo kept > /file")
        await terminal.close(keep=True)
        assert target.startswith("docker:@hermes-exec-")
        await asyncio.sleep(2)  # it has no lease that could be over
        again = await open_one(dock, container=target.partition("@")[2])
        assert await text(again, "cat /file") == "kept\n"
        await again.close()
        assert len(dock.containers()) == 1  # who attaches does not remove

    run(keep())


def test_a_reusable_container_is_stopped_when_kept_and_started_again(run: Any, dock: Engine) -> None:
    async def reuse() -> None:
        terminal = await open_one(dock, name=NAME, reuse=True)
        await text(terminal, "echo kept > /file")
        await terminal.close(keep=True)
        assert dock.inspect(NAME)["State"]["Status"] == "exited"
        terminal = await open_one(dock, name=NAME, reuse=True)
        assert await text(terminal, "cat /file") == "kept\n"
        await terminal.close()
        assert dock.containers() == []

    run(reuse())


def test_another_configuration_is_not_reused_and_the_difference_is_named(run: Any, dock: Engine) -> None:
    async def differ() -> None:
        terminal = await open_one(dock, name=NAME, reuse=True)
        await terminal.close(keep=True)
        with pytest.raises(PlaceUnavailable, match="another configuration: image, memory, read_only"):
            await open_one(dock, DEBIAN, name=NAME, reuse=True, memory=64 << 20, read_only=True)
        assert dock.inspect(NAME)["State"]["Status"] == "exited"

    run(differ())


def test_a_name_that_is_taken_is_told_and_left_alone(run: Any, dock: Engine) -> None:
    async def clash() -> None:
        terminal = await open_one(dock, name=NAME)
        with pytest.raises(PlaceUnavailable, match=f"the name '{NAME}' is taken"):
            await open_one(dock, name=NAME)
        assert await text(terminal, "echo on") == "on\n"
        await terminal.close()

    run(clash())


def test_a_container_of_somebody_else_is_not_reused(run: Any, dock: Engine) -> None:
    made = dock.client.create_container(dock.image(BUSYBOX), ["sleep", "60"], name=NAME)
    try:
        with pytest.raises(PlaceUnavailable, match="was not created by hermes_exec"):
            run(open_one(dock, name=NAME, reuse=True))
        assert dock.inspect(NAME)["State"]["Status"] == "created"
    finally:
        dock.client.remove_container(made, force=True)


def test_a_running_container_can_be_worked_in_and_is_left_running(run: Any, dock: Engine) -> None:
    made = dock.client.create_container(dock.image(DEBIAN), ["sleep", "600"], name=NAME)
    try:
        with pytest.raises(PlaceUnavailable, match=f"docker start {NAME}"):
            run(open_one(dock, container=NAME))
        dock.client.start(made)

        async def work() -> None:
            terminal = await open_one(dock, container=NAME, user="1000")
            assert await text(terminal, "id -u; echo done > /tmp/file") == "1000\ndone\n".replace("done\n", "")
            await terminal.close()

        run(work())
        assert dock.inspect(NAME)["State"]["Running"]
    finally:
        dock.client.remove_container(made, force=True)


def test_a_container_that_is_not_there_is_told(run: Any, dock: Engine) -> None:
    with pytest.raises(PlaceUnavailable, match="there is no container 'no-such-container'") as refused:
        run(open_one(dock, container="no-such-container"))
    assert not isinstance(refused.value, PlaceGone)  # nothing says that it ever was


def test_a_container_that_was_there_before_is_told_to_be_gone(run: Any, dock: Engine) -> None:
    backend = DockerBackend(dock.profile(container="no-such-container"))
    backend.options = OpenOptions(reopen=True)
    with pytest.raises(PlaceGone, match="there is no container 'no-such-container'"):
        run(backend.open())


def test_a_snapshot_opens_as_a_copy(run: Any, dock: Engine) -> None:
    async def copy() -> None:
        terminal = await open_one(dock)
        await text(terminal, "echo copied > /file")
        target = await terminal.snapshot("hermes-exec-test-copy:1")
        await text(terminal, "echo later > /file")
        await terminal.close()
        assert target == "docker:hermes-exec-test-copy:1"
        terminal = await hermes_exec.open(
            DockerBackend(dock.profile(BUSYBOX).model_copy(update={"image": "hermes-exec-test-copy:1"})), audit=False
        )
        assert await text(terminal, "cat /file") == "copied\n"
        await terminal.close()

    try:
        run(copy())
        made = dock.client.create_container("hermes-exec-test-copy:1", ["cat", "/file"], network_disabled=True)
        dock.client.start(made)  # others start from it what they would start from its origin
        assert dock.client.wait(made)["StatusCode"] == 0
        assert dock.client.logs(made) == b"copied\n"
        assert not run(swept(dock))  # and it is not taken for ours
        dock.client.remove_container(made)
    finally:
        dock.client.remove_image("hermes-exec-test-copy:1", force=True)


def test_a_suspended_place_stands_still_and_goes_on(run: Any, dock: Engine) -> None:
    async def suspend() -> None:
        terminal = await open_one(dock, DEBIAN)
        await terminal.run("while :; do echo x >> /tmp/count; sleep 0.02; done &")
        container = dock.containers()[0]["Id"]
        await terminal.suspend()
        assert dock.inspect(container)["State"]["Paused"]
        size = dock.client.get_archive(container, "/tmp/count")[1]["size"]
        await asyncio.sleep(0.3)
        assert dock.client.get_archive(container, "/tmp/count")[1]["size"] == size
        await terminal.resume()
        assert await text(terminal, "echo on") == "on\n"
        await terminal.close()

    run(suspend())


def test_a_container_with_a_job_stays_until_the_job_is_done(run: Any, dock: Engine) -> None:
    async def leave() -> None:
        terminal = await open_one(dock, DEBIAN)
        await text(terminal, "mkfifo /tmp/go")
        job = await terminal.start("read x < /tmp/go")
        name = dock.containers()[0]["Names"][0].lstrip("/")
        await terminal.close()
        assert dock.inspect(name)["State"]["Running"]
        again = await open_one(dock, container=name, carrier="plain")
        assert job.id
        await text(again, "echo go > /tmp/go")
        await again.close()
        assert dock.inspect(name)["State"]["Running"]  # for the job's log, until that is pruned or too old

    run(leave())


def test_a_container_without_work_ends_when_it_is_left(run: Any, dock: Engine) -> None:
    async def leave() -> None:
        backend = DockerBackend(dock.profile(DEBIAN))
        await backend.open()
        await backend.release()

        async def gone() -> bool:
            return not dock.containers()

        await wait_until(gone, 30)

    run(leave())


def test_the_next_guest_in_a_container_ends_what_a_killed_one_left(dock: Engine) -> None:
    async def use() -> None:
        first = DockerBackend(dock.profile(DEBIAN, lease_s=300))
        async with hermes_exec.open(first, audit=False):
            name = first.target.partition("@")[2]
            await check_next_guest_ends_orphans(lambda: DockerBackend(dock.profile(container=name)))

    within(140)(use())
