"""Transfer of whole files by the vendor's file calls, for the terminal's file operations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_exec_backends.daytona.bulk_transfer import retry_transfer
from hermes_exec_backends.daytona.errors import sdk_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

_STALLED_S = 60.0
"""Seconds to wait for the next bytes of a file."""
_PUT_S = 60
"""Seconds for one piece."""
_WITHOUT = 0
_LONGEST_S = 86400.0
PLAIN = ("_api_client", "download_file_without_preload_content")
"""The attributes by which the SDK sends the request for one file."""


class FileCalls:
    """The file calls of the open sandbox."""

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
