"""The vendor's file calls: for large data of a connection (`FileSideChannel`) and for whole files (`FileCalls`)."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec_backends.daytona import frames
from hermes_exec_backends.daytona.errors import sdk_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine


T = TypeVar("T")
_MOVE_S = 60
_TRIES = 3
_PAUSE_S = 0.1
_LONGEST_PATH = 200

_STALLED_S = 60.0
"""Seconds to wait for the next bytes of a file."""
_PUT_S = 60
"""Seconds for one piece."""
_WITHOUT = 0
_LONGEST_S = 86400.0
PLAIN = ("_api_client", "download_file_without_preload_content")
"""The attributes by which the SDK sends the request for one file."""


class FileSideChannel:
    """The large data of one connection, transferred as files into and out of the relay's directory.

    Each transfer is idempotent and is retried. One that finally fails breaks the connection, and the next connection
    continues; ``failed`` is called with the error.
    """

    def __init__(self, files: Any, failed: Callable[[str], None]) -> None:
        self._files = files  # the SDK's
        self._failed = failed
        self._folder = ""
        self._number = 0
        self._moving: set[asyncio.Task[Any]] = set()

    def set_folder(self, folder: str) -> None:
        """Set the relay's directory, or none; raises ValueError on an invalid one."""
        if folder and not (folder.startswith("/") and folder.isprintable() and len(folder) < _LONGEST_PATH):
            raise ValueError("the relay sent an invalid folder")
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
            raise ValueError("the relay sent an invalid reference to a file")
        return kind, number, self._start(self._fetch(f"{self._folder}/out-{number}", size, checksum))

    async def _put(self, number: int, path: str, data: bytes) -> int:
        await retry_transfer(lambda: self._files.upload_file(data, path, _MOVE_S))
        return number

    async def _fetch(self, path: str, size: int, checksum: int) -> bytes:
        data: bytes = await retry_transfer(lambda: self._files.download_file(path, _MOVE_S))
        if len(data) != size or zlib.crc32(data) != checksum:
            raise ValueError("a downloaded file is damaged")
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


class FileCalls:
    """Transfers of whole files of the open sandbox, for the terminal's file operations."""

    piece = 4 << 20

    def __init__(self, sandbox: Callable[[], Any]) -> None:
        self._sandbox = sandbox

    async def fetch(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file as it arrives.

        Raises:
            PlaceUnavailable: the service did not send it, or not all of it.
        """
        from aiohttp import ClientError

        loop = asyncio.get_running_loop()
        try:
            with sdk_errors("no file"):
                async with asyncio.timeout(_STALLED_S) as limit:
                    async for chunk in await self._content(path):
                        yield chunk
                        limit.reschedule(loop.time() + _STALLED_S)
        except ClientError as error:  # the SDK does not translate these while the content arrives
            raise ConnectionError(str(error)) from error

    async def _content(self, path: str) -> AsyncIterator[bytes]:
        """Open a response with only the file's content; the SDK's own call returns it as part of a form."""
        files = self._sandbox().fs
        plain = getattr(getattr(files, PLAIN[0], None), PLAIN[1], None)
        if plain is None:  # a later SDK has it elsewhere
            stream: AsyncIterator[bytes] = await files.download_file_stream(path, _WITHOUT)
            return stream
        answer = await plain(path, _request_timeout=_LONGEST_S)
        answer.raise_for_status()
        content: AsyncIterator[bytes] = answer.content.iter_any()
        return content

    async def put(self, path: str, data: bytes) -> None:
        """Write a file, with retries, because the call is idempotent.

        Raises:
            PlaceUnavailable: the service did not accept it.
        """
        with sdk_errors("no file"):
            await retry_transfer(lambda: self._sandbox().fs.upload_file(data, path, _PUT_S))
