"""The OpenSSH client's configuration files, read by paramiko, with ``Include`` added."""

from __future__ import annotations

import glob
import shlex
from pathlib import Path

from hermes_exec.config.paths import expand_home, home_folder
from hermes_exec.errors import ConfigError

_SYSTEM = Path("/etc/ssh")
_MAX_DEPTH = 16
_PROBE = "hermesexecprobe"
"""An option that no file has, to learn whether a block is about the host."""


def lookup(name: str, path: Path | None, user: str | None, port: int | None) -> dict[str, object]:
    """What the files say about a host: names in lower case, and values, the first found of each.

    ``path`` stands for all files, as ``ssh -F`` does.

    Raises:
        ConfigError: a file cannot be read or understood.
    """
    from paramiko.ssh_exception import ConfigParseError

    folder = home_folder() / ".ssh"
    files = [(path, folder)] if path else [(folder / "config", folder), (_SYSTEM / "ssh_config", _SYSTEM)]
    if path and not path.exists():
        raise ConfigError(f"ssh: no file {path}")
    said = _Said(name)
    said.lines += ["Host *"]  # what the profile says goes first, and is what %r, %p and Match see
    said.lines += [f"User {user}"] if user else []
    said.lines += [f"Port {port}"] if port else []
    try:
        for file, base in files:
            said.lines.append("Host *")
            said.add(file, base, 0)
        return said.options()
    except (ConfigParseError, KeyError, ValueError) as error:
        raise ConfigError(f"ssh: {files[0][0]} cannot be understood: {error}") from error


class _Said:
    """The lines of all files so far, for one host."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.lines: list[str] = []

    def options(self, *more: str) -> dict[str, object]:
        """What the lines mean for the host, with ``more`` of them at the end."""
        from paramiko import SSHConfig

        return dict(SSHConfig.from_text("\n".join([*self.lines, *more])).lookup(self._name).items())

    def add(self, path: Path, base: Path, depth: int) -> None:
        """Take the lines of a file, with those of the files that it includes in their place."""
        if depth > _MAX_DEPTH:
            raise ConfigError(f"ssh: {path} is included by itself")
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise ConfigError(f"ssh: {path} cannot be read: {error.strerror}") from error
        block = "Host *"
        for line in text.splitlines():
            word, value = _split(line)
            if word in {"host", "match"}:
                block = line
            if word != "include":
                self.lines.append(line)
            elif self._applies(block):
                for pattern in _values(value, path):
                    for found in sorted(glob.glob(str(base / expand_home(pattern)))):  # noqa: PTH207  may be absolute
                        self.add(Path(found), base, depth + 1)
                self.lines.append(block)  # where the included file ended in a block of its own

    def _applies(self, block: str) -> bool:
        """Whether a block is about the host, as far as the lines before it tell; then what it includes is too."""
        return _PROBE in self.options(block, f"{_PROBE} yes")


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
