"""Cut a long answer into pieces that a platform takes: at paragraphs, with code blocks closed and opened again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FENCE = re.compile(r" {0,3}(`{3,32}(?!`)|~{3,32}(?!~))[ \t]*(.*)")
_LANGUAGE = 32
"""The longest language of a code block, which each of its pieces repeats; a longer one becomes a line of the code."""
_LONGEST_FENCE = 2 * _LANGUAGE + 4
_FIRST_TRY = 1024
"""Characters of a beginning that is tried first."""
_EARLIEST = 0.4
"""A piece is at least this part of what would fit, before it is cut at a boundary of a lesser kind."""


def cut_markdown(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return pieces of Markdown of which each ``fits``; at least one."""
    pieces: list[str] = []
    rest = _shorten_fences(text.strip("\n"))
    while (length := _find_longest(rest, fits)) < len(rest):
        end = _find_boundary(rest, length)
        fence = find_open_fence(rest[:end])
        head = rest[:end].rstrip() if not fence else rest[:end].rstrip("\n")
        pieces.append(_close(head, fence))
        if end >= len(rest):
            return pieces
        rest = rest[end:].lstrip("\n") if not fence else rest[end:].removeprefix("\n")
        if fence:
            rest = f"{fence}\n{rest}"
    return [*pieces, rest] if rest.strip() or not pieces else pieces


def cut_lines(text: str, longest: int) -> list[str]:
    """Return plain text as lines of at most ``longest`` bytes, without empty ones."""
    lines: list[str] = []
    for line in text.splitlines():
        rest = line.rstrip()
        while len(rest.encode()) > longest:
            length = len(rest.encode()[:longest].decode(errors="ignore"))
            end = rest.rfind(" ", length // 2, length) + 1 or length
            lines.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        if rest:
            lines.append(rest)
    return lines


def find_open_fence(text: str) -> str:
    """Return the line that opens the code block which is open at the end of a text; empty if none is."""
    opened = marker = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if found is None:
            continue
        if not opened:
            if "`" not in found[2] or found[1].startswith("~"):
                opened, marker = line, found[1]
        elif found[1][0] == marker[0] and len(found[1]) >= len(marker) and not found[2].strip():
            opened = marker = ""
    return opened


def _shorten_fences(text: str) -> str:
    """Return a text in which each line that opens a code block is short; a long language becomes the next line."""
    lines: list[str] = []
    opened = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        lines.append(line)
        if found is not None:
            was_open, opened = opened, find_open_fence(f"{opened}\n{line}" if opened else line)
            if opened and not was_open and (len(found[2].strip()) > _LANGUAGE or len(line) > _LONGEST_FENCE):
                opened = found[1]
                lines[-1:] = [opened, *filter(None, [found[2].strip()])]
    return "\n".join(lines)


def _close(text: str, fence: str) -> str:
    """Return a piece with its open code block closed."""
    found = _FENCE.fullmatch(fence)
    return f"{text}\n{found[1]}" if found else text


def _find_longest(text: str, fits: Callable[[str], bool]) -> int:
    """Return how many characters of the beginning fit: all, or at least one and more than the line of an open fence.

    It tries short beginnings first, because a text may be a hundred times as long as a piece.
    """

    def has_room(length: int) -> bool:
        head = text[:length]
        return fits(head if length == len(text) else _close(head.rstrip("\n"), find_open_fence(head)))

    least = len(fence) + 2 if text.startswith(fence := text.partition("\n")[0]) and _FENCE.fullmatch(fence) else 1
    low, high = 0, min(max(_FIRST_TRY, least), len(text))
    while has_room(high):
        if high == len(text):
            return high
        low, high = high, min(2 * high, len(text))
    low, high = max(low, least), max(high - 1, least)
    while low < high:
        middle = (low + high + 1) // 2
        if has_room(middle):
            low = middle
        else:
            high = middle - 1
    return min(low, len(text))  # a fence with one character of code is not cut, whatever its length


def _find_boundary(text: str, length: int) -> int:
    """Return where to cut: after a paragraph, else after a line, else after a word, else at ``length``."""
    earliest = max(int(length * _EARLIEST), 1)
    head = text[:length]
    fence = text.partition("\n")[0]
    if _FENCE.fullmatch(fence):
        earliest = max(earliest, min(len(fence) + 2, length))
    for end in _list_ends(head, "\n\n", earliest):
        if not find_open_fence(head[:end]):
            return end
    for mark in ("\n", " "):
        if ends := _list_ends(head, mark, earliest):
            return ends[0]
    return length


def _list_ends(head: str, mark: str, earliest: int) -> Sequence[int]:
    """Return the ends of each ``mark`` in a text, the last first."""
    ends: list[int] = []
    start = len(head)
    while (start := head.rfind(mark, earliest, start)) >= 0:
        ends.append(start + len(mark))
    return ends
