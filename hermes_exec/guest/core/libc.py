"""The C library through ctypes, loaded on first use, and prctl(2)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

_libc: "Any" = None


def libc() -> "Any":
    """Return the C library of this process."""
    global _libc  # noqa: PLW0603  loaded once, on first use, because ctypes takes 4 ms to import
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def become_subreaper() -> bool:
    """Become the parent of descendants' orphans, also after exec; return whether that succeeded."""
    try:
        return bool(libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


def become_undumpable() -> None:
    """Close this process to ptrace(2) and /proc access by the same user, until it executes a program."""
    if libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_DUMPABLE) failed")
