"""Decoys outside of the sandbox for the attempts to find: a secret, a process, ports and sockets, shared memory.

All decoys are ours, have unguessable names, and are removed after the attempts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_VARIABLE = "HERMES_EXEC_CANARY_TOKEN"
_SLEEP_S = 3600
_IPC_RMID = 0
_MOST_HOMES = 100


@contextlib.contextmanager
def plant_decoys() -> Generator[dict[str, object]]:
    """Create the decoys and yield their description for the suite, with reversed texts to avoid false matches."""
    secret, name = secrets.token_hex(16), f"hermes-outside-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-canary-")))
        folder.chmod(0o755)
        file = folder / "secret"
        file.write_text(secret, encoding="utf-8")
        file.chmod(0o644)
        stack.enter_context(_set_variable(secret))
        process = stack.enter_context(_start_process(name))
        yield {
            "secret": secret[::-1],
            "name": name[::-1],
            "file": str(file),
            "pid": process.pid,
            "tcp": _listen(stack, socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1],
            "abstract": _listen_abstract(stack, secrets.token_hex(8)),
            "socket": _listen_unix(stack, str(folder / "socket")),
            "homes": _list_homes(),
            "shm": _create_shared_memory(stack, secrets.token_hex(8)),
        }


@contextlib.contextmanager
def _set_variable(secret: str) -> Generator[None]:
    """Set the secret as an environment variable of ours, where a real secret would be; several can exist at once."""
    name = f"{_VARIABLE}_{secrets.token_hex(4)}"
    os.environ[name] = secret
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _start_process(name: str) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [name, str(_SLEEP_S)], executable="/bin/sleep", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _listen(stack: contextlib.ExitStack, family: int, address: tuple[str, int] | str) -> socket.socket:
    made = stack.enter_context(socket.socket(family))
    made.bind(address)
    made.listen(4)
    return made


def _listen_abstract(stack: contextlib.ExitStack, name: str) -> str:
    _listen(stack, socket.AF_UNIX, f"\0{name}")
    return name


def _listen_unix(stack: contextlib.ExitStack, path: str) -> str:
    _listen(stack, socket.AF_UNIX, path)
    Path(path).chmod(0o777)
    return path


def _list_homes() -> list[tuple[int, int]]:
    """Device and inode of the entries of home folders, which distinguish them from those of an image."""
    found: list[tuple[int, int]] = []
    for folder in (Path("/root"), Path("/home")):
        with contextlib.suppress(OSError):
            found += [(entry.lstat().st_dev, entry.lstat().st_ino) for entry in folder.iterdir()]
    return found[:_MOST_HOMES]


def _create_shared_memory(stack: contextlib.ExitStack, name: str) -> str:
    """Create a System V shared memory segment and a file in /dev/shm; return the name of the file."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, ctypes.c_size_t(4096), 0o666)
    if segment >= 0:
        stack.callback(libc.shmctl, segment, _IPC_RMID, None)
    file = Path("/dev/shm", name)  # noqa: S108  shared memory, with an unguessable name
    if file.parent.is_dir():
        file.touch(mode=0o644)
        stack.callback(file.unlink, missing_ok=True)
    return name
