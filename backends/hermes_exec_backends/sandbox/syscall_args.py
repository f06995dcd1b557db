"""What the arguments of a call point to, read from the memory of the process that waits for its answer.

Other threads of it may change that while it is read, and afterwards: good enough to see what a program is about, never
to decide what it may do.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

_LONGEST, _MOST = 4096, 64
_HERE = 0xFFFFFF9C  # AT_FDCWD
_PLACES: dict[str, tuple[tuple[int | None, int], ...]] = {
    **dict.fromkeys(
        ("open", "creat", "unlink", "rmdir", "mkdir", "chmod", "chown", "lchown", "truncate"), ((None, 0),)
    ),
    **dict.fromkeys(("openat", "unlinkat", "mkdirat", "fchmodat", "fchownat"), ((0, 1),)),
    **dict.fromkeys(("link", "rename"), ((None, 0), (None, 1))),
    **dict.fromkeys(("linkat", "renameat", "renameat2"), ((0, 1), (2, 3))),
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
}
"""Where the paths of a call stand among its arguments, each with the folder that it starts from."""
_TEXTS = {"symlink": 0, "symlinkat": 0, "setxattr": 1, "lsetxattr": 1, "fsetxattr": 1}
"""Where a text stands that is no path: what a link says, the name of an attribute."""
_READ = frozenset({"execve", "execveat", "connect", *_PLACES, *_TEXTS})


def words(pid: int, name: str, arguments: tuple[int, ...]) -> tuple[str, ...]:
    """What the arguments of a call point to: paths made absolute, then a text; empty where they point nowhere."""
    if name not in _READ:
        return ()
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
            memory = file.fileno()
            match name:
                case "execve":
                    return _listed(memory, *arguments[:3])
                case "execveat":
                    return _listed(memory, *arguments[1:4])
                case "connect":
                    return (os.fsdecode(os.pread(memory, min(arguments[2], 110), arguments[1])[2:]),)
                case _:
                    found = [
                        _path(pid, _text(memory, arguments[path]), _HERE if folder is None else arguments[folder])
                        for folder, path in _PLACES.get(name, ())
                    ]
                    texts = [_text(memory, arguments[_TEXTS[name]])] if name in _TEXTS else []
                    return (*found, *texts)
    except (OSError, OverflowError):
        return ()


def _text(memory: int, address: int) -> str:
    return os.fsdecode(os.pread(memory, _LONGEST, address).partition(b"\0")[0])


def _listed(memory: int, path: int, words: int, variables: int) -> tuple[str, ...]:
    """A program's path, its words, and the variables that the loader of programs obeys, as far as they are not many."""
    told = [each for each in _array(memory, variables) if each.startswith("LD_")] if variables else []
    return (_text(memory, path), *_array(memory, words), *told)


def _array(memory: int, address: int) -> list[str]:
    """The texts of an array of pointers, which ends with none."""
    pointers = os.pread(memory, 8 * _MOST, address)
    found: list[str] = []
    for (pointer,) in struct.iter_unpack("=Q", pointers[: len(pointers) // 8 * 8]):
        if not pointer:
            break
        found.append(_text(memory, pointer))
    return found


def _path(pid: int, path: str, folder: int) -> str:
    """The path made absolute, with what leads up taken out."""
    if not path.startswith("/"):
        at = f"/proc/{pid}/cwd" if folder & 0xFFFFFFFF == _HERE else f"/proc/{pid}/fd/{folder & 0xFFFFFFFF}"
        with contextlib.suppress(OSError):
            path = f"{Path(at).readlink()}/{path}"
    return "/" + os.path.normpath(path).lstrip("/")
