"""A process that ends a server's processes if this program is killed, and cannot end them itself.

It waits for the end of a pipe that this program alone holds open, and then ends the process group of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_SCRIPT = 'read -r group || exit; read -r end; kill -s TERM -- "-$group"; sleep 1; kill -s KILL -- "-$group"'
"""It gets the number of the group as a line, and ends the group at the end of its input."""


class Guardian:
    """The process, before and after it knows the group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def watch(self, group: int) -> None:
        """Give it the process group that it ends."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{group}\n".encode())

    async def dismiss(self) -> None:
        """End it alone; the group is left as it is."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def open_guardian() -> AsyncGenerator[Guardian]:
    """Start a guardian, and dismiss it at the end of the block.

    Raises:
        PlaceUnavailable: it cannot be started.
    """
    guardian = await create_or_rollback(_start(), Guardian.dismiss)
    try:
        yield guardian
    finally:
        with anyio.CancelScope(shield=True):
            await shield_to_completion(guardian.dismiss())


async def _start() -> Guardian:
    null = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", _SCRIPT, stdin=asyncio.subprocess.PIPE, stdout=null, stderr=null,
            env={"PATH": os.defpath}, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PlaceUnavailable(f"/bin/sh cannot be started: {error.strerror}") from None
    return Guardian(process)
