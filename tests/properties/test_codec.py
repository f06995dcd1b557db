"""The wire format: what is packed comes back, in any pieces, and garbage is refused in one way only."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgpack  # pyright: ignore[reportMissingTypeStubs]  it has none
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_exec.guest.core import wire
from tests.rigs.frames import seal_all

INTEGERS = st.integers(-(2**63), 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.binary().map(
    lambda data: data.decode("utf-8", "surrogateescape")
)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | TEXT | st.binary(max_size=600)
KEYS = INTEGERS | TEXT | st.binary(max_size=40)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(KEYS, inner, max_size=20),
    max_leaves=30,
)
KINDS = st.sampled_from([wire.REQUEST, wire.EOF, wire.CREDIT, wire.RESULT, wire.EVENT, 0, 255])
FRAMES = st.lists(
    st.tuples(KINDS | st.just(wire.DATA), st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(max_size=200)),
    max_size=12,
)


@given(VALUES)
@example([0, 127, 128, 2**32, 2**63, 2**64 - 1, -1, -(2**63)])
@example({"a" * 31: b"", "a" * 32: b"b" * 255, "c": b"b" * 256, "d": [None] * 15, "e": [None] * 16})
def test_what_is_packed_comes_back(value: Any) -> None:
    assert wire.unpack(wire.pack(value)) == value


@given(VALUES)
def test_any_messagepack_reader_reads_what_is_packed(value: Any) -> None:
    packed = wire.pack(value)
    unpackb: Any = getattr(msgpack, "unpackb")  # noqa: B009  it has no types
    read = unpackb(packed, strict_map_key=False, unicode_errors="surrogateescape")
    assert read == value


def test_infinities_and_nan_come_back() -> None:
    infinite, nan = wire.unpack(wire.pack([math.inf, math.nan]))
    assert infinite == math.inf
    assert math.isnan(nan)


@given(st.binary(max_size=300))
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\x91" * 40)
@example(b"\x81\x90\xc0")
@example(b"\xa1\xff")
def test_garbage_is_refused_as_such_or_read(data: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        wire.unpack(data)


@given(VALUES, st.data())
def test_a_value_that_is_cut_short_is_refused(value: Any, data: st.DataObject) -> None:
    packed = wire.pack(value)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(wire.WireError):
        wire.unpack(packed[:cut])


@pytest.mark.parametrize("value", [{1, 2}, object(), 2**64, -(2**63) - 1, "\ud800", bytearray(b"x")])
def test_what_the_protocol_does_not_know_is_refused(value: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.pack(value)


class Taken:
    """What a parser gave, with the pieces of DATA frames joined."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, int, bytes]] = []
        self.parser = wire.Parser(self._frame, self._data, 1 << 20)
        self._piece = False

    def _frame(self, kind: int, channel: int, request: int, payload: bytes) -> None:
        self.frames.append((kind, channel, request, bytes(payload)))

    def _data(self, channel: int, request: int, _: int, data: bytes) -> None:
        self.frames.append((wire.DATA, channel, request, data))

    def joined(self) -> list[tuple[int, int, int, bytes]]:
        """The frames, with neighbouring DATA of one stream as one."""
        joined: list[tuple[int, int, int, bytes]] = []
        for frame in self.frames:
            if frame[0] == wire.DATA and not frame[3]:
                continue
            if joined and frame[0] == wire.DATA and joined[-1][:3] == frame[:3]:
                joined[-1] = (*frame[:3], joined[-1][3] + frame[3])
            else:
                joined.append(frame)
        return joined


@given(FRAMES, st.data())
def test_frames_come_out_the_same_however_the_stream_is_cut(
    frames: list[tuple[int, int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(seal_all(wire.frame(*frame) for frame in frames))
    whole, pieces = Taken(), Taken()
    whole.parser.feed(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if start < end:
            pieces.parser.feed(stream[start:end])
    assert pieces.joined() == whole.joined()
    wanted = Taken()
    wanted.frames = list(frames)
    assert whole.joined() == wanted.joined()


@given(FRAMES)
def test_frames_come_out_the_same_byte_by_byte(frames: list[tuple[int, int, int, bytes]]) -> None:
    taken, wanted = Taken(), Taken()
    for byte in b"".join(seal_all(wire.frame(*frame) for frame in frames)):
        taken.parser.feed(bytes((byte,)))
    wanted.frames = list(frames)
    assert taken.joined() == wanted.joined()


@given(st.lists(st.binary(min_size=1, max_size=100), max_size=8))
def test_a_parser_fed_with_garbage_refuses_it_or_waits(chunks: list[bytes]) -> None:
    taken = Taken()
    try:
        for chunk in chunks:
            taken.parser.feed(chunk)
    except wire.WireError:
        pass


def test_a_frame_over_the_limit_is_refused_before_it_has_come() -> None:
    taken = Taken()
    with pytest.raises(wire.WireError):
        taken.parser.feed(wire.Sealer().parts(wire.HEADER.pack((1 << 20) + 1, wire.REQUEST, 0, 1, 0), b"")[0])


def test_a_data_frame_over_its_limit_is_refused_before_it_has_come() -> None:
    with pytest.raises(wire.DamageError):
        Taken().parser.feed(wire.Sealer().parts(wire.HEADER.pack(wire.CHUNK + 1, wire.DATA, 1, 1, 0), b"")[0])


def test_what_is_no_header_is_refused_before_more_comes() -> None:
    with pytest.raises(wire.DamageError):
        Taken().parser.feed(bytes(26))


LIKE_CONTENT = [wire.frame(wire.DATA, wire.STDOUT, 1, bytes([n]) * 500, 500 * n) for n in range(8)]
ALIKE = [wire.frame(wire.DATA, wire.STDOUT, 1, bytes(500)) for _ in range(8)]


def taken_of(stream: bytes, *, checksum: bool) -> list[tuple[int, int, int, bytes]]:
    """The frames that a parser hands on before it refuses something or waits."""
    taken = Taken()
    taken.parser.sealer.checksum = checksum
    with contextlib.suppress(wire.DamageError):
        taken.parser.feed(stream)
    return taken.frames


@given(
    frames=FRAMES | st.sampled_from([LIKE_CONTENT, ALIKE]),
    checksum=st.booleans(),
    data=st.data(),
)
def test_a_hole_is_never_content(frames: list[Any], checksum: bool, data: st.DataObject) -> None:
    whole = [frame if isinstance(frame, bytes) else wire.frame(*frame) for frame in frames]
    ends = [wire.frame(wire.CREDIT, 0, 1, bytes(8))] * 2  # so that something comes behind each hole
    sealed = seal_all([*whole, *ends], checksum=checksum)
    stream = b"".join(sealed)
    begin = data.draw(st.integers(0, len(b"".join(sealed[:-1])) - 1))
    end = data.draw(st.integers(begin + 1, len(stream) - 1))
    right = taken_of(stream, checksum=checksum)
    got = taken_of(stream[:begin] + stream[end:], checksum=checksum)
    assert got == right[: len(got)]
    assert len(got) < len(right)


@given(frames=FRAMES, data=st.data())
def test_a_changed_byte_is_never_content_where_it_is_summed(
    frames: list[tuple[int, int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(seal_all([wire.frame(*frame) for frame in frames] or LIKE_CONTENT, checksum=True))
    at = data.draw(st.integers(0, len(stream) - 1))
    other = bytearray(stream)
    other[at] ^= data.draw(st.integers(1, 255))
    right = taken_of(stream, checksum=True)
    got = taken_of(bytes(other), checksum=True)
    assert got == right[: len(got)]
    assert len(got) < len(right)
