"""The way to the engine: which address, what is told when nobody is there, TCP, cuts, and what doctor finds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, HermesError, OutcomeUnknown, PlaceUnavailable, Unsupported
from hermes_exec.result import ShellState
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.docker import address as addresses
from hermes_exec_backends.docker.address import Address
from hermes_exec_backends.docker.doctor import checks
from hermes_exec_backends.docker.engine import Engine as Way
from tests.rigs.docker_engine import BUSYBOX, DEBIAN, engine
from tests.rigs.docker_rootless import rootless
from tests.rigs.faulty_proxy import FaultyProxy
from tests.rigs.podman_engine import podman

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from hermes_exec.backend import Check
    from tests.rigs.docker_engine import Engine


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("unix:///run/docker.sock", "unix:///run/docker.sock"),
        ("/run/docker.sock", "unix:///run/docker.sock"),
        ("tcp://10.0.0.1:2375", "tcp://10.0.0.1:2375"),
        ("tcp://host", "tcp://host:2375"),
        ("tcp://[::1]:99", "tcp://::1:99"),
        ("https://host", "tcp://host:2376"),
    ],
)
def test_addresses_are_read_as_docker_host_has_them(text: str, shown: str) -> None:
    assert str(Address.parse(text, {})) == shown


def test_certificates_are_taken_from_the_environment() -> None:
    found = Address.parse("tcp://host", {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certificates"})
    assert (str(found.certificates), found.verify, found.port) == ("/certificates", True, 2376)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "tcp://", "tcp://host:port", "npipe:////./pipe/docker", "tcp://h/path"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Address.parse(text, {})


def test_an_ssh_address_is_refused_with_the_place_to_write_instead() -> None:
    with pytest.raises(ConfigError, match=r"docker:IMAGE\+ssh://host"):
        Address.parse("ssh://me@host", {})


def test_the_profile_comes_before_the_environment(tmp_path: Path) -> None:
    environ = {"DOCKER_HOST": "tcp://environment"}
    assert str(addresses.find("tcp://profile", environ)) == "tcp://profile:2375"
    assert str(addresses.find(None, environ)) == "tcp://environment:2375"


def test_a_usual_socket_is_found(dock: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if addresses.knock("/var/run/docker.sock") is None:
        pytest.skip("the machine's own engine would be found first")
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman/podman.sock").symlink_to(dock.address.removeprefix("unix://"))
    assert addresses.find(None, {"XDG_RUNTIME_DIR": str(tmp_path)}).path == f"{tmp_path}/podman/podman.sock"


def test_no_engine_is_told_with_the_way_to_start_one(run: Any, tmp_path: Path) -> None:
    with pytest.raises(PlaceUnavailable, match=r"no engine answers at unix://.*systemctl start docker"):
        run(Way(f"unix://{tmp_path}/none").open())


def test_a_socket_without_permission_is_told_with_the_way_to_get_it() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    with (
        tempfile.TemporaryDirectory(prefix="hx-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
    ):
        path = f"{folder}/sock"
        listening.bind(path)
        listening.listen()
        os.chmod(path, 0o600)
        os.chmod(folder, 0o755)
        code = (
            "import asyncio, os, sys\n"
            "from hermes_exec_backends.docker.engine import Engine\nimport docker, requests\n"
            "os.setuid(65534)\n"
            f"try: asyncio.run(Engine('unix://{path}').open())\nexcept Exception as error: print(error)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True, timeout=50
        )
    assert f"no permission for the engine's socket {path}" in done.stdout
    assert "usermod -aG docker" in done.stdout


class Proxy:
    """A TCP port of the engine, whose connections can be cut."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.limit = sys.maxsize
        """After so many bytes to a client, what follows is dropped, and its connection ends cleanly."""

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[Proxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._path)
        self._writers |= {writer, back}
        self._clients.add(writer)
        await asyncio.gather(_copy(reader, back), _copy(there, writer, lambda: self.limit))
        self._clients.discard(writer)
        writer.close()
        back.close()

    def finish(self) -> None:
        """End every connection cleanly towards the client; the engine does not notice."""
        for writer in self._clients:
            writer.write_eof()
        self._clients.clear()

    def cut(self) -> None:
        """Break every connection at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: Callable[[], int] = lambda: sys.maxsize
) -> None:
    copied = 0
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: it was finished meanwhile
        while data := await reader.read(65536):
            writer.write(data[: max(0, limit() - copied)])
            copied += len(data)
            await writer.drain()
        writer.write_eof()


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_an_engine_can_be_reached_by_tcp(run: Any, dock: Engine, image: str) -> None:
    async def reach() -> None:
        async with Proxy(dock.address.removeprefix("unix://")).opened() as proxy:
            profile = dock.profile(image).model_copy(update={"engine": proxy.address})
            async with hermes_exec.open(DockerBackend(profile), audit=False) as terminal:
                data = os.urandom(3_000_000)
                assert (await terminal.run(["cat"], stdin=data)).stdout == data

    run(reach())


def test_output_that_ends_inside_a_frame_of_the_engine_is_no_outcome(run: Any, dock: Engine) -> None:
    async def cut() -> None:
        async with Proxy(dock.address.removeprefix("unix://")).opened() as proxy:
            profile = dock.profile(BUSYBOX).model_copy(update={"engine": proxy.address})
            async with hermes_exec.open(DockerBackend(profile), audit=False) as terminal:
                proxy.limit = 1_000_001
                with pytest.raises(OutcomeUnknown, match="middle of its output"):
                    await terminal.run("head -c 3000000 /dev/zero", max_output=4_000_000)

    run(cut())


def test_a_connection_that_breaks_is_replaced(run: Any, dock: Engine) -> None:
    async def cut() -> None:
        async with Proxy(dock.address.removeprefix("unix://")).opened() as proxy:
            profile = dock.profile().model_copy(update={"engine": proxy.address})
            async with hermes_exec.open(DockerBackend(profile), audit=False) as terminal:
                await terminal.run("kept=1")
                for turn in range(3):
                    running = asyncio.ensure_future(terminal.run("seq 1 200000; echo once >> /tmp/count"))
                    await asyncio.sleep(0.02 * turn)
                    proxy.cut()
                    result = await running
                    assert (len(result.stdout.split()), result.shell) == (200_000, ShellState.KEPT)
                assert (await terminal.run("echo $kept; cat /tmp/count")).stdout == b"1\n" + b"once\n" * 3

    run(cut())


def test_a_connection_that_ends_cleanly_is_replaced(run: Any, dock: Engine) -> None:
    async def finish() -> None:
        async with Proxy(dock.address.removeprefix("unix://")).opened() as proxy:
            profile = dock.profile().model_copy(update={"engine": proxy.address})
            async with hermes_exec.open(DockerBackend(profile), audit=False) as terminal:
                await terminal.run("kept=1")
                for command in ("echo once >> /tmp/count; echo $kept", ["cat", "/tmp/count"]):
                    proxy.finish()
                    result = await terminal.run(command, timeout=20)
                    assert (result.exit_code, result.shell is ShellState.ROLLED_BACK) == (0, False)
                assert (await terminal.run("echo $kept; cat /tmp/count")).stdout == b"1\nonce\n"

    run(finish())


@pytest.mark.parametrize(("image", "carrier"), [(DEBIAN, "guest"), (BUSYBOX, "plain")])
def test_an_engine_behind_a_proxy_that_holds_every_byte_holds_nobody_up(
    run: Any, dock: Engine, image: str, carrier: Any
) -> None:
    async def hold() -> None:
        with FaultyProxy(dock.address.removeprefix("unix://")) as proxy:
            profile = dock.profile(image, keepalive_s=1.0)
            profile = profile.model_copy(update={"engine": f"tcp://127.0.0.1:{proxy.port}"})
            async with hermes_exec.open(DockerBackend(profile), audit=False, carrier=carrier) as terminal:
                command = ["sh", "-c", "echo x >> /tmp/ran; echo in; sleep 1000"]
                async with terminal.stream(command, timeout=1) as stream:
                    assert (await anext(stream)).data == b"in\n"
                    proxy.hold()
                    with pytest.raises(OutcomeUnknown):
                        await stream.result()
                proxy.restore()
                assert (await terminal.run(["cat", "/tmp/ran"])).stdout == b"x\n"

    run(hold())


def test_a_command_that_closes_its_outputs_is_waited_for(run: Any, dock: Engine) -> None:
    async def close_them() -> None:
        backend = DockerBackend(dock.profile(BUSYBOX))
        async with hermes_exec.open(backend, audit=False, carrier="plain") as terminal:
            result = await terminal.run(["sh", "-c", "echo seen; exec >/dev/null 2>&1; sleep 3; exit 7"])
            assert (result.stdout, result.exit_code) == (b"seen\n", 7)

    run(close_them())


def test_an_engine_that_speaks_something_else_is_told(run: Any) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(HermesError, match=f"tcp://127.0.0.1:{port}"):
                await Way(f"tcp://127.0.0.1:{port}").open()

    run(ask())


def test_doctor_tells_what_an_engine_is_and_can(run: Any, dock: Engine) -> None:
    found: dict[str, Check] = {check.name: check for check in run(checks(Way(dock.address)))}
    assert set(found) == {"sdk", "engine", "api", "limits", "security", "storage"}
    assert found["engine"].detail.endswith(dock.address)
    assert found["engine"].status == "ok"
    assert "seccomp" in found["security"].detail


@pytest.mark.parametrize("kind", ["docker", "podman", "rootless"])
def test_doctor_says_ok_of_limits_only_if_each_is_enforced(run: Any, kind: str) -> None:
    engines: dict[str, Callable[[], contextlib.AbstractContextManager[Engine]]] = {
        "docker": lambda: contextlib.nullcontext(engine()),
        "podman": lambda: contextlib.nullcontext(podman()),
        "rootless": contextlib.contextmanager(rootless),
    }

    async def enforced(dock: Engine, **limit: Any) -> bool:
        try:
            async with hermes_exec.open(DockerBackend(dock.profile(BUSYBOX, **limit)), audit=False):
                return True
        except Unsupported:
            return False

    async def check(dock: Engine) -> None:
        (found,) = [each for each in await checks(Way(dock.address)) if each.name == "limits"]
        for limit in ({"memory": 64 << 20}, {"cpus": 0.5}, {"pids": 30}):
            claimed = found.status == "ok" or next(iter(limit)) not in found.detail
            assert await enforced(dock, **limit) == claimed, (limit, found)

    with engines[kind]() as dock:
        run(check(dock))


def test_doctor_tells_how_to_have_an_engine(run: Any, tmp_path: Path) -> None:
    (found,) = run(checks(Way(f"unix://{tmp_path}/none")))
    assert (found.name, found.status) == ("engine", "missing")
    assert "start docker" in found.remedy
