"""A peer that falls silent is given up, and nothing else is mistaken for one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from hermes_exec.backend import OpenOptions
from hermes_exec.errors import OutcomeUnknown, PlaceUnavailable
from hermes_exec.testing import SuiteTarget
from tests.faults.rig import CuttingBackend, guest_pid

if TYPE_CHECKING:
    from tests.faults.rig import CuttingChannel

_RATE = 64 << 10
_SLICES = 16
"""Per second."""


def test_what_waits_for_a_silent_guest_ends_and_goes_on_when_it_answers(
    place: SuiteTarget, backend: CuttingBackend
) -> None:
    backend.options = OpenOptions(keepalive_s=0.5)

    async def work() -> None:
        async with place.fresh() as terminal:
            guest = await guest_pid(terminal)
            await terminal.run("kept=1")
            session = await terminal.session()
            assert (await session.run("echo in")).stdout == b"in\n"
            os.kill(guest, signal.SIGSTOP)
            try:
                with pytest.raises(OutcomeUnknown):
                    await terminal.run(["sleep", "1000"], timeout=0.1, grace_s=0.1)
                with pytest.raises(PlaceUnavailable, match="nothing ran"):
                    await terminal.run(["true"], timeout=0.1, grace_s=0.1)
                await session.close()
                without_limit = asyncio.ensure_future(terminal.run("echo $kept"))
                await asyncio.sleep(0)
            finally:
                os.kill(guest, signal.SIGCONT)
            assert (await without_limit).stdout == b"1\n"

    place.run(work(), 60)


def test_a_terminal_closes_though_the_guest_is_silent(place: SuiteTarget, backend: CuttingBackend) -> None:
    backend.options = OpenOptions(keepalive_s=0.5)

    async def work() -> None:
        async with place.fresh() as terminal:
            guest = await guest_pid(terminal)
            os.kill(guest, signal.SIGSTOP)
        os.kill(guest, signal.SIGCONT)

    place.run(work(), 60)


def test_an_idle_terminal_sends_nothing(place: SuiteTarget, backend: CuttingBackend) -> None:
    backend.options = OpenOptions(keepalive_s=0.1)

    async def work() -> None:
        async with place.fresh() as terminal:
            await terminal.run("true")
            await asyncio.sleep(0.5)  # the word that the answer has come, and the last look
            before = backend.channel.sent
            await asyncio.sleep(1)
            assert backend.channel.sent == before
            await terminal.run(["sleep", "1"])
            assert backend.channel.sent > before + 100

    place.run(work(), 60)


def test_a_process_that_had_no_processor_takes_nobody_for_silent(place: SuiteTarget, backend: CuttingBackend) -> None:
    backend.options = OpenOptions(keepalive_s=0.5)

    async def work() -> None:
        async with place.fresh() as terminal:
            running = asyncio.ensure_future(terminal.run(["sleep", "3"], timeout=60))
            await asyncio.sleep(0.1)
            for _ in range(3):
                time.sleep(2)  # noqa: ASYNC251  as a machine that is suspended
                await asyncio.sleep(0)
            assert (await running).exit_code == 0
            assert len(backend.channels) == 1

    place.run(work(), 60)


class SlowBackend(CuttingBackend):
    """This machine, at the end of a way that takes 64 KiB/s, and holds all that comes before."""

    def slow(self, channel: CuttingChannel) -> None:
        """Let what is written to a channel wait its turn."""
        write, queue = channel.inner.write, bytearray()
        loop = asyncio.get_running_loop()

        def send() -> None:
            write(bytes(queue[: _RATE // _SLICES]))
            del queue[: _RATE // _SLICES]
            if queue:
                loop.call_later(1 / _SLICES, send)

        def hold(*parts: bytes | memoryview) -> None:
            if not queue:
                loop.call_later(1 / _SLICES, send)
            queue.extend(b"".join(parts))

        setattr(channel.inner, "write", hold)  # noqa: B010  for this one alone


def test_a_slow_network_is_not_silent() -> None:
    backend = SlowBackend()
    backend.options = OpenOptions(keepalive_s=1.5)
    place = SuiteTarget(backend, "guest")

    async def work() -> None:
        async with place.fresh() as terminal:
            await terminal.run("true")
            backend.slow(backend.channel)
            data = os.urandom(10 * _RATE)
            assert (await terminal.run(["cat"], stdin=data)).stdout == data
            assert len(backend.channels) == 1

    try:
        place.run(work(), 100)
    finally:
        place.close()
