"""A guest may say whatever it likes: we answer with an error of ours, soon, and with nothing else."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_exec.backend import Channel, Exit, Receiver
from hermes_exec.errors import OutcomeUnknown, PlaceUnavailable, ProtocolError
from hermes_exec.guest.core import wire
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.properties.test_guest_fuzz import ANYTHING, NUMBERS, PAYLOADS
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.breadth import examples
from tests.rigs.frames import seal_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALM = settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
WELCOME: dict[str, Any] = {
    "version": wire.VERSION,
    "guest": {"id": "x", "folder": "/no/such", "host": os.uname().nodename, "boot": "", "python": "3.6.0", "uid": 0},
    "highest": 0,
    "inlets": [],
    "parts": [],
}
KINDS = st.sampled_from([
    wire.DATA, wire.CREDIT, wire.WELCOME, wire.RESULT, wire.EVENT, wire.FATAL, wire.BYE, wire.REQUEST,
    wire.HANDOFF, wire.RECLAIM, 0, 99,
])  # fmt: skip
FRAMES = st.tuples(KINDS, st.integers(0, 4), NUMBERS, PAYLOADS).map(lambda parts: wire.frame(*parts))
WELCOMES = st.one_of(
    ANYTHING,
    st.dictionaries(st.sampled_from(list(WELCOME)), ANYTHING, max_size=4).map(lambda some: WELCOME | some),
    st.sampled_from(list(WELCOME)).map(lambda name: {key: value for key, value in WELCOME.items() if key != name}),
)


class Recording(Channel):
    """A channel to a guest that has only this to say, at once and when it is asked for something, and ends."""

    def __init__(self, receiver: Receiver, first: list[bytes], then: list[bytes]) -> None:
        self._receiver = receiver
        self._says = first
        self._then = then
        self._written = 0
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.call_soon(self._say)

    def _say(self) -> None:
        if not self._open:
            return
        if self._says:
            self._receiver.on_data(self._says.pop(0))
            self._loop.call_soon(self._say)
        elif self._written > 1 or not self._then:
            self.abandon()

    def abandon(self) -> None:
        if self._open:
            self._open = False
            self._loop.call_soon(self._receiver.on_close, Exit(code=3))

    kill = abandon

    def write(self, *parts: bytes | memoryview) -> None:
        self._written += 1
        if self._written == 2:  # the request, after what starts a guest
            self._says += self._then
            self._loop.call_soon(self._say)

    def write_eof(self) -> None: ...

    @property
    def unsent(self) -> int:
        return 0

    async def drain(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Babbling(LocalBackend):
    """A place whose guest says what it is told to."""

    def __init__(self, first: list[bytes], then: list[bytes]) -> None:
        self._first = first
        self._then = then

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        found = re.search(r"<hx [0-9a-f]+>", " ".join(map(os.fsdecode, argv)))
        assert found
        first, then, self._first, self._then = self._first, self._then, [], []
        return Recording(receiver, [found.group().encode(), *first], then)


def meet(first: list[bytes], then: list[bytes], *, sealed: bool = True) -> None:
    """Open a link to such a guest and ask it for something: all ends soon, by an error that we know."""
    if sealed:
        whole = seal_all([*first, *then])
        first, then = whole[: len(first)], whole[len(first) :]

    async def ask() -> None:
        wrong: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        link = Link(Babbling(first, then), env={}, cwd=None, lease_s=0.01)
        try:
            await link.open()
            call = link.call("exec", {"argv": [b"true"]})
            assert isinstance(await call.result(), dict)
        except (PlaceUnavailable, ProtocolError, OutcomeUnknown):
            pass
        await link.close()
        assert not wrong

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await ask()

    asyncio.run(bounded())


@given(chunks=st.lists(st.binary(max_size=60), max_size=6))
@CALM
def test_bytes_that_are_no_protocol_are_an_error_of_ours(chunks: list[bytes]) -> None:
    meet(chunks, [], sealed=False)


@given(welcome=WELCOMES)
@CALM
@example(welcome={})
@example(welcome=[])
@example(welcome=WELCOME | {"version": wire.VERSION + 1})
@example(welcome=WELCOME | {"guest": []})
@example(welcome=WELCOME | {"parts": 3})
@example(welcome=WELCOME | {"inlets": [[1]]})
@example(welcome=WELCOME | {"highest": None})
def test_a_strange_welcome_is_an_error_of_ours(welcome: Any) -> None:
    meet([wire.frame(wire.WELCOME, 0, 0, wire.pack(welcome))], [])


@given(frames=st.lists(FRAMES, max_size=8))
@CALM
@example(frames=[wire.frame(wire.CREDIT, 0, 1, b"short")])
@example(frames=[wire.frame(wire.RESULT, 0, 1, b"")])
@example(frames=[wire.frame(wire.RESULT, 0, 1, wire.pack([]))])
@example(frames=[wire.frame(wire.FATAL, 0, 0, wire.pack([]))])
@example(frames=[wire.frame(wire.BYE, 0, 0, wire.pack(3))])
@example(frames=[wire.frame(wire.DATA, 7, 1, b"x")])
@example(frames=[wire.frame(wire.DATA, 0, 1, b"x")])
def test_strange_frames_after_a_proper_welcome_are_an_error_of_ours(frames: list[bytes]) -> None:
    meet([wire.frame(wire.WELCOME, 0, 0, wire.pack(WELCOME))], frames)
