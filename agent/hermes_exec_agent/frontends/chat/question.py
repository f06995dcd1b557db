"""The question of ``chat -q``: its text, standard input, and attached files and images."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import MAX_FILE, read_regular, to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.models.images import MAX_BYTES, is_image, parse_image

if TYPE_CHECKING:
    from hermes_exec_agent.frontends.chat.arguments import ChatArguments
    from hermes_exec_agent.models.images import Image

_PIPE = "-"
_MOST = MAX_FILE
"""Bytes of text."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question."""

    text: str
    """With the text of attached files."""
    images: tuple[Image, ...] = ()


def read_question(asked: ChatArguments) -> Question | None:
    """Return the question, or None for an interactive chat. A pipe without ``-q`` is a question.

    Raises:
        UsageError: the question is empty, too long, or not text.
        ConfigError: a file cannot be read.
    """
    if asked.query in {None, _PIPE}:
        if sys.stdin.isatty() and asked.query is None:
            return None
        if _PIPE in asked.files:
            raise UsageError("--file -: standard input is the question already", remedy="-q QUESTION --file -")
        text = _text(_read_pipe(), "standard input")
    else:
        text = asked.query or ""
    if not text.strip():
        raise UsageError("the question is empty", remedy="-q QUESTION, or a terminal")
    texts = [text]
    images: list[Image] = []
    for word in asked.files:
        name = "standard input" if word == _PIPE else to_printable(word)
        content = _read_pipe() if word == _PIPE else read_regular(Path(word).expanduser(), MAX_BYTES)
        if is_image(content):
            images.append(parse_image(content, name))
        else:
            texts.append(_format_attachment(name if word == _PIPE else word, _text(content, name)))
    return Question("\n\n".join(texts), tuple(images))


def read_image(path: str) -> Image:
    """Read an image of this machine.

    Raises:
        UsageError: it is not an image, or too large.
        ConfigError: the file cannot be read.
    """
    return parse_image(read_regular(Path(path).expanduser(), MAX_BYTES), Path(path).name)


def has_unread_input(asked: ChatArguments) -> bool:
    """Whether a pipe has input that was not read. A file may be for a later command, and does not count."""
    if asked.query in {None, _PIPE} or _PIPE in asked.files:
        return False
    try:
        waiting: bytes = fcntl.ioctl(0, termios.FIONREAD, struct.pack("i", 0))  # reads no input
        return stat.S_ISFIFO(os.fstat(0).st_mode) and struct.unpack("i", waiting) != (0,)
    except OSError:
        return False


def _format_attachment(name: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    end = "" if text.endswith("\n") else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}"


def _read_pipe() -> bytes:
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _text(content: bytes, name: str) -> str:
    if len(content) > _MOST:
        raise UsageError(f"{name} is longer than {_MOST:,} bytes", remedy="a file, named in the question")
    if b"\0" in content:
        raise UsageError(f"{name}: not text", remedy="name the file in the question")
    return content.decode("utf-8", "replace")
