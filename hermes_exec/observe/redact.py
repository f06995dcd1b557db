"""Redaction: remove known secrets from texts and streams.

Each secret is searched for as it is and in its encoded forms: base64 (also in the middle of a longer text),
percent-encoding, JSON, Python's repr and a terminal's line ends. It is replaced with ``[secret NAME]``.

A value of fewer than ``SHORTEST`` characters is searched for only as it is and only as a whole word: replacing `on`
or `42` inside of other words would make the text unreadable.

A secret that was changed in any other way (reversed, cut, hashed, encrypted) is not found. Redaction guards
against accidents, not against a program that discloses a secret on purpose.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable, Iterator

    from hermes_exec.config.secrets import Secret

SHORTEST = 6
"""Characters from which on a value is searched for inside of words and in its encoded forms."""

_WORD = rb"[A-Za-z0-9_]"


class Redactor:
    """Replaces known secrets. Fast for text without any; immutable, so threads may share it."""

    __slots__ = ("_forms",)

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._forms = _Forms(secrets)

    def __bool__(self) -> bool:
        """Return whether there are secrets to search for."""
        return bool(self._forms.labels)

    def redact(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        if not self:
            return text
        data = text.encode("utf-8", "surrogatepass")
        clean = self._forms.replace(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def create_stream(self) -> StreamRedactor:
        """Return a filter for one stream, which also finds secrets that are split between chunks."""
        return StreamRedactor(self._forms)

    def redact_bytes(self, data: builtins.bytes) -> builtins.bytes:
        """Return ``data`` without the secrets."""
        return self._forms.replace(data)


class StreamRedactor:
    """Redacts a stream chunk by chunk, with the same result as for the whole.

    It holds back only bytes that may be the beginning of a secret, and at most as many as the longest
    form of one.
    """

    __slots__ = ("_before", "_forms", "_held")

    def __init__(self, forms: _Forms) -> None:
        self._forms = forms
        self._held: bytes = b""
        self._before: bytes = b""  # the unredacted byte before the held ones: decides whether a word begins

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that are held back."""
        return len(self._held)

    @property
    def longest(self) -> int:
        """The bytes of the longest form of a secret: so many before a position decide what follows it."""
        return self._forms.longest

    def feed(self, data: bytes) -> bytes:
        """Add a chunk, and return the bytes that later ones cannot change."""
        return self._advance(data, last=False) if self._forms.labels else data

    def flush(self) -> bytes:
        """Return the bytes that were held back: at the end, or when a person waits and no more bytes came."""
        return self._advance(b"", last=True)

    def _advance(self, data: bytes, *, last: bool) -> bytes:
        start = len(self._before)
        data = self._before + self._held + data
        open_ends = [] if last else self._forms.open_ends(data, start)
        held = _first(open_ends, start, len(data))
        out: list[bytes] = []
        for begin, end, label in self._forms.find(data, start):
            if begin >= held:
                break
            out += (data[start:begin], label)
            start = end
            held = _first(open_ends, start, len(data))
        out.append(data[start:held])
        self._held = data[held:]
        self._before = data[max(0, held - 1) : held]
        return b"".join(out)


class _Forms:
    """Every encoded form of every secret, and the label that replaces it."""

    __slots__ = ("_pattern", "_whole", "labels", "longest")

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self.labels: dict[bytes, bytes] = {}
        self._whole: set[bytes] = set()
        for secret in secrets:
            value = secret.reveal()
            for form in _spellings(value):
                self.labels.setdefault(form, f"[secret {secret.name}]".encode())
                if len(value) < SHORTEST:
                    self._whole.add(form)
        self.longest = max(map(len, self.labels), default=0)
        # Of two forms that begin at the same position the longer one counts.
        parts = [
            rb"(?<!%b)%b(?!%b)" % (_WORD, re.escape(form), _WORD) if form in self._whole else re.escape(form)
            for form in sorted(self.labels, key=len, reverse=True)
        ]
        self._pattern = re.compile(b"|".join(parts))

    def replace(self, data: bytes) -> bytes:
        """Return ``data`` without secrets: the very same object when it contains none."""
        for form in self.labels:  # a plain search is many times faster than the pattern, and usually enough
            if form in data:
                return self._pattern.sub(lambda found: self.labels[found.group()], data)
        return data

    def find(self, data: bytes, start: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the secrets from ``start`` on: begin, end, label."""
        if any(form in data for form in self.labels):
            for found in self._pattern.finditer(data, start):
                yield found.start(), found.end(), self.labels[found.group()]

    def open_ends(self, data: bytes, start: int) -> list[int]:
        """Return the positions, from ``start`` on, of beginnings that later bytes may complete; ascending."""
        places: set[int] = set()
        for form in self.labels:
            # The next byte decides whether it is a whole word, so one at the end of the data is still open.
            longest = len(form) if form in self._whole else len(form) - 1
            begin = max(start, len(data) - longest)
            while (begin := data.find(form[:1], begin)) >= 0:
                if form.startswith(data[begin:]):
                    places.add(begin)
                begin += 1
        return sorted(places)


def _first(ascending: list[int], least: int, default: int) -> int:
    return next((number for number in ascending if number >= least), default)


def _spellings(value: str) -> set[bytes]:
    """Return every form of ``value`` that is searched for."""
    raw = value.encode("utf-8", "surrogatepass")
    if len(value) < SHORTEST:
        return {raw} - {b""}
    texts = {
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        value.replace("\n", "\r\n"),
    }
    percent = {re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text) for text in texts}
    forms = {text.encode("utf-8", "surrogatepass") for text in texts | percent} | {raw}
    for shift in range(3):
        # Three bytes become four letters, so inside a longer text the same value has three spellings; the
        # letters at its ends depend on its neighbours and are left out.
        whole = base64.b64encode(b"\0" * shift + raw)
        begin = (0, 2, 3)[shift]
        end = (len(raw) + shift) * 8 // 6
        forms |= {whole[begin:end], whole[begin:end].translate(bytes.maketrans(b"+/", b"-_"))}
    return forms
