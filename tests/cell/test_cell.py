"""The cells in which the servers of the tests run commands: what they keep in, and what they let out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import require_part
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.cell import Cell, CellError
from tests.rigs.cell_process import read_some
from tests.rigs.cell_root import why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

pytestmark = pytest.mark.required


@pytest.fixture(autouse=True)
def cells() -> None:
    require_part("bubblewrap", why_not(), usable=not why_not())


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    async def within(work: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    return lambda work: asyncio.run(within(work))


async def said(cell: Cell, text: str, **options: Any) -> str:
    process = await cell.exec(["sh", "-c", text], **options)
    _, out, err = await process.communicate()
    return (out + err).decode()


def test_a_program_has_its_streams_folder_and_variables(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with Cell(tmp_path, env={"A": "a"}) as cell:
            text = 'printf "$A$B $PWD "; cat; echo err >&2; exit 3'
            process = await cell.exec(["sh", "-c", text], env={"B": "b"}, cwd="/tmp")
            assert await process.communicate(b"in\0\xff") == (3, b"ab /tmp in\0\xff", b"err\n")

    run(work())


def test_what_is_written_stays_in_the_cell_and_its_snapshots(run: Any, tmp_path: Path) -> None:
    name = f"/tmp/{tmp_path.name}-{id(tmp_path)}"

    async def work() -> None:
        async with Cell(tmp_path / "a") as cell:
            assert await said(cell, f"echo kept > {name}; touch /usr/x 2>/dev/null || echo refused") == "refused\n"
            await cell.snapshot(tmp_path / "kept")
            await said(cell, f"echo later > {name}")
        async with Cell(tmp_path / "b", base=tmp_path / "kept") as cell:
            assert await said(cell, f"cat {name}") == "kept\n"
        async with Cell(tmp_path / "a") as cell:
            assert await said(cell, f"cat {name}") == "later\n"

    run(work())
    assert not Path(name).exists()


def test_a_volume_is_a_folder_outside(run: Any, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()

    async def work() -> None:
        async with Cell(tmp_path / "a", volumes={"/data/deep": tmp_path / "volume"}) as cell:
            await said(cell, "echo here > /data/deep/file")

    run(work())
    assert (tmp_path / "volume" / "file").read_text() == "here\n"


def test_terminate_ends_everything_at_once(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        cell = Cell(tmp_path / "a", volumes={"/out": tmp_path})
        await cell.start()
        text = "mkfifo /out/held; setsid sh -c 'exec 9<>/out/held; echo up; sleep 1000' & exec sleep 1000"
        process = await cell.exec(["sh", "-c", text])
        assert await read_some(process.stdout) == b"up\n"
        await cell.terminate()
        assert await process.wait() == -signal.SIGKILL
        assert cell.ended.is_set()
        assert await read_some(process.stdout) == b""  # nobody in there holds it any more
        process.close()
        with pytest.raises(CellError):
            await cell.exec(["true"])

    run(work())


def test_every_exec_sees_the_others_processes_and_none_of_this_machine(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with Cell(tmp_path) as cell:
            process = await cell.exec(["sleep", "1000"])
            assert await said(cell, f"tr '\\0' ' ' < /proc/{process.pid}/cmdline") == "sleep 1000 "
            assert (await said(cell, "cd /proc; echo [0-9]*")).split()[:-1] == ["1", str(process.pid)]
            await process.kill(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM
            process.close()

    run(work())


@pytest.mark.parametrize(("network", "reached"), [(True, "yes"), (False, "no")])
def test_a_cell_has_the_network_or_none_and_its_ports_are_reached_either_way(
    run: Any, tmp_path: Path, network: bool, reached: str
) -> None:
    program = (
        "import socket, sys\n"
        "try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); seen = 'yes'\n"
        "except OSError: seen = 'no'\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(seen, server.getsockname()[1], flush=True)\n"
        "server.accept()[0].sendall(b'hello')\n"
    )

    async def work() -> None:
        outside = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with outside, Cell(tmp_path, network=network) as cell:
            port = outside.sockets[0].getsockname()[1]
            process = await cell.exec(["python3", "-Ic", program, str(port)])
            seen, listening = (await read_some(process.stdout)).split()
            assert seen.decode() == reached
            with contextlib.closing(await cell.connect(int(listening))) as connection:
                assert await asyncio.get_running_loop().sock_recv(connection, 100) == b"hello"
            process.close()

    run(work())


def test_a_terminal_controls_its_program(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with Cell(tmp_path) as cell:
            # A shell forgets a signal that arrives as its child ends, unless it traps it.
            program = "trap 'exit 130' INT; stty size; read line; stty size; sleep 1000"
            process = await cell.exec(["sh", "-c", program], pty=(30, 90))
            assert await read_some(process.pty) == b"30 90\r\n"
            process.resize(40, 100)
            os.write(process.pty, b"x\n")
            seen = b""
            while b"40 100\r\n" not in seen:
                seen += await read_some(process.pty)
            # The program that the shell starts next is not signalled if it begins after the first signal.
            ending = asyncio.ensure_future(process.wait())
            while not ending.done():
                os.write(process.pty, b"\x03")
                await asyncio.wait([ending], timeout=0.2)
            assert ending.result() in {-signal.SIGINT, 130}
            process.close()

    run(work())


def test_a_program_that_is_missing_is_the_kernels_error(run: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with Cell(tmp_path) as cell:
            with pytest.raises(FileNotFoundError):
                await cell.exec(["no-such-program"])
            with pytest.raises(FileNotFoundError) as caught:
                await cell.exec(["true"], cwd="/no-such-folder")
            assert caught.value.filename == "/no-such-folder"

    run(work())
