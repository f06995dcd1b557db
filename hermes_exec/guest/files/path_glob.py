"""Expansion of path patterns as in a shell: ``*``, ``?``, ``[…]``, and ``**`` for any folders between."""

import os

from .ignore_patterns import component

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

_WILD = b"*?["


def _is_wild(word: bytes) -> bool:
    return any(byte in _WILD for byte in word)


def expand(base: bytes, pattern: bytes) -> "Iterator[bytes]":
    """Yield the paths that match, relative to the folder ``base``.

    A name that begins with a dot matches only a component that does; ``**`` follows no link.
    """
    words = pattern.split(b"/")
    if pattern.startswith(b"/"):
        return _below(b"/", b"/", [word for word in words if word])
    return _below(base, b"", [word for word in words if word])


def _below(real: bytes, shown: bytes, words: "list[bytes]") -> "Iterator[bytes]":
    """Yield matches of the remaining components in ``real``, which answers show as ``shown``."""
    word, rest = words[0], words[1:]
    if word == b"**":
        yield from _any_depth(real, shown, rest)
    elif not _is_wild(word):
        yield from _step(real, shown, word, rest)
    else:
        match = component(word)
        hidden = word.startswith(b".")
        for name in _names(real):
            if match(name) and (hidden or not name.startswith(b".")):
                yield from _step(real, shown, name, rest)


def _step(real: bytes, shown: bytes, name: bytes, rest: "list[bytes]") -> "Iterator[bytes]":
    inner = os.path.join(real, name)
    if rest:
        if os.path.isdir(inner):
            yield from _below(inner, os.path.join(shown, name), rest)
    elif os.path.lexists(inner):
        yield os.path.join(shown, name)


def _any_depth(real: bytes, shown: bytes, rest: "list[bytes]") -> "Iterator[bytes]":
    while rest[:1] == [b"**"]:
        rest = rest[1:]
    waiting = [(real, shown)]
    while waiting:
        real, shown = waiting.pop()
        if rest:
            yield from _below(real, shown, rest)
        elif shown:
            yield shown
        folders: "list[tuple[bytes, bytes]]" = []
        for name in _names(real):
            if name.startswith(b"."):
                continue
            inner = os.path.join(real, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                folders.append((inner, os.path.join(shown, name)))
            elif not rest:
                yield os.path.join(shown, name)
        waiting += folders[::-1]


def _names(folder: bytes) -> "list[bytes]":
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # an unreadable folder has no matches
