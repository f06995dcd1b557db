"""Encode the arguments of callers as bytes of a request; an argument of a wrong type raises before anything runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hermes_exec.errors import UsageError

Argument = str | bytes
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(s|m|h|d|)\Z", re.ASCII)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds of ``90``, ``1.5``, ``10m``, ``2h`` or ``1d``.

    Raises:
        UsageError: the text has another form.
    """
    match = _DURATION.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration", remedy="90, 1.5s, 10m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_number(text: str, least: int = 0, most: int = 999_999_999) -> int | None:
    """Return the number that ASCII digits write; None for any other text, and outside of ``least`` to ``most``."""
    if not text.isascii() or not text.isdigit() or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if least <= number <= most else None


def describe_kind(value: object) -> str:
    """Return the type of an argument for an error; the value itself may be a secret."""
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def encode(text: Argument | os.PathLike[str], name: str = "command") -> bytes:
    """Return bytes unchanged, and text or a path in the file system's encoding; ``name`` is the parameter."""
    try:
        data = text if isinstance(text, bytes) else _encode_text(os.fspath(text))
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}: text that has no bytes: {error}", remedy="give bytes") from error
    except TypeError as error:
        what = describe_kind(text)
        raise UsageError(f"{name}: {what} is neither text nor bytes nor a path", remedy="str(…)") from error
    if b"\0" in data:
        raise UsageError(f"{name}: a command, path or variable cannot hold a NUL byte")
    return data


def _encode_text(text: Argument) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # the locale (such as C) cannot encode it; targets use UTF-8
        return os.fsdecode(text).encode("utf-8", "surrogateescape")


def encode_argv(command: Any) -> list[bytes]:
    """Encode a program and its arguments."""
    if not isinstance(command, Sequence):
        raise UsageError(f"command: {describe_kind(command)}", remedy="shell text, or a list of arguments")
    if not command:
        raise UsageError("command: it is empty", remedy="give a program and its arguments")
    return [encode(argument) for argument in cast("Sequence[Argument]", command)]


def encode_command(command: Any) -> dict[str, Any]:
    """Return the field of a request with shell text, or with a program and its arguments."""
    return {"command": encode(command)} if isinstance(command, str | bytes) else {"argv": encode_argv(command)}


def encode_env(env: Any) -> dict[bytes, bytes]:
    """Encode environment variables; a name that no shell can export is refused."""
    if not isinstance(env, Mapping):
        raise UsageError(f"env: {describe_kind(env)} is not a map of variables", remedy='{"NAME": "value"}')
    encoded: dict[bytes, bytes] = {}
    for name, value in cast("Mapping[str, str]", env).items():
        if not (str(name).isidentifier() and name.isascii()):
            raise UsageError(f"env: {name!r} cannot be the name of a variable", remedy="letters, digits and _ only")
        encoded[name.encode()] = encode(value, f"env: the value of {name!r}")
    return encoded


def encode_input(stdin: Any) -> bytes | None:
    """Encode a command's standard input; None stays None."""
    return None if stdin is None else encode_data(stdin, "stdin")


def encode_data(data: Any, name: str = "data") -> bytes:
    """Return bytes unchanged, and text in UTF-8; ``name`` is the parameter."""
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        try:
            return memoryview(data).tobytes()
        except TypeError as error:
            raise UsageError(
                f"{name}: {describe_kind(data)} is neither bytes nor text", remedy="bytes or text"
            ) from error
    try:
        return data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}: text that has no bytes: {error}", remedy="give bytes") from error


def validate_seconds(seconds: Any, name: str, most: float, *, zero: bool = False) -> float:
    """Return the value of the parameter ``name`` in seconds; text such as ``10s`` means the same as in an option.

    It must be above 0 (with ``zero`` not below 0) and at most ``most``.
    """
    at_most = "" if most == math.inf else f", and {most:.0f} at most"
    remedy = f"{'0 or more' if zero else 'more than 0'} seconds{at_most}, or text such as '10m'"
    if isinstance(seconds, str):
        try:
            value: Any = parse_duration(seconds)
        except UsageError:
            value = math.nan
    else:
        value = seconds
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (0 < value <= most or (zero and value == 0)):
        return float(value)
    raise UsageError(f"{name}={seconds!r:.40} is not a time", remedy=remedy)


def validate_count(count: Any, name: str) -> int:
    """Return the value of the parameter ``name``, which must be an integer from 0 to 2**63 - 1."""
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 63:
        return count
    raise UsageError(f"{name}={count!r:.40} is not a count", remedy="a whole number from 0 to 2**63 - 1")


def validate_offset(offset: Any, name: str) -> int:
    """Return the value of the parameter ``name``, which must be an integer; one below 0 counts from the end."""
    if isinstance(offset, int) and not isinstance(offset, bool):
        return offset
    raise UsageError(f"{name}={offset!r:.40} is not an offset", remedy="a whole number")


def validate_mode(mode: Any, name: str = "mode") -> int:
    """Return the value of the parameter ``name``, which must be the permissions of a file."""
    if isinstance(mode, int) and not isinstance(mode, bool) and 0 <= mode <= 0o7777:
        return mode
    raise UsageError(f"{name}={mode!r:.40} is not a file's mode", remedy="0o644, or another number up to 0o7777")


def validate_callback(function: Any, name: str) -> None:
    """Raise UsageError unless the value of the parameter ``name`` is a function or None."""
    if function is not None and not callable(function):
        raise UsageError(f"{name}: {describe_kind(function)} cannot be called", remedy="a function, or None")


def validate_flag(flag: Any, name: str) -> bool:
    """Return the value of the parameter ``name``, which must be True or False."""
    if isinstance(flag, bool):
        return flag
    raise UsageError(f"{name}={flag!r:.40} is neither True nor False", remedy="True or False")


def validate_choice(word: Any, name: str, choices: Sequence[str]) -> str:
    """Return the value of the parameter ``name``, which must be one of the choices."""
    if isinstance(word, str) and word in choices:
        return word
    raise UsageError(f"{name}={word!r:.40} is not a choice", remedy=", ".join(choices))


def validate_name(text: Any, name: str, most: int = 256) -> str:
    """Return the value of the parameter ``name``, which must be text of ``most`` characters at most."""
    if not isinstance(text, str):
        raise UsageError(f"{name}: {describe_kind(text)} is not text", remedy="str(…)")
    if len(text) > most:
        raise UsageError(f"{name}: it has {len(text)} characters", remedy=f"{most} at most")
    return text
