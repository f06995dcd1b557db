"""The types of the values in profiles, each with one clear error message.

Validators in this module never repeat the value: the user may have put a secret under the wrong key.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo

from hermes_exec.config.secrets import SecretSource, parse_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\Z", re.ASCII)
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("kmgt", 1)},
}
MAX_SIZE = (1 << 63) - 1


def parse_size(value: object) -> object:
    """Return the bytes of ``8 MiB`` (1024²), ``8 MB`` (1000²), ``8m`` (1024², as in Docker) or a plain number.

    Raises:
        ValueError: the text is not a size.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError('should be a size such as 1048576, "8 MiB" or "2 GB"')
    return round(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def format_size(size: int) -> str:
    """Return ``size`` in the largest unit of 1024 that divides it, such as ``8 MiB``."""
    for letter, power in (("T", 4), ("G", 3), ("M", 2), ("K", 1)):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power} {letter}iB"
    return f"{size} B"


def _argument(value: str) -> str:
    # It becomes an argument of a command, where a leading dash would make it an option.
    if not value or value.startswith("-") or not value.isprintable():
        raise ValueError("should be text that does not start with a dash")
    return value


def _name(value: str) -> str:
    if not value or value.startswith("-") or not value.isprintable() or any(map(str.isspace, value)):
        raise ValueError("should be one word that does not start with a dash")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL, which no program can be given")
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name or "\0" in text for name, text in value.items()):
        raise ValueError("names a variable that no program can be given (empty, with '=' or with NUL)")
    return value


def _local_path(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        return value
    if not value or "\0" in value:
        raise ValueError("should be a path")
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise ValueError("names a home folder that does not exist") from None
    folder = cast("Mapping[str, Path]", info.context).get("folder") if info.context else None
    return folder / path if folder else path


class Bind(BaseModel, frozen=True, extra="forbid", strict=True, defer_build=True):
    """A file or folder of the outer target that is visible inside."""

    source: Annotated[str, AfterValidator(_argument)]
    target: Annotated[str, AfterValidator(_argument)]
    writable: bool = False


def _bind(value: object) -> object:
    if not isinstance(value, str):
        return value
    match value.split(":"):
        case [source, target]:
            return {"source": source, "target": target}
        case [source, target, "ro" | "rw" as mode]:
            return {"source": source, "target": target, "writable": mode == "rw"}
        case _:
            raise ValueError('should be "SOURCE:TARGET", "SOURCE:TARGET:rw" or a table')


def _gpus(value: object) -> object:
    # bool is an int in Python, but `gpus = true` does not state a number
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:,!+-]*", value):
        return value
    raise ValueError('should be a number, "all" or a kind such as "A100" or "A100:2"')


Text = Annotated[str, AfterValidator(_no_nul)]
"""Any text that can be passed to a program."""
Argument = Annotated[str, AfterValidator(_argument)]
"""Text that becomes one argument and can never be taken for an option."""
Name = Annotated[str, AfterValidator(_name)]
"""An argument without a space: a host, an image, a user."""
Words = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list of texts."""
Names = Annotated[tuple[Name, ...], Field(strict=False)]
"""A list of names."""
Table = dict[str, Text]
"""A table of texts."""
Environment = Annotated[dict[str, str], AfterValidator(_environment)]
"""Variables and their values."""
Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=MAX_SIZE)]
"""Bytes, from a number or from ``"8 MiB"``."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A positive number of seconds."""
Count = Annotated[int, Field(ge=1)]
"""A positive whole number."""
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A positive number."""
LocalPath = Annotated[Path, BeforeValidator(_local_path)]
"""A file of this machine: ``~`` is the home folder, and a relative path starts at the configuration file."""
Binds = Annotated[tuple[Annotated[Bind, BeforeValidator(_bind)], ...], Field(strict=False)]
"""Folders that are visible inside, read-only unless stated otherwise."""
Gpus = Annotated[str, BeforeValidator(_gpus)]
"""The number of GPUs, or their names."""
Source = Annotated[SecretSource, BeforeValidator(SecretSource.parse)]
"""The source of one secret."""
Sources = Annotated[dict[str, SecretSource], BeforeValidator(parse_secrets)]
"""Secrets by name."""
