"""What is seen and what can be done in a sandbox, as whoever runs the tests and as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
import hermes_exec.sync
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.processes import every, read

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.bubblewrap.conftest import Inside
    from tests.conftest import Require


@pytest.fixture(params=["same user", "ordinary user"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"user": request.getfixturevalue("somebody")} if request.param == "ordinary user" else {}


@pytest.fixture
def shared() -> Generator[Path]:
    """A folder that everybody may look into and write to."""
    with tempfile.TemporaryDirectory(prefix="hx-bwrap-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_there_is_the_system_and_an_empty_home(inside: Inside, options: dict[str, Any]) -> None:
    secret = "/etc/shadow /root /srv /sys /boot /var/log"
    result = inside(f"pwd; ls -A; ls {secret} 2>/dev/null; ls -d /usr/bin/env", **options)
    assert result.stdout_text.split() == ["/home/sandbox", "/usr/bin/env"]


@pytest.mark.parametrize("path", ["/x", "/usr/x", "/etc/x", "/dev/x", "/bin/x"])
def test_the_system_cannot_be_written_to(inside: Inside, options: dict[str, Any], path: str) -> None:
    result = inside(f"echo x >{path}", **options)
    assert result.exit_code != 0
    assert not Path(path).exists()


def test_settings_of_the_kernel_cannot_be_written_to(inside: Inside, options: dict[str, Any]) -> None:
    file = "/proc/sys/kernel/core_pattern"
    assert inside(f"cat {file} >{file}", **options).exit_code != 0


@pytest.mark.parametrize("path", ["/tmp", "/var/tmp", "/dev/shm", "/home/sandbox"])
def test_folders_in_memory_are_private_and_bounded(inside: Inside, options: dict[str, Any], path: str) -> None:
    name = f"hx-bwrap-{os.getpid()}"
    text = f"echo x >{path}/{name} && head -c 3000000 /dev/zero >{path}/more"
    result = inside(text, space="2 MiB", **options)
    assert b"No space left" in result.stderr
    assert not Path(path, name).exists()


def test_every_capability_is_gone_and_none_can_be_had(inside: Inside, options: dict[str, Any]) -> None:
    result = inside("grep -E '^(Cap|NoNewPrivs)' /proc/self/status; unshare -U true && echo more", **options)
    seen = dict(line.split() for line in result.stdout_text.splitlines())
    assert seen.pop("NoNewPrivs:") == "1"
    assert set(seen.values()) == {"0" * 16}


def test_processes_outside_are_not_seen(inside: Inside, options: dict[str, Any]) -> None:
    result = inside("cat /proc/[0-9]*/comm", **options)
    assert set(result.stdout_text.split()) <= {"bwrap", "python3", "python3.11", "bash", "cat"}


@pytest.mark.parametrize("kind", ["pid", "net", "ipc", "uts", "user", "mnt", "cgroup"])
def test_each_namespace_is_its_own(inside: Inside, options: dict[str, Any], kind: str) -> None:
    path = f"/proc/self/ns/{kind}"
    assert inside(f"readlink {path}", **options).stdout_text.strip() != os.readlink(path)


def test_there_is_no_network_but_the_loopback(inside: Inside, options: dict[str, Any]) -> None:
    result = inside("tail -n +3 /proc/net/dev | cut -d: -f1", **options)
    assert result.stdout.split() == [b"lo"]


@pytest.mark.parametrize(("network", "heard"), [("none", False), ("host", True)])
def test_the_network_outside_is_shared_only_when_asked_for(inside: Inside, network: str, heard: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = inside(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected", network=network)
    assert (result.stdout == b"connected\n") is heard


def test_variables_outside_are_seen_nowhere_inside(
    inside: Inside, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even in those of bwrap's own process, which keeps the ones that it was started with."""
    monkeypatch.setenv("LC_SECRET", "planted-outside")  # of a kind that this machine's commands do get
    result = inside("cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env", **options)
    assert "PATH=" in result.stdout_text
    assert "planted" not in result.stdout_text
    assert "XDG" not in result.stdout_text


