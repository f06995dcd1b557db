"""Read the texts that the arguments of a system call point to, from the memory of the process that waits for a reply.

Other threads of the process can change them while they are read and afterwards, so they serve to observe a program,
never to decide what it may do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from pathlib import Path

_LONGEST, _MOST = 4096, 64
_HERE = 0xFFFFFF9C  # AT_FDCWD
_PATHS: dict[str, tuple[tuple[int | None, int], ...]] = {
    **dict.fromkeys(
        ("open", "creat", "unlink", "rmdir", "mkdir", "chmod", "chown", "lchown", "truncate"), ((None, 0),)
    ),
    **dict.fromkeys(("openat", "unlinkat", "mkdirat", "fchmodat", "fchownat"), ((0, 1),)),
    **dict.fromkeys(("link", "rename"), ((None, 0), (None, 1))),
    **dict.fromkeys(("linkat", "renameat", "renameat2"), ((0, 1), (2, 3))),
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
}
"""The argument indices of the paths of a call, each as (folder descriptor or None, path)."""
_TEXTS = {"symlink": 0, "symlinkat": 0, "setxattr": 1, "lsetxattr": 1, "fsetxattr": 1}
"""The argument index of a text that is not a path: a link target, the name of an attribute."""
_HOSTS = {int(socket.AF_INET): slice(4, 8), int(socket.AF_INET6): slice(8, 24)}
"""The bytes of the host in an internet address, by family."""
_READ = frozenset({"execve", "execveat", "connect", "bind", *_PATHS, *_TEXTS})


def read_texts(pid: int, name: str, arguments: tuple[int, ...]) -> tuple[str, ...]:
    """The texts of a call: its paths, made absolute, then another text; empty if the memory cannot be read."""
    if name not in _READ:
        return ()
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
            memory = file.fileno()
            match name:
                case "execve":
                    return _read_program(memory, *arguments[:3])
                case "execveat":
                    return _read_program(memory, *arguments[1:4])
                case "connect" | "bind":
                    return _read_address(os.pread(memory, min(arguments[2], 110), arguments[1]))
                case _:
                    found = [
                        _absolute(
                            pid, _read_text(memory, arguments[path]), _HERE if folder is None else arguments[folder]
                        )
                        for folder, path in _PATHS.get(name, ())
                    ]
                    texts = [_read_text(memory, arguments[_TEXTS[name]])] if name in _TEXTS else []
                    return (*found, *texts)
    except (OSError, OverflowError):
        return ()


def _read_text(memory: int, address: int) -> str:
    return os.fsdecode(os.pread(memory, _LONGEST, address).partition(b"\0")[0])


def _read_program(memory: int, path: int, words: int, variables: int) -> tuple[str, ...]:
    """The path and argv of a program, and the variables of the dynamic loader, up to a limit."""
    loader = [each for each in _read_array(memory, variables) if each.startswith("LD_")] if variables else []
    return (_read_text(memory, path), *_read_array(memory, words), *loader)


def _read_address(address: bytes) -> tuple[str, ...]:
    """The name of a unix socket; for internet addresses an empty text, the host and the port (ip(7), ipv6(7))."""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family in _HOSTS and len(address) >= _HOSTS[family].stop:
        host = socket.inet_ntop(family, address[_HOSTS[family]])
        return "", host, str(int.from_bytes(address[2:4], "big"))
    return (os.fsdecode(address[2:]),)


def _read_array(memory: int, address: int) -> list[str]:
    """The texts of a null-terminated array of pointers."""
    pointers = os.pread(memory, 8 * _MOST, address)
    found: list[str] = []
    for (pointer,) in struct.iter_unpack("=Q", pointers[: len(pointers) // 8 * 8]):
        if not pointer:
            break
        found.append(_read_text(memory, pointer))
    return found


def _absolute(pid: int, path: str, folder: int) -> str:
    """The path made absolute and normalised."""
    if not path.startswith("/"):
        at = f"/proc/{pid}/cwd" if folder & 0xFFFFFFFF == _HERE else f"/proc/{pid}/fd/{folder & 0xFFFFFFFF}"
        with contextlib.suppress(OSError):
            path = f"{Path(at).readlink()}/{path}"
    return "/" + os.path.normpath(path).lstrip("/")
