"""A lock on a file, by which one program at a time does its work; the kernel frees it when the process ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errno_hints import path_remedy
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def hold_alone(path: Path, busy: HermesError) -> Generator[int]:
    """Hold the lock of a file, which is created if it is missing; yield the descriptor.

    A process that inherits the descriptor holds it, too, if this one is killed.

    Raises:
        HermesError: ``busy`` if another process holds it; or it cannot be created.
    """
    with _hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB, busy) as handle:
        yield handle


@contextmanager
def wait_alone(path: Path) -> Generator[int]:
    """Hold the lock of a file as `hold_alone` does, after waiting for the process that holds it.

    Raises:
        HermesError: it cannot be created.
    """
    with _hold(path, fcntl.LOCK_EX) as handle:
        yield handle


@contextmanager
def _hold(path: Path, how: int, busy: HermesError | None = None) -> Generator[int]:
    handle = -1
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, how)
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        if isinstance(error, BlockingIOError) and busy is not None:
            raise busy from None
        remedy = path_remedy(path, error.errno, "check rights there")
        raise HermesError(f"{to_printable(path)}: {error.strerror}", remedy=remedy) from error
    try:
        yield handle
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # also that of processes which inherited it
        os.close(handle)
