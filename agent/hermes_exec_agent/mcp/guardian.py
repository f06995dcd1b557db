"""A process that ends the servers' processes if this program is killed, and cannot end them itself.

It waits for the end of a pipe that this program alone holds open, and then ends the process groups of the servers that
it was given. The programs of one event loop share one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio

from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_SCRIPT = (
    'groups=" "; while read -r verb group; do case "$verb" in watch) groups="$groups$group ";; '
    'leave) groups="${groups%% $group *} ${groups#* $group }";; esac; done; '
    'for group in $groups; do kill -s TERM -- "-$group"; done; sleep 1; '
    'for group in $groups; do kill -s KILL -- "-$group"; done'
)
"""It gets the numbers of the groups as lines, and ends these groups at the end of its input."""


class Guardian:
    """The process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def watch(self, group: int) -> None:
        """Give it a process group that it ends."""
        self._write(f"watch {group}\n")

    def leave(self, group: int) -> None:
        """Take a process group from it, which has ended."""
        self._write(f"leave {group}\n")

    def _write(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(line.encode())

    async def dismiss(self) -> None:
        """End the guardian alone; the groups run on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class _SharedGuardian:
    """A guardian that is starting or started, with the number of those that wait for it or use it."""

    def __init__(self) -> None:
        self.starting = asyncio.create_task(create_or_rollback(_start(), Guardian.dismiss))
        self.users = 0

    async def end(self) -> None:
        """Dismiss the guardian."""
        with contextlib.suppress(PlaceUnavailable):
            await (await self.starting).dismiss()


_guardians: WeakKeyDictionary[asyncio.AbstractEventLoop, _SharedGuardian] = WeakKeyDictionary()


@asynccontextmanager
async def open_guardian() -> AsyncGenerator[Guardian]:
    """Yield the guardian of this event loop, which is started with its first user and dismissed with the last one.

    Raises:
        PlaceUnavailable: it cannot be started.
    """
    loop = asyncio.get_running_loop()
    shared = _guardians.get(loop)
    if shared is None:
        shared = _guardians[loop] = _SharedGuardian()
    shared.users += 1
    try:
        yield await asyncio.shield(shared.starting)
    finally:
        shared.users -= 1
        if not shared.users:
            del _guardians[loop]  # the next user starts another one
            with anyio.CancelScope(shield=True):
                await shield_to_completion(shared.end())


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
