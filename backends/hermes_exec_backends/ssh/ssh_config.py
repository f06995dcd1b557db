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
"""An option that no file contains, to detect whether a block matches the host."""


def lookup(name: str, path: Path | None, user: str | None, port: int | None) -> dict[str, object]:
    """Return the options of a host from the files: names in lower case, and the first value found for each.

    ``path`` replaces all files, as in ``ssh -F``.

    Raises:
        ConfigError: a file cannot be read or parsed.
    """
    from paramiko.ssh_exception import ConfigParseError

    folder = home_folder() / ".ssh"
    files = [(path, folder)] if path else [(folder / "config", folder), (_SYSTEM / "ssh_config", _SYSTEM)]
    if path and not path.exists():
        raise ConfigError(f"ssh: no file {path}")
    said = _Said(name)
    said.lines += ["Host *"]  # the profile's settings go first; %r, %p and Match see them
    said.lines += [f"User {user}"] if user else []
    said.lines += [f"Port {port}"] if port else []
    try:
        for file, base in files:
            said.lines.append("Host *")
            said.add(file, base, 0)
        return said.options()
    except (ConfigParseError, KeyError, ValueError) as error:
        raise ConfigError(f"ssh: {files[0][0]} cannot be understood: {error}") from error


def list_hosts() -> list[str]:
    """Return the names that ``~/.ssh/config`` and the files that it includes define, sorted, without patterns.

    Raises:
        ConfigError: a file cannot be read or parsed.
    """
    from paramiko import SSHConfig
    from paramiko.ssh_exception import ConfigParseError

    file = home_folder() / ".ssh" / "config"
    said = _AllLines("")
    said.add(file, file.parent, 0)
    try:
        names = SSHConfig.from_text("\n".join(said.lines)).get_hostnames()
    except (ConfigParseError, ValueError) as error:
        raise ConfigError(f"ssh: {file} cannot be understood: {error}") from error
    return sorted(name for name in names if not set(name) & set("*?!"))


class _Said:
    """The lines of all files so far, for one host."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.lines: list[str] = []

    def options(self, *more: str) -> dict[str, object]:
        """Return the options that the lines set for the host, with ``more`` lines at the end."""
        from paramiko import SSHConfig

        return dict(SSHConfig.from_text("\n".join([*self.lines, *more])).lookup(self._name).items())

    def add(self, path: Path, base: Path, depth: int) -> None:
        """Add the lines of a file, with each ``Include`` replaced by the lines of its files."""
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
                self.lines.append(block)  # if the included file ended inside a block of its own

    def _applies(self, block: str) -> bool:
        """Return whether a block, and so its ``Include``, matches the host, as far as the lines before it show."""
        return _PROBE in self.options(block, f"{_PROBE} yes")


class _AllLines(_Said):
    """The lines of all files, whatever their blocks match."""

    def _applies(self, block: str) -> bool:  # noqa: ARG002  each one
        return True


def _split(line: str) -> tuple[str, str]:
    """Return the keyword in lower case, and its value; ``=`` may separate them."""
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
