"""Sessions, capabilities and opening on the plain carrier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.errors import Closed, PlaceUnavailable, Unsupported
from hermes_exec.terminal.output import OutputCollector, SpoolFolder
from hermes_exec.transport.shell import ShellTransport
from hermes_exec_backends.local import LocalBackend

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Backend, BackendTraits
    from hermes_exec.terminal.terminal import Terminal

Plain = Callable[..., None]


class WithoutPython(LocalBackend):
    @property
    def traits(self) -> BackendTraits:
        return replace(super().traits, pythons=(), same_python=False)


def test_each_command_starts_from_the_sessions_own_folder_and_variables(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        session = await terminal.session(cwd=tmp_path, env={"MINE": "session's"})
        for _ in range(2):
            result = await session.run('pwd; echo "$MINE $GENERAL"; cd /; MINE=changed')
            assert result.stdout == f"{tmp_path}\nsession's general\n".encode()
        assert (await session.run('echo "$MINE"', env={"MINE": "command's"})).stdout == b"command's\n"
        await session.close()

    plain(scenario, env={"GENERAL": "general"})


def test_commands_of_a_session_run_in_order_one_after_another(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        texts = ["echo 1 >log; sleep 0.2; echo 1 >>log", "echo 2 >>log", "cat log"]
        results = await asyncio.gather(*(terminal.run(text) for text in texts))
        assert results[-1].stdout == b"1\n1\n2\n"

    plain(scenario, cwd=str(tmp_path))


def test_words_run_beside_each_other(plain: Plain, tmp_path: Path) -> None:
    (tmp_path / "meet").touch()

    async def scenario(terminal: Terminal) -> None:
        await terminal.run(["mkfifo", "fifo"], check=True)
        reading, writing = await asyncio.gather(
            terminal.run(["cat", "fifo"]), terminal.run(["sh", "-c", "echo met >fifo"])
        )
        assert (reading.stdout, writing.exit_code) == (b"met\n", 0)

    plain(scenario, cwd=str(tmp_path))


def test_a_closed_session_refuses_commands(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        session = await terminal.session()
        await session.close()
        with pytest.raises(Closed):
            await session.run("true")
        await session.close()

    plain(scenario)


def test_closing_a_session_ends_its_commands(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        session = await terminal.session()
        async with session.stream("echo begun; sleep 60") as stream:
            assert (await anext(stream)).data == b"begun\n"
            waiting = asyncio.ensure_future(session.run("echo never"))
            await asyncio.sleep(0)
            await session.close()
            assert (await stream.result()).cancelled
            assert ((await waiting).cancelled, (await waiting).stdout) == (True, b"")

    plain(scenario)


def test_setup_runs_before_each_command_and_its_output_is_nobodys(tmp_path: Path) -> None:
    async def scenario() -> None:
        carrier = await ShellTransport.open(LocalBackend(), env={}, cwd=None)
        setup = [b"echo loading; echo warning >&2", b'tool() { echo "tool $1"; }', b"export LOADED=yes"]
        session = carrier.start("session", {"setup": setup}, OutputCollector(100, SpoolFolder()))
        for _ in range(2):
            output = OutputCollector(100, SpoolFolder())
            command = b'tool "$LOADED"; cat'
            fields = {"session": session.number, "command": command, "stdin": True}
            call = carrier.start("run", fields, output)
            await call.write(b"input")
            call.write_eof()
            assert (await call.result())["code"] == 0
            assert (output.stdout.finish()[0], output.stderr.finish()[0]) == (b"tool yes\ninput", b"")
        await carrier.close()

    asyncio.run(scenario())


def test_the_shell_and_login_of_a_session_are_obeyed(plain: Plain, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("FROM_PROFILE=read\n")

    async def scenario(terminal: Terminal) -> None:
        session = await terminal.session(shell="/bin/sh", login=True, env={"HOME": str(tmp_path)})
        result = await session.run('echo "$0 $FROM_PROFILE"')
        assert result.stdout == b"/bin/sh read\n"

    plain(scenario)


def test_a_shell_that_is_not_there_is_told(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        session = await terminal.session(shell="/no/such/shell")
        result = await session.run("true")
        assert result.exit_code == 127
        assert result.stderr.endswith(b"No such file or directory\n")

    plain(scenario)


def test_no_promise_is_made_that_needs_a_guest(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        held = terminal.capabilities
        assert held.carrier == "plain"
        names = ("sessions", "jobs", "pty", "file_transfer", "forward", "reconnect", "kill_tree", "limits")
        assert not [name for name in names if getattr(held, name)]
        with pytest.raises(Unsupported):
            await terminal.start(["true"])
        with pytest.raises(Unsupported):
            await terminal.session("a name")

    plain(scenario)


def test_a_place_without_a_python_is_opened_plainly() -> None:
    async def scenario() -> None:
        async with hermes_exec.open(WithoutPython(), audit=False) as terminal:
            assert terminal.capabilities.carrier == "plain"
            assert (await terminal.run("echo works")).stdout == b"works\n"

    asyncio.run(scenario())


def test_a_guest_that_is_asked_for_is_not_replaced() -> None:
    async def scenario() -> None:
        with pytest.raises(PlaceUnavailable, match="no interpreter"):
            await hermes_exec.open(WithoutPython(), carrier="guest", audit=False)

    asyncio.run(scenario())


def test_a_place_without_a_shell_says_both_reasons(behind: Callable[[str], Backend]) -> None:
    async def scenario() -> None:
        place = behind("echo 'the engine is down' >&2; exit 1")
        with pytest.raises(PlaceUnavailable, match=r"no guest answered.*no sh answers.*the engine is down"):
            await hermes_exec.open(place, audit=False)

    asyncio.run(scenario())


def test_nothing_starts_after_the_terminals_end(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.close()
        for command in (["true"], "true"):
            with pytest.raises(Closed):
                await terminal.run(command)

    plain(scenario)
