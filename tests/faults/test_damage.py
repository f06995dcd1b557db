"""Bytes that are lost, doubled or changed on the way: the connection ends, and the request goes on over the next."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import ProtocolError
from hermes_exec.guest.core import wire
from hermes_exec.testing import SuiteTarget
from hermes_exec.testing.place import link
from tests.faults.rig import CuttingBackend, CuttingChannel
from tests.rigs.breadth import examples

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Receiver
    from hermes_exec.terminal.terminal import Terminal

MIB = 1 << 20
Change = Callable[[bytes, int], bytes]
"""Damages some bytes at an offset."""


def lose(data: bytes, at: int) -> bytes:
    """Leave a hole behind an offset."""
    return data[:at] + data[at + 100 :]


def lose_frame(data: bytes, at: int) -> bytes:
    """Leave a hole of the size of a large frame, or of all that is there."""
    return data[:at] + data[at + wire.CHUNK + 30 :] if len(data) > at + wire.CHUNK + 30 else b""


def double(data: bytes, at: int) -> bytes:
    """Repeat what is before an offset."""
    return data[: at + 1] + data


def change(data: bytes, at: int) -> bytes:
    """Change one byte."""
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


class DamagingChannel(CuttingChannel):
    """Damages, once, what passes in one direction after so many bytes."""

    up: tuple[int, Change] | None = None
    down: tuple[int, Change] | None = None

    def damage(self, direction: str, at: int, how: Change) -> None:
        """Damage what passes after so many more bytes."""
        if direction == "up":
            self.up = (self.sent + at, how)
        else:
            self.down = (self.taken + at, how)

    def write(self, *parts: bytes | memoryview) -> None:
        data = b"".join(parts)
        if self.up is not None and self.sent + len(data) > self.up[0]:
            (at, damage), self.up = self.up, None
            self.sent += len(data)
            self.inner.write(damage(data, max(0, at - self.sent + len(data))))
        else:
            super().write(*parts)

    def on_data(self, data: bytes, /) -> None:
        if self.down is not None and self.taken + len(data) > self.down[0]:
            (at, damage), self.down = self.down, None
            self.taken += len(data)
            self._receiver.on_data(damage(data, max(0, at - self.taken + len(data))))
        else:
            super().on_data(data)


class DamagingBackend(CuttingBackend):
    """This machine, over such channels; ``every`` makes each of them one."""

    every: tuple[int, Change] | None = None

    @property
    def channel(self) -> DamagingChannel:
        """The newest channel."""
        newest = self.channels[-1]
        assert isinstance(newest, DamagingChannel)
        return newest

    def _channel(self, receiver: Receiver) -> CuttingChannel:
        channel = DamagingChannel(receiver, (None, None))
        channel.down = self.every if self.channels else None
        return channel


@pytest.fixture
def backend() -> DamagingBackend:
    return DamagingBackend()


@pytest.fixture
def place(backend: DamagingBackend) -> Generator[SuiteTarget]:
    place = SuiteTarget(backend, "guest")
    yield place
    place.close()


@pytest.mark.parametrize("damage", [lose, lose_frame, double, change])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_damage_at_any_byte_is_never_content(
    place: SuiteTarget, backend: DamagingBackend, direction: str, damage: Change
) -> None:
    data = os.urandom(2 * MIB)
    chance = random.Random(f"{direction} {damage.__name__}")

    async def chatter(terminal: Terminal) -> None:
        """See that something follows each hole, or it would be no hole."""
        while True:
            await asyncio.sleep(0.02)
            link(terminal).call("stays", {})

    async def there_and_back() -> int:
        terminal = await place.get_shared_terminal()
        chatting = asyncio.ensure_future(chatter(terminal))
        for _ in range(examples(15)):
            channel = backend.channel
            at = chance.choice([chance.randrange(200), chance.randrange(2 * MIB)])
            channel.damage(direction, at, damage)
            result = await terminal.run(["tee", "/dev/stderr"], stdin=data, max_output=len(data))
            assert result.exit_code == 0
            assert [hashlib.sha256(got).digest() for got in (result.stdout, result.stderr)] == [
                hashlib.sha256(data).digest()
            ] * 2
        chatting.cancel()
        return len(backend.channels)

    assert place.run(there_and_back(), 120) > examples(15) // 2


def test_a_way_that_damages_everything_is_given_up(place: SuiteTarget, backend: DamagingBackend) -> None:
    async def ask() -> None:
        async with place.fresh() as terminal:
            backend.every = (600, change)
            backend.channel.inner.abandon()
            with pytest.raises(ProtocolError, match="lost or changed"):
                await terminal.run("head -c 100000 /dev/zero")

    place.run(ask(), 60)
