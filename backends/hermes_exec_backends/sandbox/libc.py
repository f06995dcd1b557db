"""Functions of the C library, and what they are given, without ``ctypes``: that takes a while to import.

Part of the launcher, and sent with it; see ``launcher``. It uses what ``ctypes`` is made of, in every Python since 2.5.
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
from _ctypes import _SimpleCData as Simple  # pyright: ignore[reportPrivateUsage]  the only name that it has

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = ("Filter", "byref", "capset", "get_errno", "mount_call", "prctl", "quads", "syscall", "unshare")


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


class Filter(Structure):
    """struct sock_fprog."""

    _fields_ = (("len", Short), ("filter", Bytes))


class GivesInt(CFuncPtr):
    """A function that gives an int."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = Int


class GivesLong(CFuncPtr):
    """One that gives a long."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = Long


def function(name: str, kind: "Callable[[int], Any]" = GivesInt) -> "Callable[..., int]":
    """A function of the C library; every number that it is called with is handed over as a long."""
    called = kind(dlsym(LIBC, name))
    return lambda *words: called(*[Long(word) if isinstance(word, int) else word for word in words])


def quads(*numbers: int) -> bytes:
    """Numbers of 64 bits, one after the other."""
    return b"".join(number.to_bytes(8, sys.byteorder) for number in numbers)


ITSELF: "Any" = None
LIBC = dlopen(ITSELF, 0)
prctl = function("prctl")
capset = function("capset")
mount_call = function("mount")
unshare = function("unshare")
syscall = function("syscall", GivesLong)
