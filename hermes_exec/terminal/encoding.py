"""Encode the arguments of callers as bytes of a request; an argument of a wrong type raises before anything runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hermes_exec.errors import UsageError

Argument = str | bytes


def encode(text: Argument | os.PathLike[str]) -> bytes:
    """Return bytes unchanged, and text or a path in the file system's encoding."""
    try:
        data = text if isinstance(text, bytes) else _encode_text(os.fspath(text))
    except UnicodeEncodeError as error:
        raise UsageError(f"text that has no bytes: {error}", remedy="give bytes") from error
    except TypeError as error:
        raise UsageError(f"{text!r:.80} is neither text nor bytes nor a path", remedy="str(…)") from error
    if b"\0" in data:
        raise UsageError("a command, path or variable cannot hold a NUL byte")
    return data


def _encode_text(text: Argument) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # the locale (such as C) cannot encode it; targets use UTF-8
        return os.fsdecode(text).encode("utf-8", "surrogateescape")


def encode_argv(command: Any) -> list[bytes]:
    """Encode a program and its arguments."""
    if not isinstance(command, Sequence):
        raise UsageError(f"a {type(command).__name__} as command", remedy="shell text, or a list of arguments")
    if not command:
        raise UsageError("an empty command", remedy="give a program and its arguments")
    return [encode(argument) for argument in cast("Sequence[Argument]", command)]


def encode_env(env: Any) -> dict[bytes, bytes]:
    """Encode environment variables; a name that no shell can export is refused."""
    if not isinstance(env, Mapping):
        raise UsageError(f"a {type(env).__name__} as variables", remedy='{"NAME": "value"}')
    encoded: dict[bytes, bytes] = {}
    for name, value in cast("Mapping[str, str]", env).items():
        if not (str(name).isidentifier() and name.isascii()):
            raise UsageError(f"{name!r} cannot be the name of a variable", remedy="letters, digits and _ only")
        encoded[name.encode()] = encode(value)
    return encoded


def encode_input(stdin: Any) -> bytes | None:
    """Encode a command's standard input; None stays None."""
    if stdin is None or isinstance(stdin, bytes):
        return stdin
    if not isinstance(stdin, str):
        try:
            return memoryview(stdin).tobytes()
        except TypeError as error:
            raise UsageError(f"a {type(stdin).__name__} as standard input", remedy="bytes or text") from error
    try:
        return stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"standard input that has no bytes: {error}", remedy="give bytes") from error


def validate_seconds(seconds: Any, what: str, most: float, *, zero: bool = False) -> float:
    """Return ``seconds`` as a float; it must be above 0 (with ``zero`` not below 0) and at most ``most``."""
    if isinstance(seconds, int | float) and (0 < seconds <= most or (zero and seconds == 0)):
        return float(seconds)
    at_most = "" if most == math.inf else f", and {most:.0f} at most"
    raise UsageError(f"{what} of {seconds!r} s", remedy=f"{'0 or more' if zero else 'more than 0'}{at_most}")


def validate_count(count: Any, what: str) -> int:
    """Return ``count``, which must be an integer not below 0."""
    if isinstance(count, int) and count >= 0:
        return count
    raise UsageError(f"{what} of {count!r}", remedy="a whole number, 0 or more")