@pytest.mark.parametrize("carrier", ["guest", "plain"])
def test_variables_of_the_terminal_are_there_and_none_else(
    require: Require, monkeypatch: pytest.MonkeyPatch, carrier: Any
) -> None:
    require("bwrap", "makes the sandbox")
    backend = BubblewrapBackend(BubblewrapProfile())
    given = {"GIVEN": "a b\nc", "HOME": "/tmp"}

    async def run() -> str:
        async with hermes_exec.open(backend, env=given, carrier=carrier, audit=False) as terminal:
            monkeypatch.setenv("LC_SECRET", "planted-outside")
            look = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
            return (await terminal.run(f'printf "%s|%s;" "$GIVEN" "$HOME"; env; {look}')).stdout_text

    given_back, _, rest = asyncio.run(run()).partition(";")
    assert given_back == "a b\nc|/tmp"
    assert "planted" not in rest


@pytest.mark.parametrize(("mode", "written"), [("", False), (":rw", True)])
def test_folders_are_bound_read_only_unless_said_otherwise(
    inside: Inside, options: dict[str, Any], shared: Path, mode: str, written: bool
) -> None:
    (shared / "in").write_text("hello")
    result = inside("cat /data/in; echo x >/data/out", binds=[f"{shared}:/data{mode}"], **options)
    assert result.stdout == b"hello"
    assert (shared / "out").exists() is written


def test_a_system_of_its_own_can_be_used(inside: Inside, options: dict[str, Any], shared: Path) -> None:
    for name in ("usr", "proc", "dev", "tmp", "var/tmp", "run", "home"):
        (shared / name).mkdir(parents=True)
    (shared / "only-here").touch()
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (shared / name).symlink_to(os.readlink(f"/{name}"))
    result = inside("ls /; touch /x", root=str(shared), binds=["/usr:/usr"], **options)
    assert "only-here" in result.stdout_text
    assert "etc" not in result.stdout_text.split()
    assert not (shared / "x").exists()


def test_the_guest_can_be_neither_read_nor_written_by_commands(inside: Inside, options: dict[str, Any]) -> None:
    text = """for pid in $(cd /proc; ls -d [0-9]*); do
        tr '\\0' ' ' </proc/$pid/cmdline | grep -q '<[h]x ' || continue
        [ -e /proc/$pid/exe ] && [ "$(cat /proc/$pid/comm)" = bwrap ] && continue
        cat /proc/$pid/environ >/dev/null 2>&1 && echo "read $pid"
        (: >>/proc/$pid/mem) 2>/dev/null && echo "written $pid"
        echo seen
    done"""
    assert set(inside(text, **options).stdout_text.split("\n")) == {"seen", ""}


def test_a_command_leads_no_terminal_of_ours(inside: Inside, options: dict[str, Any]) -> None:
    """So that no keystroke can be put into it (TIOCSTI)."""
    *_, terminal, _foreground = inside("cut -d' ' -f1-8 /proc/$$/stat", **options).stdout_text.split()
    assert terminal == "0"


def test_a_sandbox_ends_with_the_process_that_opened_it(inside: Inside) -> None:
    code = """if 1:
        import asyncio, os, sys
        import hermes_exec
        from hermes_exec_backends.bubblewrap import BubblewrapBackend
        from hermes_exec_backends.profiles import BubblewrapProfile
        async def main():
            terminal = await hermes_exec.open(BubblewrapBackend(BubblewrapProfile(binds=[sys.argv[1] + ":/data:rw"])))
            await terminal.start("echo in >/data/fifo; sleep 600; echo alive >/data/fifo")
            sys.stdin.read()
            os.kill(os.getpid(), 9)
        asyncio.run(main())
    """

    async def run(folder: str) -> None:
        os.mkfifo(f"{folder}/fifo")
        words = [sys.executable, "-c", code, folder]
        path = os.pathsep.join(path for path in sys.path if path)
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )
        assert await asyncio.to_thread(Path(folder, "fifo").read_text) == "in\n"
        assert _held(folder)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        async with asyncio.timeout(PATIENCE_S):
            while _held(folder):
                await asyncio.sleep(0.02)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(folder))


def test_a_sandbox_outlives_the_thread_that_opened_it(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    opened: list[hermes_exec.sync.Terminal] = []

    def open_it() -> None:
        opened.append(hermes_exec.sync.open(BubblewrapBackend(BubblewrapProfile()), audit=False))

    thread = threading.Thread(target=open_it)
    thread.start()
    thread.join(50)
    with opened[0] as terminal:
        assert terminal.run("echo alive").stdout == b"alive\n"


def _held(folder: str) -> list[int]:
    """The processes that have a folder of ours among their mounts."""
    return [pid for pid in every() if f"{folder} /data ".encode() in read(pid, "mountinfo")]
