"""The log of a job: one file for each output, an index of their interleaving, and readers.

The index is a row of 4-byte records: the top bit is the stream, the rest the number of bytes that came from it.
Every ``_STRIDE`` records a position is kept in memory, so that a reader finds any offset of the interleaved log
without reading an index that may be hundreds of megabytes long.
"""

import os
import struct
import time
from bisect import bisect_right

from ..core.wire import CHUNK, STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop
    from ..streams.output_stream import OutputStream

    _Span = tuple[float, float, tuple[int, int, int]]
    """The times of the first and the last write, and the sizes before the first."""

BOTH = 0
RECORD = struct.Struct(">I")
"""A record of the index, and the header of a piece in the interleaved stream."""
ERR_BIT = 1 << 31
_LONGEST = ERR_BIT - 1
_STRIDE = 4096
_BATCH = 512
"""Records that a reader handles before others get their turn."""
_NAMES = ("index", "stdout", "stderr")
_SPAN_S = 1.0
"""Seconds of output whose times are kept together."""
MOST_SPANS = 4096
"""Spans that are kept; then neighbours are merged as far as their times stay exact to a hundredth of their age."""
_EXACT = 1 / 128


def _merge_spans(spans: "list[_Span]", now: float) -> "list[_Span]":
    merged = spans[:1]
    for first, last, sizes in spans[1:]:
        since = merged[-1][0]
        if last - since <= (now - since) * _EXACT:
            merged[-1] = (since, last, merged[-1][2])
        else:
            merged.append((first, last, sizes))
    half = len(merged) // 2
    if len(merged) >= MOST_SPANS:  # the clock was set back
        merged[:half] = [(merged[0][0], merged[half - 1][1], merged[0][2])]
    return merged


class JobLogFile:
    """The files of one job, in a folder of their own. ``cap`` bounds what they take together."""

    def __init__(self, folder: str, cap: int) -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        self.folder = folder
        self.cap = cap
        self.sizes = [0, 0, 0]  # of both streams together, of stdout, of stderr
        self.records = 0
        self.over = False
        self.readers: "list[JobLogReader]" = []
        self._marks: "list[tuple[int, int, int, int]]" = []  # both, record, stdout, stderr
        self._last = 0
        self._spans: "list[_Span]" = []
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fds: "list[int]" = []
        try:
            for name in _NAMES:
                self._fds.append(os.open("{}/{}".format(folder, name), flags, 0o600))
        except OSError:
            self.close()
            raise

    @property
    def room(self) -> int:
        """Return the number of bytes that may be added before the cap."""
        return max(0, self.cap - self.sizes[BOTH] - RECORD.size * self.records)

    def append(self, channel: int, data: bytes) -> None:
        """Add bytes of one stream; on OSError the log has as many of them as fitted."""
        view = memoryview(data)
        self._note_time(time.time())
        try:
            while view:
                done = os.pwrite(self._fds[channel], view, self.sizes[channel])
                self._record(channel, done)
                view = view[done:]
        finally:
            for reader in list(self.readers):
                reader.more()

    def _note_time(self, now: float) -> None:
        """Remember when the next bytes are written."""
        spans = self._spans
        if spans and 0 <= now - spans[-1][0] < _SPAN_S:
            spans[-1] = (spans[-1][0], now, spans[-1][2])
            return
        if len(spans) >= MOST_SPANS:
            self._spans = spans = _merge_spans(spans, now)
        spans.append((now, now, (self.sizes[BOTH], self.sizes[STDOUT], self.sizes[STDERR])))

    def offset_since(self, then: float, stream: int) -> int:
        """Return the offset of what was written since ``then``, and perhaps up to a second before it."""
        for _, last, sizes in self._spans:
            if last >= then:
                return sizes[stream]
        return self.sizes[stream]

    def _record(self, channel: int, count: int) -> None:
        bit = ERR_BIT if channel == STDERR else 0
        last = self._last
        if self.records and last & ERR_BIT == bit and (last & _LONGEST) + count <= _LONGEST:
            last += count
            at = self.records - 1
        else:
            last = bit | count
            at = self.records
        os.pwrite(self._fds[0], RECORD.pack(last), at * RECORD.size)
        if at == self.records:
            if at % _STRIDE == 0:
                self._marks.append((self.sizes[BOTH], at, self.sizes[STDOUT], self.sizes[STDERR]))
            self.records += 1
        self._last = last
        self.sizes[channel] += count
        self.sizes[BOTH] += count

    def mark_before(self, offset: int) -> "tuple[int, int, int, int]":
        """Return the nearest indexed position at or before an offset of the interleaved log."""
        return self._marks[bisect_right(self._marks, (offset, _LONGEST)) - 1]

    def close(self) -> None:
        """Mark the log as complete; readers end when they have read it all."""
        self.over = True
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        for reader in list(self.readers):
            reader.more()


