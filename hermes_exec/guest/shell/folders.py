"""Small files and folders in the guest's private runtime folder."""

import os

from ..process.command import default_shell, resolve_folder
from . import shell_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.server import Client

_LARGE = 100 << 10
"""Kernels refuse a variable over 128 KiB, so a shell gets larger ones through a file."""


class MissingFolder(OSError):
    """A working directory that cannot be entered."""


def write_file(path: str, data: bytes) -> None:
    """Create a private file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def reset_state(folder: str) -> None:
    """Restore the state with which the session's first shell started."""
    with open(folder + "/first", "rb") as file:
        write_file(folder + "/state", file.read())


def read_state(folder: str) -> bytes:
    """Return the last state of a session's shell, without the line that reports it was read."""
    try:
        with open(folder + "/state", "rb") as file:
            return file.read().rpartition(_whole(folder))[0]
    except OSError:
        return b""


def _whole(folder: str) -> bytes:
    return b'>|"%b/s/whole"\n' % folder.encode()


class ShellSpec:
    """The specification of a session's shells: program, environment, and a folder with the state.

    Raises MissingFolder when the session's working directory does not exist.
    """

    def __init__(self, client: "Client", arguments: "dict[str, Any]") -> None:
        self.folder = "{}/{}".format(client.server.folder, os.urandom(4).hex())
        self.program: bytes = arguments.get("shell") or default_shell()
        self.login = bool(arguments.get("login"))
        self._name = os.path.basename(self.program)
        self.dialect = shell_text.ShellDialect(self.folder, self._name.startswith(b"bash"))
        self.env = _prepare_folder(self.folder, self.dialect, client, arguments)

    def argv(self) -> "list[bytes]":
        """Return the argv of the shell."""
        argv = [b"-" + self._name if self.login else self._name]
        if not self.dialect.bash:
            return [*argv, self.folder.encode() + b"/in"]
        argv += [b"--login"] if self.login else [b"--norc", b"--noprofile"]
        return [*argv, b"-c", self.dialect.loop(self.login), self._name]


def _prepare_folder(
    folder: str, dialect: shell_text.ShellDialect, client: "Client", arguments: "dict[str, Any]"
) -> "dict[bytes, bytes]":
    """Create a session's folder with its first state; return the environment of the shell itself."""
    cwd: bytes = resolve_folder(client, arguments.get("cwd"))
    try:
        os.stat(os.path.join(cwd, b"."))
    except OSError as error:
        raise MissingFolder(error.errno, error.strerror, cwd) from error
    for path in (os.path.dirname(folder), folder, folder + "/s"):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass  # the runtime folder, if it was not removed
    env = dict(os.environb)
    env.update(client.env)
    env.update(arguments.get("env") or {})
    large = [name for name, value in env.items() if len(value) > _LARGE]
    lines: "list[bytes]" = [b"export %b=%b\n" % (name, shell_text.quote(env.pop(name))) for name in large]
    lines.append(b"\\cd -- %b; unset OLDPWD\n" % shell_text.quote(cwd))
    setup: "list[bytes]" = arguments.get("setup") or []
    lines += [line + b"\n" for line in setup]
    lines.append(_whole(folder))
    write_file(folder + "/first", b"".join(lines))
    reset_state(folder)
    if arguments.get("state"):
        write_file(folder + "/state", arguments["state"] + _whole(folder))
    write_file(folder + "/dump", shell_text.dump_text(folder, dialect.bash))
    write_file(folder + "/stay", shell_text.stay_text(folder))
    write_file(folder + "/b", b"")
    return env
