"""Isolation: commands see their own descriptors, signals and variables, and none of the orchestrator's."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.input import WAYS, as_command
from hermes_exec.testing.place import SuiteTarget, link, marker

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

SECRET = "HERMES_EXEC_TEST_SECRET"  # noqa: S105  the name of a variable


class IsolationSuite(Behaviours, exercises="target"):
    """Nothing leaks in, and no file or process of the guest is left behind."""

    @pytest.mark.parametrize("way", WAYS)
    async def test_variables_of_the_orchestrator_are_not_seen(
        self, place: SuiteTarget, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        secret = f"secret-{marker()}"
        monkeypatch.setenv(SECRET, secret)
        async with place.fresh() as terminal:
            result = await terminal.run(as_command(way, "env; set"))
        assert secret.encode() not in result.stdout + result.stderr
        assert SECRET.encode() not in result.stdout + result.stderr

    async def test_no_process_in_the_place_shows_the_orchestrators_secrets(
        self, place: SuiteTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secret = f"secret-{marker()}"
        monkeypatch.setenv(SECRET, secret)
        async with place.fresh() as terminal:
            await terminal.run("sleep 30 >/dev/null 2>&1 &")
            await terminal.run(["sh", "-c", "sleep 30 >/dev/null 2>&1 &"])
            found = await _search(terminal, secret)
        assert found == []

    async def test_the_secrets_of_a_command_are_on_no_command_line(
        self, place: SuiteTarget, terminal: Terminal
    ) -> None:
        secret = f"secret-{marker()}"
        look = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '[s]{secret[1:]}'"
        for way in WAYS:
            result = await terminal.run(as_command(way, f'test -n "$TOKEN" && {look}'), env={"TOKEN": secret})
            assert result.stdout == b"0\n"
            result = await terminal.run(as_command(way, f"cat >/dev/null; {look}"), stdin=secret)
            assert result.stdout == b"0\n"

    async def test_the_variables_of_a_terminal_reach_every_command_and_no_command_line(
        self, place: SuiteTarget
    ) -> None:
        secret = f"secret-{marker()}"
        look = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '[s]{secret[1:]}'"
        async with place.fresh(env={"TOKEN": secret}) as terminal:
            for way in WAYS:
                result = await terminal.run(as_command(way, f'printf "%s\\n" "$TOKEN"; {look}'))
                assert result.stdout.decode() == f"{secret}\n0\n"

    @pytest.mark.parametrize("way", WAYS)
    async def test_commands_have_three_descriptors(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "sh -c 'ls /proc/self/fd'"))
        assert result.stdout.split()[:4] == [b"0", b"1", b"2", b"3"]  # 3: the folder that ls reads
        assert len(result.stdout.split()) == 4

    @pytest.mark.parametrize("way", WAYS)
    async def test_no_signal_is_ignored_or_blocked(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "sh -c 'grep -E \"^Sig(Ign|Blk)\" /proc/self/status'"))
        ours = 0x7FFFFFFF  # higher ones are used by the C library itself
        if b"busybox" in (await terminal.run(["sh", "-c", "readlink /proc/$$/exe"])).stdout:
            ours &= ~(1 << signal.SIGQUIT - 1)  # programs started by a busybox shell ignore it
        assert [int(line.split()[1], 16) & ours for line in result.stdout.splitlines()] == [0, 0]

    @exercises("guest")
    async def test_a_broken_pipe_ends_its_writer(self, session: Session) -> None:
        result = await session.run("(yes; echo $? >&2) | head -n 1")
        assert result.stdout == b"y\n"
        assert result.stderr == b"141\n"

    @pytest.mark.parametrize("way", WAYS)
    async def test_commands_have_no_terminal(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "(: </dev/tty) 2>/dev/null && echo one || echo none"))
        assert result.stdout == b"none\n"

    @pytest.mark.parametrize("way", WAYS)
    async def test_the_usual_limits_hold(self, place: SuiteTarget, terminal: Terminal, way: str) -> None:
        wanted = await terminal.run(["sh", "-c", "ulimit -n; ulimit -u 2>/dev/null || ulimit -p; ulimit -c"])
        result = await terminal.run(as_command(way, "ulimit -n; ulimit -u 2>/dev/null || ulimit -p; ulimit -c"))
        assert result.stdout == wanted.stdout

    async def test_the_orchestrator_stays_as_it_was(self, place: SuiteTarget) -> None:
        async with place.fresh() as first:  # what is opened once for the whole program is not a leak
            await first.run("true")
        before = os.getcwd(), dict(os.environ)  # noqa: PTH109  compared with itself
        umask = os.umask(0o022)
        os.umask(umask)
        descriptors = set(os.listdir("/proc/self/fd"))  # noqa: PTH208  numbers, not paths
        async with place.fresh() as terminal:
            await terminal.run("cd /; export CHANGED=1; umask 0; exit 3")
        assert (os.getcwd(), dict(os.environ)) == before  # noqa: PTH109  as the orchestrator sees it
        assert os.umask(umask) == umask
        assert set(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208  numbers, not paths

    async def test_nothing_of_ours_is_left_in_the_place(self, place: SuiteTarget) -> None:
        name = "hx-none"
        async with place.fresh() as terminal:
            if terminal.capabilities.carrier == "guest":
                name = str(link(terminal).guest["folder"]).rpartition("/")[2]
                assert await _folders(terminal, name)
            await terminal.run("seq 1 300000", max_output=100)
            await terminal.run("cat", stdin=b"x")
            await terminal.run("sleep 60", timeout=0.1, grace_s=0.1)
        assert await _folders(await place.get_shared_terminal(), name) == []

    @needs("guest")
    async def test_our_folder_is_for_its_owner_alone(self, terminal: Terminal) -> None:
        await terminal.run("true")
        look = 'find "$0" -type d -perm /077 2>/dev/null'
        folder = str(link(terminal).guest["folder"])
        assert (await terminal.run(["sh", "-c", look, folder])).stdout == b""
        assert (await terminal.run(["test", "-O", folder])).exit_code == 0

    async def test_a_search_through_all_folders_disturbs_no_session(self, session: Session) -> None:
        await session.run("kept=1")
        places = "/run/user/*/hx-* /dev/shm/hx-* /tmp/hx-* /var/tmp/hx-*"
        search = f"grep -rs no-such-words-anywhere {places} >/dev/null; find {places} >/dev/null 2>&1"
        async with await self._place.session() as other:
            await other.run(search, timeout=25)
            assert (await other.run("echo fine; (exit 3)")).exit_code == 3
        result = await session.run("echo $kept; (exit 4)")
        assert (result.stdout, result.exit_code, result.note) == (b"1\n", 4, "")


async def _search(terminal: Terminal, secret: str) -> list[bytes]:
    """Return the files in /proc of the started processes in which the secret can be read."""
    pattern = f"[{secret[0]}]{secret[1:]}"
    files = "/proc/[0-9]*/environ /proc/[0-9]*/cmdline"
    result = await terminal.run(["sh", "-c", f"grep -l '{pattern}' {files} 2>/dev/null"])
    own = str(os.getpid()).encode()
    return [path for path in result.stdout.split() if path.split(b"/")[2] != own]


async def _folders(terminal: Terminal, name: str) -> list[bytes]:
    """Return the folders of that name that a guest may have created."""
    look = 'find /run/user /dev/shm /tmp /var/tmp -maxdepth 2 -name "$0" 2>/dev/null'
    return (await terminal.run(["sh", "-c", look, name])).stdout.split()
