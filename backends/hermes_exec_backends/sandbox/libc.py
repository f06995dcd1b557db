"""Call functions of the C library without ``ctypes``, whose import is slow.

Part of the launcher, and sent with it; see ``launcher``. It uses ``_ctypes``, which every Python since 2.5 has.
"""

import sys
from _ctypes import (
    FUNCFLAG_CDECL,
    FUNCFLAG_USE_ERRNO,
    CFuncPtr,
    Structure,
    byref,
    dlopen,
    dlsym,
    get_errno,
)
from _ctypes import _SimpleCData as Simple  # pyright: ignore[reportPrivateUsage]  it has no public name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = ("SockFprog", "byref", "capset", "get_errno", "mount_call", "pack_u64", "prctl", "syscall", "unshare")


class Int(Simple):  # type: ignore[type-arg]  # no index at runtime in Python 3.6
    """int."""

    _type_ = "i"


class Long(Simple):  # type: ignore[type-arg]  # the same
    """long."""

    _type_ = "l"


class Short(Simple):  # type: ignore[type-arg]  # the same
    """unsigned short."""

    _type_ = "H"


class Bytes(Simple):  # type: ignore[type-arg]  # the same
    """char *."""

    _type_ = "z"


class SockFprog(Structure):
    """struct sock_fprog."""

    _fields_ = (("len", Short), ("filter", Bytes))


class IntFunction(CFuncPtr):
    """A function that returns an int."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = Int


class LongFunction(CFuncPtr):
    """A function that returns a long."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = Long


def function(name: str, kind: "Callable[[int], Any]" = IntFunction) -> "Callable[..., int]":
    """Look up a function of the C library; integer arguments are passed as long."""
    called = kind(dlsym(LIBC, name))
    return lambda *words: called(*[Long(word) if isinstance(word, int) else word for word in words])


def pack_u64(*numbers: int) -> bytes:
    """Pack integers as consecutive 64-bit values."""
    return b"".join(number.to_bytes(8, sys.byteorder) for number in numbers)


ITSELF: "Any" = None
LIBC = dlopen(ITSELF, 0)
prctl = function("prctl")
capset = function("capset")
mount_call = function("mount")
unshare = function("unshare")
syscall = function("syscall", LongFunction)
