"""Quiet: the library writes nothing to the standard error of a program that uses a target."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec import sync
from hermes_exec.errors import Unsupported, UsageError
from hermes_exec.testing.behaviours import Behaviours
from hermes_exec.testing.ports import echo_through, there_and_back

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing.place import SuiteTarget

_USE = "from hermes_exec.testing.quiet import use_place; use_place()"


class QuietSuite(Behaviours, exercises="channel"):
    """The caller's users would see messages of asyncio, threads and destructors about open resources."""

    async def test_a_process_that_uses_the_place_writes_nothing_to_standard_error(
        self, place: SuiteTarget, backend: Backend, carrier: str | None
    ) -> None:
        packed = io.BytesIO()
        try:
            _Pickler(packed).dump([backend, carrier])
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            pytest.skip(f"another process cannot be given this backend: {error}")
        await place.release()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _USE,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        try:
            out, complaints = await process.communicate(packed.getvalue())
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert complaints.decode(errors="replace") == ""
        assert (out, process.returncode) == (b"", 0)


class _Pickler(pickle.Pickler):
    """A pickler that omits the variables of this process, which the other process inherits."""

    def persistent_id(self, obj: Any) -> str | None:
        return "environ" if obj is os.environ else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        assert pid == "environ"
        return os.environ


def use_place() -> None:
    """Use the backend that is pickled on standard input in each way that its target offers.

    A process of its own calls this: some warnings are written only while an interpreter ends.
    """
    packed = sys.stdin.buffer.read()
    asyncio.run(_use(*_unpack(packed)))
    asyncio.run(_leave(*_unpack(packed)))
    backend, carrier = _unpack(packed)
    with sync.open(backend, audit=False, carrier=carrier) as terminal:
        assert terminal.run(["true"]).ok


def _unpack(packed: bytes) -> tuple[Backend, Any]:
    backend, carrier = _Unpickler(io.BytesIO(packed)).load()
    return backend, carrier


async def _use(backend: Backend, carrier: Any) -> None:
    """Run commands, stream output, and cause failures."""
    async with hermes_exec.open(backend, audit=False, carrier=carrier) as terminal:
        assert (await terminal.run(["true"])).ok
        assert (await terminal.run("echo err >&2; exit 3")).exit_code == 3
        assert (await terminal.run(["no-such-program"])).exit_code == 127
        assert (await terminal.run(["sleep", "60"], timeout=0.1, grace_s=0.1)).timed_out
        with contextlib.suppress(UsageError):
            await terminal.run(["true"], cwd="/no/such/folder")
        async with terminal.stream(["seq", "1", "50000"]) as stream:
            assert sum([len(event.data) async for event in stream]) == 288_894
        async with terminal.stream(["sh", "-c", "echo first; exec sleep 60"], grace_s=0.1) as stream:
            assert (await anext(stream)).data == b"first\n"
        for use in (_use_file, _use_session, _use_job, _use_pty, _use_forward):
            with contextlib.suppress(Unsupported):
                await use(terminal)


async def _use_file(terminal: Terminal) -> None:
    made = await terminal.run(["mktemp"], check=True)
    path = made.stdout.decode().strip()
    await terminal.write(path, b"x" * 300_000)
    assert len(await terminal.read(path)) == 300_000
    await terminal.run(["rm", path], check=True)


async def _use_session(terminal: Terminal) -> None:
    async with await terminal.session() as session:
        assert (await session.run("cd /; pwd")).stdout == b"/\n"
        assert (await session.run("exit 4")).exit_code == 4


async def _use_job(terminal: Terminal) -> None:
    job = await terminal.start(["sh", "-c", "exit 5"])
    assert (await job.wait()).exit_code == 5
    await job.prune()


async def _use_pty(terminal: Terminal) -> None:
    async with await terminal.pty(["sh", "-c", "exit 6"]) as pty:
        assert (await pty.wait()).exit_code == 6


async def _use_forward(terminal: Terminal) -> None:
    async with there_and_back(terminal) as port:
        assert await echo_through(port, b"there") == b"there"
        _, writer = await asyncio.open_connection("127.0.0.1", port)  # still open when the forward closes
    writer.close()


async def _leave(backend: Backend, carrier: Any) -> None:
    """Close while commands run, of which one is cancelled."""

    async def sleep() -> None:
        await terminal.run(["sleep", "60"], grace_s=0.1)

    async with hermes_exec.open(backend, audit=False, carrier=carrier) as terminal:
        running = [asyncio.create_task(sleep()) for _ in range(2)]
        await terminal.run(["true"])  # queued behind them, so they have begun
        running[0].cancel()
    await asyncio.gather(*running, return_exceptions=True)
