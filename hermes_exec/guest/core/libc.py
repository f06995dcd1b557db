"""The C library, through ctypes, loaded on first use, and the one call of it that is needed everywhere: prctl."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

_libc: "Any" = None


def libc() -> "Any":
    """The C library of this process."""
    global _libc  # noqa: PLW0603  loaded once, on first use, because ctypes takes 4 ms to import
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def become_subreaper() -> bool:
    """From now on our descendants' orphans become our children, also after exec; False: not possible."""
    try:
        return bool(libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


def become_undumpable() -> None:
    """From now on no process of this user may trace this one, or open its memory; until it becomes a program."""
    if libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError("this process cannot be closed to others")
