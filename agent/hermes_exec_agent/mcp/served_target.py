"""The target behind a server: its terminal, opened in the background, and the named shells in it."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import Closed, HermesError, PlaceGone, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

MOST_SESSIONS = 32


class ServedTarget:
    """One target. It is opened by the first call of `start` or `terminal`, and again after it ended for good."""

    def __init__(self, name: str, open_terminal: Callable[[], Awaitable[Terminal]]) -> None:
        self.name = name
        """The target, as the person wrote it."""
        self._open = open_terminal
        self._opening: asyncio.Task[Terminal] | None = None
        self._sessions: dict[str, Session] = {}

    def start(self) -> None:
        """Begin to open the target; return at once."""
        if self._opening is None or (self._opening.done() and self._has_failed(self._opening)):
            self._opening = asyncio.ensure_future(self._call_open())
            self._opening.add_done_callback(self._has_failed)  # reads the error, which the callers of `terminal` get

    async def terminal(self) -> Terminal:
        """Return the terminal, once the target is open; a target that could not be opened is tried again.

        Raises:
            HermesError: it cannot be opened.
        """
        self.start()
        opening = self._opening
        if opening is None:  # it was closed meanwhile
            raise Closed("the server ends")
        return await asyncio.shield(opening)

    async def session(self, name: str) -> Session:
        """Return the shell of that name, which the first call opens.

        Raises:
            UsageError: too many shells are open.
            HermesError: the target cannot be opened, or has no shells that stay open.
        """
        terminal = await self.terminal()
        if name not in self._sessions:
            if len(self._sessions) >= MOST_SESSIONS:
                raise UsageError(f"{MOST_SESSIONS} sessions are open", remedy="session_close")
            self._sessions[name] = await terminal.session(name)
        return self._sessions[name]

    async def close_session(self, name: str) -> bool:
        """Close the shell of that name; return whether there was one."""
        session = self._sessions.pop(name, None)
        if session is not None:
            await session.close()
        return session is not None

    async def jobs(self) -> list[JobStatus]:
        """Return the jobs of the target, also those that earlier servers and commands started, the oldest first."""
        from hermes_exec.cli.find_jobs import guests_with_jobs

        found = {status.id: status for status in await (await self.terminal()).jobs()}
        async with guests_with_jobs(self.name) as guests:
            found = {status.id: status for guest in guests for status in guest.jobs} | found
        return sorted(found.values(), key=lambda status: status.started)

    @asynccontextmanager
    async def job(self, id: str) -> AsyncGenerator[Job]:
        """Yield the job with this id.

        Raises:
            UsageError: the target has no such job.
        """
        from hermes_exec.cli.find_jobs import find_job

        terminal = await self.terminal()
        try:
            job = await terminal.job(id)
        except UsageError:  # an earlier server or command started it
            async with find_job(id, self.name) as other:
                yield other
        else:
            yield job

    async def drop_if_gone(self, error: HermesError) -> None:
        """Close the terminal if ``error`` means that its target has ended, so that the next call opens it again."""
        if isinstance(error, PlaceGone | Closed):
            await self.close()

    async def close(self) -> None:
        """End the shells and all commands but jobs, and close the terminal."""
        opening, self._opening, self._sessions = self._opening, None, {}
        if opening is not None:
            await shield_to_completion(_close(opening))

    async def _call_open(self) -> Terminal:
        return await self._open()

    @staticmethod
    def _has_failed(opening: asyncio.Task[Terminal]) -> bool:
        return opening.cancelled() or opening.exception() is not None


async def _close(opening: asyncio.Task[Terminal]) -> None:
    if not opening.done():
        opening.cancel()
    with contextlib.suppress(HermesError, asyncio.CancelledError):
        terminal = await opening
        await terminal.close()
