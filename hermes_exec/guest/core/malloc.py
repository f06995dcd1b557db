"""The C library's allocator, the same file on both sides."""

_KEPT = 1 << 20


def keep_freed_memory() -> None:
    """Make the C library keep up to 2 MiB of freed memory, instead of returning it to the kernel.

    Otherwise a gigabyte that is read in pieces takes most of its pages again from the kernel, which costs more than
    reading it. glibc keeps twice the size of the largest mapped block that was ever freed, up to 64 MiB (mallopt(3),
    M_MMAP_THRESHOLD), so one such block is allocated, untouched, and freed. This has no effect on other C libraries.
    """
    bytes(_KEPT)
