"""The event log of a shard: one JSON object on each line, appended by that shard alone."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic_core import from_json

from hermes_exec_agent.batch.run_folder import exists_now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

NAME = "log.jsonl"


class ShardLog:
    """Appends events. A line survives the end of the process at once, and that of the machine after `sync`."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._torn = False
        """Whether the last line is not complete, because the disk was full."""
        self._current: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def write(self, event: str, **fields: Any) -> None:
        """Append an event.

        Raises:
            OSError: it cannot be written.
        """
        line = (
            json.dumps({"event": event, "at": round(time.time(), 3), **fields}, separators=(",", ":")).encode() + b"\n"
        )
        if self._torn:
            line = b"\n" + line
        written = os.write(self._handle, line)
        if written != len(line):
            self._torn = self._torn or written > 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._torn = False

    async def sync(self) -> None:
        """Wait until all events so far are on the disk; calls that wait at the same time share one write."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._sync_after(self._current))
        await asyncio.shield(self._next)

    async def _sync_after(self, before: asyncio.Future[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._current, self._next = self._next, None  # later calls need another write
        await asyncio.to_thread(os.fsync, self._handle)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LogTail:
    """Reads the events of a log that grows; a line that is not complete yet is left for the next call."""

    def __init__(self, folder: Path, *events: str) -> None:
        """``events`` are the only ones that are read; all if empty."""
        self._path = folder / NAME
        self._offset = 0
        self._prefixes = tuple(f'{{"event":"{each}"'.encode() for each in events) or (b"",)

    def read(self) -> Iterator[dict[str, Any]]:
        """Return the events since the last call."""
        if not exists_now(self._path):
            return
        file = self._path.open("rb")
        with file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                if not line.startswith(self._prefixes):  # its event is its first key
                    continue
                if (found := _parse(line)) is not None:
                    yield found


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line; None if it was torn by the end of a machine."""
    try:
        found: object = from_json(line)  # three times as fast, but it refuses lone surrogates
    except ValueError:
        try:
            found = json.loads(line.decode())
        except ValueError:
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
