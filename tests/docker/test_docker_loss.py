"""What is lost is told by the engine's state: who died, and why; never by what a command printed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceGone, PlaceUnavailable
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.docker_engine import BUSYBOX, DEBIAN, own_engine

if TYPE_CHECKING:
    from hermes_exec.backend import Exit
    from hermes_exec.result import Result
    from hermes_exec.terminal.terminal import Terminal
    from tests.docker.conftest import Opened
    from tests.rigs.docker_engine import Engine

CARRIERS = [(DEBIAN, "guest"), (BUSYBOX, "plain")]
COMPLAINT = b"OCI runtime exec failed: exec failed: unable to start container process: no such thing: unknown\r\n"


class Heard:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def on_data(self, data: bytes, /) -> None:
        self.out += data

    def on_stderr(self, data: bytes, /) -> None:
        self.err += data

    def on_close(self, exit: Exit, /) -> None:
        self.exit.set_result(exit)


async def begun(terminal: Terminal, command: str) -> asyncio.Task[Any]:
    """A command that has begun: it writes a line, which has arrived."""
    started = asyncio.Event()

    async def hold() -> Result:
        async with terminal.stream(["sh", "-c", f"echo in; {command}"]) as stream:
            assert (await anext(stream)).data == b"in\n"
            started.set()
            return await stream.result()

    running = asyncio.ensure_future(hold())
    running.add_done_callback(lambda _: started.set())
    await started.wait()
    return running


@pytest.mark.parametrize(("image", "carrier"), CARRIERS)
def test_a_container_that_was_killed_is_told_at_once(
    run: Any, opened: Opened, dock: Engine, image: str, carrier: str
) -> None:
    async def kill() -> None:
        async with opened(image, carrier) as terminal:
            running = await begun(terminal, "sleep 1000")
            dock.client.kill(dock.containers()[0]["Id"])
            with pytest.raises(OutcomeUnknown, match="container (was removed|ended with exit code 137)"):
                await asyncio.wait_for(running, 30)
            with pytest.raises(HermesError, match="container"):
                await terminal.run(["true"])

    run(kill())


def test_a_container_that_used_up_its_memory_is_told_as_that(run: Any, dock: Engine) -> None:
    made = dock.client.create_container(
        dock.image(DEBIAN),
        ["python3", "-c", "import sys; sys.stdin.read(1); x = bytearray(300_000_000)"],
        stdin_open=True,
        host_config=dock.client.create_host_config(mem_limit=64 << 20, memswap_limit=64 << 20, network_mode="none"),
    )
    dock.client.start(made)

    async def exceed() -> None:
        backend = DockerBackend(dock.profile(container=made["Id"]))
        async with hermes_exec.open(backend, audit=False, carrier="guest") as terminal:
            running = await begun(terminal, "sleep 1000")
            input = dock.client.attach_socket(made, {"stdin": 1, "stream": 1})
            input._sock.sendall(b"x")
            with pytest.raises(OutcomeUnknown, match="killed: it had used up its memory"):
                await asyncio.wait_for(running, 30)
            input.close()

    try:
        run(exceed())
    finally:
        dock.client.remove_container(made, force=True)


@pytest.mark.parametrize(("image", "carrier"), CARRIERS)
def test_an_engine_that_stops_in_the_middle_of_a_command_is_told(
    run: Any, opened: Opened, image: str, carrier: str
) -> None:
    dockerd = own_engine()

    async def stop() -> None:
        async with opened(image, carrier) as terminal:
            running = await begun(terminal, "sleep 1000")
            await asyncio.to_thread(dockerd.stop)
            try:
                if carrier == "plain":
                    with pytest.raises(OutcomeUnknown, match="no engine answers"):
                        await asyncio.wait_for(running, 30)
                    with pytest.raises(PlaceUnavailable, match="no engine answers"):
                        await terminal.run(["true"])
            finally:
                dockerd.start()
            if carrier == "guest":  # it waited for the engine, whose containers ended with it
                with pytest.raises(OutcomeUnknown, match="container (was removed|ended)"):
                    await asyncio.wait_for(running, 30)

    run(stop())


@pytest.mark.parametrize("output", [b"x\r\n", COMPLAINT])
def test_output_that_looks_like_the_engines_words_is_the_commands(run: Any, dock: Engine, output: bytes) -> None:
    async def say() -> None:
        backend = DockerBackend(dock.profile(BUSYBOX))
        await backend.open()
        try:
            for rest, code in (("", 0), ("sleep 0.2; exit 3", 3), ("cat; exit 126", 126)):
                heard = Heard()
                channel = await backend.spawn(["sh", "-c", f'printf %s "$0"; {rest}', output], heard)
                channel.write(b"more")
                channel.write_eof()
                assert (await heard.exit).code == code
                assert heard.out == output + (b"more" if "cat" in rest else b"")
        finally:
            await backend.close()

    run(say())


def test_a_program_that_is_not_there_gives_no_output_of_its_own(run: Any, dock: Engine) -> None:
    async def miss() -> None:
        backend = DockerBackend(dock.profile(BUSYBOX))
        await backend.open()
        try:
            heard = Heard()
            await backend.spawn(["no-such-program"], heard)
            exit = await heard.exit
            assert "could not start it" in exit.lost
            assert (heard.out, heard.err) == (b"", b"")
        finally:
            await backend.close()

    run(miss())


def test_a_paused_container_refuses_and_says_so(run: Any, opened: Opened) -> None:
    async def pause() -> None:
        async with opened(BUSYBOX) as terminal:
            await terminal.suspend()
            with pytest.raises(PlaceUnavailable, match="paused") as refused:
                await terminal.run(["true"])
            assert not isinstance(refused.value, PlaceGone)
            await terminal.resume()
            assert (await terminal.run(["echo", "on"])).stdout == b"on\n"

    run(pause())


def test_words_that_are_not_utf8_are_refused_where_they_cannot_be_passed(run: Any, dock: Engine) -> None:
    async def pass_it() -> None:
        backend = DockerBackend(dock.profile(BUSYBOX))
        await backend.open()
        try:
            with pytest.raises(PlaceUnavailable, match="UTF-8"):
                await backend.spawn(["echo", b"\xff"], Heard())
        finally:
            await backend.close()

    run(pass_it())