class JobLogReader:
    """A sender of a log from an offset on, as fast as the client consumes it; ``done`` is called at the end.

    One stream is sent as it is. Both together are sent in pieces, each with a ``RECORD`` before it.
    """

    def __init__(
        self,
        loop: "Loop",
        log: JobLogFile,
        outlet: "OutputStream",
        stream: int,
        span: "tuple[int, int | None]",
        done: "Callable[[], None]",
    ) -> None:
        self.at = span[0]  # the offset of the next byte
        self._end = span[1]
        self._loop = loop
        self._log = log
        self._outlet = outlet
        self._stream = stream
        self._done = done
        self._closed = False
        self._busy = False
        names = _NAMES if stream == BOTH else (_NAMES[stream],)
        self._fds = [os.open("{}/{}".format(log.folder, name), os.O_RDONLY | os.O_CLOEXEC) for name in names]
        self._place = [
            0,
            0,
            0,
            0,
        ]  # position of ``at``: record, bytes read of it, offsets in both streams
        self._sought = stream != BOTH
        log.readers.append(self)
        self.more()

    def more(self) -> None:
        """Continue reading after bytes were added or the log was completed."""
        if not self._busy and not self._closed:
            self._busy = True
            self._loop.call_later(0, self._step)

    def _step(self) -> None:
        self._busy = False
        if self._closed:
            return
        end = self._log.sizes[self._stream]
        if self._end is not None:
            end = min(end, self._end)
        if self.at >= end:
            if self._log.over or (self._end is not None and self.at >= self._end):
                self.close()
                self._done()
        elif self._outlet.full:
            self._outlet.on_room = self.more
        else:
            if not self._sought:
                self._seek()
            count = min(CHUNK, end - self.at)
            self._outlet.put(self._both(count) if self._stream == BOTH else self._one(count))
            self.more()

    def _one(self, count: int) -> bytes:
        data = os.pread(self._fds[0], count, self.at)
        self.at += len(data)
        return data

    def _seek(self) -> None:
        self._sought = True
        at, record, out, err = self._log.mark_before(self.at)
        heads = os.pread(self._fds[0], _STRIDE * RECORD.size, record * RECORD.size)
        offsets = [out, err]
        for (head,) in RECORD.iter_unpack(heads):
            skipped = min(head & _LONGEST, self.at - at)
            offsets[head >> 31] += skipped
            at += skipped
            if skipped < head & _LONGEST:
                self._place = [record, skipped, *offsets]
                return
            record += 1
        self._place = [record, 0, *offsets]

    def _both(self, count: int) -> bytes:
        record, inside, out, err = self._place
        heads = os.pread(self._fds[0], min(_BATCH, self._log.records - record) * RECORD.size, record * RECORD.size)
        pieces: "list[tuple[int, int]]" = []
        sums = [0, 0]
        for (head,) in RECORD.iter_unpack(heads):
            length = head & _LONGEST
            taken = min(length - inside, count)
            if taken:
                pieces.append((head & ERR_BIT, taken))
                sums[head >> 31] += taken
                count -= taken
            inside += taken
            if inside < length or record == self._log.records - 1:  # the last record may still grow
                break
            record += 1
            inside = 0
        data = [os.pread(self._fds[STDOUT], sums[0], out), os.pread(self._fds[STDERR], sums[1], err)]
        self._place = [record, inside, out + sums[0], err + sums[1]]
        self.at += sum(sums)
        return _join(pieces, data)

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        if not self._closed:
            self._closed = True
            self._log.readers.remove(self)
            for fd in self._fds:
                os.close(fd)


def _join(pieces: "list[tuple[int, int]]", data: "list[bytes]") -> bytes:
    """Return the pieces in their order, each with its header."""
    parts: "list[bytes]" = []
    ends = [0, 0]
    for bit, length in pieces:
        stream = bit >> 31
        start = ends[stream]
        ends[stream] = start + length
        parts.append(RECORD.pack(bit | length))
        parts.append(data[stream][start : start + length])
    return b"".join(parts)
