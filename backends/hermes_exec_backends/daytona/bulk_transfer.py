"""Large data, transferred as files by the vendor's file calls into and out of the relay's directory.

Each transfer is idempotent and is retried; a transfer that finally fails breaks the connection, and the next
connection continues.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec_backends.daytona import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
_MOVE_S = 60
_TRIES = 3
_PAUSE_S = 0.1
_LONGEST_PATH = 200


class FileSideChannel:
    """The transfers of one connection; ``failed`` is called with the error of one that finally failed."""

    def __init__(self, files: Any, failed: Callable[[str], None]) -> None:
        self._files = files  # the SDK's
        self._failed = failed
        self._folder = ""
        self._number = 0
        self._moving: set[asyncio.Task[Any]] = set()

    def set_folder(self, folder: str) -> None:
        """Set the relay's directory, or none; raises ValueError on an invalid one."""
        if folder and not (folder.startswith("/") and folder.isprintable() and len(folder) < _LONGEST_PATH):
            raise ValueError("the relay's folder is none")
        self._folder = folder

    @property
    def usable(self) -> bool:
        """Return whether there is a directory."""
        return bool(self._folder)

    def close(self) -> None:
        """Cancel every transfer."""
        self._folder = ""
        for task in self._moving:
            task.cancel()

    def put(self, data: bytes) -> asyncio.Task[int]:
        """Transfer input into a file of the relay's; the task returns its number."""
        self._number += 1
        return self._start(self._put(self._number, f"{self._folder}/in-{self._number}", data))

    def fetch(self, payload: bytes) -> tuple[int, int, asyncio.Task[bytes]]:
        """Return the kind of output in a file, the file's number, and a task that returns the output."""
        kind, number, size, checksum = frames.FILE.unpack(payload)
        if kind not in {frames.OUT, frames.ERR} or size > frames.LARGEST or not self._folder:
            raise ValueError("a file that stands for nothing")
        return kind, number, self._start(self._fetch(f"{self._folder}/out-{number}", size, checksum))

    async def _put(self, number: int, path: str, data: bytes) -> int:
        await retry_transfer(lambda: self._files.upload_file(data, path, _MOVE_S))
        return number

    async def _fetch(self, path: str, size: int, checksum: int) -> bytes:
        data: bytes = await retry_transfer(lambda: self._files.download_file(path, _MOVE_S))
        if len(data) != size or zlib.crc32(data) != checksum:
            raise ValueError("a file came damaged")
        return data

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._moving.add(task)

        def finish(task: asyncio.Task[T]) -> None:
            self._moving.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failed(f"something large did not get through: {error}")

        task.add_done_callback(finish)
        return task


async def retry_transfer(move: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Transfer a file, with retries if the vendor fails."""
    from daytona import DaytonaError

    for _ in range(_TRIES - 1):
        try:
            return await move()
        except DaytonaError:
            await asyncio.sleep(_PAUSE_S)
    return await move()
