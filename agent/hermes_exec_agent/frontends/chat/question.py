"""The question of ``chat -q``: its text, standard input, and attached files."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import read_regular, to_printable
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec_agent.frontends.chat.arguments import ChatArguments

_PIPE = "-"
_MOST = 1 << 20
"""Bytes of standard input; a file has the same bound."""


def read_question(asked: ChatArguments) -> str | None:
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
        text = _read_pipe()
    else:
        text = asked.query or ""
    if not text.strip():
        raise UsageError("the question is empty", remedy="-q QUESTION, or a terminal")
    return "\n\n".join([text, *(_format_attachment(each) for each in asked.files)])


def has_unread_input(asked: ChatArguments) -> bool:
    """Whether a pipe has input that was not read. A file may be for a later command, and does not count."""
    if asked.query in {None, _PIPE} or _PIPE in asked.files:
        return False
    try:
        waiting: bytes = fcntl.ioctl(0, termios.FIONREAD, struct.pack("i", 0))  # reads no input
        return stat.S_ISFIFO(os.fstat(0).st_mode) and struct.unpack("i", waiting) != (0,)
    except OSError:
        return False


def _format_attachment(word: str) -> str:
    text = _read_pipe() if word == _PIPE else _text(read_regular(Path(word).expanduser()), to_printable(word))
    fence = "```"
    while fence in text:
        fence += "`"
    name = "standard input" if word == _PIPE else word
    end = "" if text.endswith("\n") else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}"


def _read_pipe() -> str:
    content = sys.stdin.buffer.read(_MOST + 1)
    if len(content) > _MOST:
        raise UsageError(f"standard input is longer than {_MOST:,} bytes", remedy="a file, named in the question")
    return _text(content, "standard input")


def _text(content: bytes, name: str) -> str:
    if b"\0" in content:
        raise UsageError(f"{name}: not text", remedy="name the file in the question")
    return content.decode("utf-8", "replace")
