"""The locations of configuration and state, after the XDG Base Directory Specification 0.8."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errno_hints import path_remedy
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "hermes.toml"
MAX_FILE = 1 << 20
"""Bytes of the largest configuration file that is read."""


def config_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's own configuration; it need not exist."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "hermes_exec"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of state that is kept between runs (trust, audit); it need not exist."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "hermes_exec"


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's ``hermes.toml``."""
    return config_folder(environ) / FILE_NAME


def trust_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the record of trusted project files."""
    return state_folder(environ) / "trust.json"


def audit_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the audit's newest file."""
    return state_folder(environ) / "audit.jsonl"


def _base(environ: Mapping[str, str], variable: str, default: str) -> Path:
    chosen = environ.get(variable, "")
    # "All paths must be absolute; a relative one is to be considered invalid and ignored."
    if chosen.startswith("/"):
        return Path(chosen)
    return home_folder(environ) / default


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's home folder; the root for a user id without a name, as containers have them."""
    named = environ.get("HOME", "")
    if not named.startswith("/"):
        named = os.path.expanduser("~")  # noqa: PTH111  Path.home() raises where there is none
    return Path(named if named.startswith("/") else "/")


def expand_home(path: str) -> Path:
    """Return ``path`` with our home folder for a ``~/`` at its beginning, and another user's for ``~name``."""
    return home_folder() / path[2:] if path.startswith("~/") else Path(os.path.expanduser(path))  # noqa: PTH111  as in home


def exists(path: Path) -> bool:
    """Return whether the path exists, as far as permissions show; a broken link exists."""
    try:
        path.lstat()
    except OSError:
        return False
    return True


def may_exist(path: Path) -> bool:
    """Return whether the path exists, or its folder exists and is closed to us, so that it may."""
    return exists(path) or (os.path.isdir(path.parent) and not os.access(path.parent, os.X_OK))  # noqa: PTH112  no raise


def find_project_file(cwd: Path) -> Path | None:
    """Return the nearest ``hermes.toml`` from ``cwd`` up to the root of its repository.

    Outside of a repository only ``cwd`` itself is searched.
    """
    start = cwd.resolve()
    folders = [start, *start.parents]
    root = next((position for position, folder in enumerate(folders) if exists(folder / ".git")), 0)
    return next((path for folder in folders[: root + 1] if exists(path := folder / FILE_NAME)), None)


def make_private_folder(folder: Path) -> None:
    """Create ``folder`` for this user alone (0700); one that exists is left as it is."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` (0600) atomically: after a crash it holds either the old content or the new.

    Unless it is ``durable``, this holds for a crash of the program, not of the machine; the disk is not waited for.
    """
    import tempfile

    make_private_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_regular(path: Path, most: int = MAX_FILE) -> bytes:
    """Read a configuration file that another user may have created.

    A device or a FIFO behind the name never blocks us, and at most ``most`` bytes are read.

    Raises:
        ConfigError: it is not a regular file, is too large, or cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError(f"{to_printable(path)}: not a regular file", remedy="move it away")
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(handle)
    if len(content) > most:
        raise ConfigError(f"{to_printable(path)}: larger than {most} bytes", remedy="move it away")
    return content


def _unreadable(path: Path, error: OSError) -> ConfigError:
    remedy = "" if isinstance(error, FileNotFoundError) else path_remedy(path, error.errno, "move it away")
    return ConfigError(f"{to_printable(path)}: {error.strerror}", remedy=remedy)


def to_printable(value: object) -> str:
    """Return ``value`` as one printable line: escaped if it could move a terminal's cursor."""
    text = str(value)
    return text if text.isprintable() else repr(text)
