"""A client may send a guest whatever it likes: only its own connection suffers."""

from __future__ import annotations

import array
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_exec.guest.core import wire
from hermes_exec.testing.place import link
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.breadth import examples
from tests.rigs.frames import seal_all

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing import SuiteTarget

CALM = settings(
    deadline=None,
    max_examples=examples(120),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
OPERATIONS = ["exec", "run", "session", "close", "jobs.list", "no such operation", ""]
FIELDS = [
    "argv", "command", "session", "timeout", "grace", "stdin", "merge", "env", "cwd", "limits", "shell", "login",
    "setup", "x",
]  # fmt: skip
SAFE = st.sampled_from([b"true", b"echo x", b"exit 3", b"cat", b"/", b"/no/such", b"", b"\0", b"true\0x", b"\xff"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | SAFE,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(FIELDS), ANYTHING | st.just([b"true"]) | st.integers(0, 5) | st.floats(-1, 3), max_size=5
)
REQUESTS = st.tuples(st.sampled_from(OPERATIONS) | ANYTHING, ARGUMENTS | ANYTHING).map(
    lambda pair: wire.pack(list(pair))
)
OFFSETS = st.integers(0, 2**64 - 1).map(wire.OFFSET.pack)
PAYLOADS = st.one_of(
    st.binary(max_size=40), REQUESTS, ANYTHING.map(wire.pack), OFFSETS, st.lists(OFFSETS, max_size=3).map(b"".join)
)
NUMBERS = st.integers(0, 4) | st.integers(0, 2**64 - 1)
KINDS = st.sampled_from([
    wire.REQUEST, wire.REQUEST, wire.REQUEST, wire.DATA, wire.EOF, wire.CREDIT, wire.CANCEL, wire.FORGET,
    wire.BYE, wire.ATTACH, wire.WELCOME, wire.RESULT, wire.RETURN, 0, 77,
])  # fmt: skip
FRAMES = st.tuples(KINDS, st.integers(0, 3) | st.just(255), NUMBERS, PAYLOADS).map(lambda parts: wire.frame(*parts))
HELLO: dict[str, Any] = {"known": False, "lease_s": 0.2, "env": {}, "cwd": None, "received": []}
NO_HELLO: dict[str, Any] = {}
HELLOS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just(NO_HELLO),
    st.dictionaries(
        st.sampled_from(["known", "lease_s", "env", "cwd", "received"]),
        ANYTHING | st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=3),
        max_size=3,
    ),
)


def knock(folder: str) -> tuple[socket.socket, socket.socket]:
    """A new connection to the guest, as a bridge makes it: our end of it, and the bridge's own socket."""
    ours, theirs = socket.socketpair()
    door = socket.socket(socket.AF_UNIX)
    door.connect(f"{folder}/door")
    rights = array.array("i", [theirs.fileno(), theirs.fileno()])
    door.sendmsg([b"h"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    theirs.close()
    ours.settimeout(PATIENCE_S)
    return ours, door


def say(folder: str, data: bytes) -> None:
    """Send bytes over a connection of their own, take what comes back, and leave."""
    ours, door = knock(folder)
    with ours, door:
        try:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            while ours.recv(1 << 16):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass  # it let go of us, as it may


@pytest.fixture(scope="module")
def others(place: SuiteTarget) -> tuple[Terminal, str]:
    """A terminal whose guest is maltreated by others, and the folder of that guest."""
    terminal = place.run(place.get_shared_terminal())
    return terminal, str(link(terminal).guest["folder"])


def is_well(place: SuiteTarget, terminal: Terminal) -> None:
    """The terminal works as if nobody else were there."""
    assert place.run(terminal.run(["echo", "well"], timeout=10)).stdout == b"well\n"
    assert place.run(terminal.run("echo also $((40 + 2))", timeout=10)).stdout == b"also 42\n"


def attached(hello: dict[str, Any], frames: list[bytes]) -> bytes:
    """A whole conversation of one new client."""
    packed = wire.pack({"client": os.urandom(16), **HELLO, **hello})
    return b"".join(seal_all([wire.frame(wire.ATTACH, 0, 0, packed), *frames]))


@given(frames=st.lists(FRAMES, max_size=8), hello=HELLOS)
@CALM
@example(frames=[wire.frame(wire.CREDIT, 1, 1, b"short")], hello={})
@example(frames=[wire.frame(wire.REQUEST, 0, 1, wire.pack(["session", {}])), wire.frame(wire.BYE, 0, 0)], hello={})
@example(frames=[], hello={"lease_s": float("nan")})
@example(frames=[], hello={"lease_s": float("inf")})
@example(frames=[], hello={"lease_s": -1.0})
@example(frames=[], hello={"env": 3, "cwd": 4})
@example(
    frames=[wire.frame(wire.REQUEST, 0, 1, wire.pack(["exec", {"argv": [b"true"], "timeout": float("nan")}]))], hello={}
)
@example(frames=[wire.frame(wire.REQUEST, 0, 1, wire.pack(["exec", {"argv": []}]))], hello={})
@example(frames=[wire.frame(wire.REQUEST, 0, 1, wire.pack(["exec", {"argv": b"true"}]))], hello={})
@example(frames=[wire.frame(wire.REQUEST, 0, 1, wire.pack(["session", {"shell": b"/no/shell"}]))], hello={})
@example(frames=[wire.frame(wire.LOAD, 0, 0, b"x"), wire.frame(wire.LOAD, 0, 0, b"n\0zzz")], hello={})
def test_what_one_client_sends_harms_no_other(
    frames: list[bytes], hello: dict[str, Any], place: SuiteTarget, others: tuple[Terminal, str]
) -> None:
    terminal, folder = others
    say(folder, attached(hello, frames))
    is_well(place, terminal)


@given(data=st.binary(max_size=200))
@CALM
@example(data=b"")
@example(data=b"\xff" * 14)
@example(data=wire.HEADER.pack(2**32 - 1, wire.ATTACH, 0, 0, 0))
def test_bytes_that_are_no_protocol_harm_nobody(data: bytes, place: SuiteTarget, others: tuple[Terminal, str]) -> None:
    terminal, folder = others
    say(folder, data)
    is_well(place, terminal)


@given(frames=st.lists(FRAMES, min_size=1, max_size=5), where=st.floats(0, 1), what=st.integers(0, 255))
@CALM
def test_a_byte_that_is_changed_or_cut_harms_nobody(
    frames: list[bytes], where: float, what: int, place: SuiteTarget, others: tuple[Terminal, str]
) -> None:
    terminal, folder = others
    data = bytearray(attached({}, frames))
    at = int(where * (len(data) - 1))
    data[at] = what
    if data[4] != wire.LOAD:  # its payload is code to be run, which only the owner of the guest can send
        say(folder, bytes(data))
    say(folder, bytes(data[:at]))
    is_well(place, terminal)


def test_knocking_without_a_word_harms_nobody(place: SuiteTarget, others: tuple[Terminal, str]) -> None:
    terminal, folder = others
    for rights in ([], [0], [0, 1]):
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(f"{folder}/door")
            if rights:
                packed = array.array("i", [os.open("/dev/null", os.O_RDWR) for _ in rights])
                door.sendmsg([b"h"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)])
                for fd in packed:
                    os.close(fd)
        is_well(place, terminal)
