"""A channel that is lost: the outcome is unknown, and said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import OutcomeUnknown
from hermes_exec_backends.local import LocalBackend

if TYPE_CHECKING:
    from hermes_exec.backend import Channel, Receiver
    from hermes_exec.terminal.terminal import Terminal

Plain = Callable[..., None]


class Breaking(LocalBackend):
    """This machine, on a line that breaks when it is told to."""

    def __init__(self) -> None:
        self.broken = False
        self._channels: list[Channel] = []

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        channel = await super().spawn(argv, receiver, env=env)
        self._channels.append(channel)
        if self.broken:
            channel.abandon()
        return channel

    def cut(self) -> None:
        for channel in self._channels:
            channel.abandon()

    async def close(self, *, keep: bool = False) -> None:
        """Wait for the processes behind the broken channels: their input is at its end."""
        for channel in self._channels:
            await asyncio.to_thread(vars(channel)["_process"].wait)


def test_a_command_that_runs_has_an_unknown_outcome(plain: Plain) -> None:
    place = Breaking()

    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream("echo begun; read line", interactive=True) as stream:
            assert (await anext(stream)).data == b"begun\n"
            place.cut()
            with pytest.raises(OutcomeUnknown, match="lost while this ran"):
                await stream.result()

    plain(scenario, place)


def test_a_command_of_which_nothing_was_heard_has_an_unknown_outcome(plain: Plain) -> None:
    place = Breaking()

    async def scenario(terminal: Terminal) -> None:
        place.broken = True
        with pytest.raises(OutcomeUnknown):
            await terminal.run(["true"])

    plain(scenario, place)


def test_a_time_limit_on_a_line_that_is_lost_does_not_claim_an_end(plain: Plain) -> None:
    place = Breaking()

    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream("echo begun; read line", timeout=2, interactive=True) as stream:
            assert (await anext(stream)).data == b"begun\n"
            place.broken = True  # for the processes that would look at it and end it
            result = await stream.result()
            assert (result.timed_out, result.exit_code, result.signal) == (True, None, None)
            assert "may go on" in result.note

    plain(scenario, place)


def test_the_next_command_works_again(plain: Plain) -> None:
    place = Breaking()

    async def scenario(terminal: Terminal) -> None:
        place.broken = True
        with pytest.raises(OutcomeUnknown):
            await terminal.run("true")
        place.broken = False
        assert (await terminal.run("echo works")).stdout == b"works\n"

    plain(scenario, place)
