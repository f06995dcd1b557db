"""The OpenSSH client's configuration files, read by paramiko, with ``Include`` added."""

from __future__ import annotations

import fnmatch
import glob
import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSTEM = Path("/etc/ssh")
_MAX_DEPTH = 16
_log = logging.getLogger("hermes_exec.ssh")


def lookup(name: str, path: Path | None, user: str | None, port: int | None) -> dict[str, object]:
    """What the files say about a host: names in lower case, and values, the first found of each.

    ``path`` stands for all files, as ``ssh -F`` does.

    Raises:
        ConfigError: a file cannot be read or understood.
    """
    from paramiko import SSHConfig
    from paramiko.ssh_exception import ConfigParseError

    folder = Path.home() / ".ssh"
    files = [(path, folder)] if path else [(folder / "config", folder), (_SYSTEM / "ssh_config", _SYSTEM)]
    if path and not path.exists():
        raise ConfigError(f"ssh: no file {path}")
    lines = ["Host *"]  # what the profile says goes first, and is what %r, %p and Match see
    lines += [f"User {user}"] if user else []
    lines += [f"Port {port}"] if port else []
    for file, base in files:
        lines += ["Host *", *_lines(file, base, name, 0)]
    try:
        found = SSHConfig.from_text("\n".join(lines)).lookup(name)
    except (ConfigParseError, KeyError, ValueError) as error:
        raise ConfigError(f"ssh: {files[0][0]} cannot be understood: {error}") from error
    return dict(found.items())


def _lines(path: Path, base: Path, name: str, depth: int) -> Iterator[str]:
    """The lines of a file, with those of the files that it includes in their place."""
    if depth > _MAX_DEPTH:
        raise ConfigError(f"ssh: {path} is included by itself")
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"ssh: {path} cannot be read: {error.strerror}") from error
    block, applies = "Host *", True
    for line in text.splitlines():
        word, value = _split(line)
        if word in {"host", "match"}:
            block, applies = line, word == "match" or _matches(value, name)
        if word != "include":
            yield line
        elif block.lower().lstrip().startswith("match"):
            _log.warning("%s: an Include below a Match is left out; transport = 'openssh' reads it", path)
        elif applies:
            for pattern in _values(value, path):
                for found in sorted(glob.glob(str(base / Path(pattern).expanduser()))):  # noqa: PTH207  may be absolute
                    yield from _lines(Path(found), base, name, depth + 1)
            yield block  # where the included file ended in a block of its own


def _split(line: str) -> tuple[str, str]:
    """The keyword in lower case, and what follows; ``=`` may stand between."""
    word, _, value = line.strip().replace("\t", " ").partition(" ")
    if "=" in word:
        word, _, more = word.partition("=")
        value = f"{more} {value}"
    return word.lower(), value.strip().removeprefix("=").strip()


def _values(text: str, path: Path) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"ssh: {path}: Include {text}: {error}") from error


def _matches(patterns: str, name: str) -> bool:
    found = False
    for pattern in patterns.replace('"', "").split():
        if pattern.startswith("!") and fnmatch.fnmatchcase(name, pattern[1:]):
            return False
        found = found or fnmatch.fnmatchcase(name, pattern)
    return found
