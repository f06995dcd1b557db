"""Start of programs on a host whose login shell is unknown.

sshd passes the login shell *one string*, and shells parse quotes differently: csh expands ``!`` inside all quotes and
ends a string at a newline, fish interprets backslashes. So the string is a constant that all of them parse alike. It
starts ``sh``, which reads one line of its input and evaluates it; that line contains the argv, quoted only for ``sh``,
and the variables, which therefore appear in no argv. ``read`` takes bytes one at a time, so input after the line is
left for the program.

Output of login scripts precedes a random word on each stream and is dropped (``Start``).
"""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING

from hermes_exec.backend import Exit
from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hermes_exec.backend import Receiver

COMMAND = "exec /bin/sh -c 'IFS= read -r hx && eval \"$hx\"'"
"""The command that every login shell receives; see above."""

PYTHON = "python3"
"""A placeholder for the best interpreter of the host, which is searched for there."""
TRIED_PYTHON = "python3.6+"
"""A placeholder for the best interpreter that is new enough and works; finding it takes longer."""

_PYTHONS = ("/usr/bin/python3", "python3", *(f"python3.{minor}" for minor in range(14, 5, -1)))
_PLATFORM = "/usr/libexec/platform-python"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOISE = 64 << 10
"""The most bytes that login scripts may print on one stream."""
_TAIL = 2048


def new_nonce() -> str:
    """Return a word that no program prints by chance."""
    return f"hx-{secrets.token_hex(12)}"


def line(
    argv: Sequence[str | bytes],
    nonce: str,
    env: Mapping[str, str] | None = None,
    setup: Sequence[str] = (),
    *,
    watched: bool = False,
) -> bytes:
    """Return the line that makes the host's ``sh`` start ``argv``.

    With ``setup`` these shell lines run first, in a login shell, because login scripts define ``module``.
    With ``watched`` a shell stays as the parent of the program and exits with 128 + N when signal N ended it, for
    transports that would lose a signal.

    Raises:
        UsageError: an argument or a variable's name cannot be passed to any program.
    """
    words = [os.fsencode(word) for word in argv]
    if any(b"\0" in word for word in words):
        raise UsageError("a word of the command holds a NUL, which no program can be given")
    exports = [b"export %b=%b; " % (_name(name), quote(encode(value))) for name, value in (env or {}).items()]
    start = b"echo %b; echo %b >&2; " % (nonce.encode(), nonce.encode())
    start += _exec(argv[0], setup, watched=watched)
    # POSIX sets IFS at the start of a shell to space, tab, newline: the only way to write a newline on one line.
    text = b"n=${IFS#??}; set -- " + b" ".join(map(quote, words)) + b"; "
    # The login shell has replaced itself and decremented SHLVL; at level 0 Debian's bash would read its .bashrc again.
    text += b"SHLVL=1; export SHLVL; " + b"".join(exports)
    if setup:
        lines = b"{\n" + b"\n".join(map(encode, setup)) + b"\n} </dev/null\n" + start
        text += b'b=$(command -v bash || echo /bin/sh); exec "$b" -lc %b sh "$@"' % quote(lines)
    else:
        text += start
    return text + b"\n"


def quote(word: bytes) -> bytes:
    """Quote a word on one line so that ``sh`` reads back the same bytes; ``$n`` is a newline there."""
    return b"'" + word.replace(b"'", b"'\\''").replace(b"\n", b"'\"$n\"'") + b"'"


def _name(name: str) -> bytes:
    if not _NAME.match(name):
        raise UsageError(f"{name!r} is not a name for a variable")
    return name.encode()


def _exec(program: str | bytes, setup: Sequence[str], *, watched: bool) -> bytes:
    if program not in {PYTHON, TRIED_PYTHON}:
        return b'"$@"; exit $?' if watched else b'exec "$@"'
    # A set-up has put an interpreter on the PATH because the system's is unsuitable.
    first, *rest = _PYTHONS
    names = [*rest, first, _PLATFORM] if setup else [*_PYTHONS, _PLATFORM]
    works = ""
    if program == TRIED_PYTHON:
        works = '$p -c "import sys; sys.exit(sys.version_info < (3, 6))" </dev/null >/dev/null 2>&1 && '
    return (
        f"shift; for p in {' '.join(names)}; do "
        f'command -v $p >/dev/null 2>&1 && {works}exec $p "$@"; '
        "done; echo no Python 3.6 or later was found >&2; exit 127"
    ).encode()


class Start:
    """A receiver that drops output printed before the program started, and forwards the rest to another receiver."""

    def __init__(self, receiver: Receiver, nonce: str, give_up: Callable[[], None]) -> None:
        self._receiver = receiver
        self._mark = nonce.encode() + b"\n"
        self._give_up = give_up
        self._out: bytes | None = b""
        self._err: bytes | None = b""
        self._too_much = False
        self.on_data: Callable[[bytes], None] = self._first_out
        self.on_stderr: Callable[[bytes], None] = self._first_err

    def _first_out(self, data: bytes, /) -> None:
        if self._out is None:  # a channel may have looked up its receiver's methods only once
            self._receiver.on_data(data)
            return
        self._out += data
        noise, found, rest = self._out.partition(self._mark)
        if found:
            self._out = None
            self.on_data = self._receiver.on_data
            if rest:
                self.on_data(rest)
        else:
            self._limit(len(noise))

    def _first_err(self, data: bytes, /) -> None:
        if self._err is None:  # a channel may have looked up its receiver's methods only once
            self._receiver.on_stderr(data)
            return
        self._err += data
        noise, found, rest = self._err.partition(self._mark)
        if found:
            self._err = None
            self.on_stderr = self._receiver.on_stderr
            if rest:
                self.on_stderr(rest)
        else:
            self._limit(len(noise))

    def _limit(self, size: int) -> None:
        if size > _NOISE and not self._too_much:
            self._too_much = True
            self._give_up()

    def on_close(self, exit: Exit, /) -> None:
        """Report the end; if no program had started, add the likely reason."""
        if self._out is not None:
            exit = Exit(lost=self._why(exit))
        self._receiver.on_close(exit)

    def _why(self, exit: Exit) -> str:
        said = ((self._err or b"").strip() or (self._out or b"").strip())[-_TAIL:].decode("utf-8", "replace")
        tail = f": {said}" if said else ""
        if self._too_much:
            return f"login scripts printed more than {_NOISE >> 10} KiB and nothing started{tail[:400]}"
        if exit.lost:
            return f"{exit.lost}{tail}"
        how = f"exit code {exit.code}" if exit.code is not None else f"signal {exit.signal}"
        return (
            "the host did not run what it was asked to: a forced command, a login shell that refuses, or a login "
            f"script that ends ({how}){tail}"
        )
