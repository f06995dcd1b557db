"""Memory for bulk data, the same file on both sides."""

_KEPT = 1 << 20


def keep_freed_memory() -> None:
    """Make the C library keep up to 2 MiB that were freed, rather than give them back to the kernel.

    A gigabyte read in pieces otherwise takes most of its pages anew from the kernel, which costs more than
    reading it. glibc keeps twice the size of the largest block that it ever gave back whole, up to 64 MiB
    (mallopt(3), M_MMAP_THRESHOLD): so one such block is taken, untouched, and given back. Elsewhere this
    does nothing.
    """
    bytes(_KEPT)
