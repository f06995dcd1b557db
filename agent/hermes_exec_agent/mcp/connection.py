"""A connection to one server, which is opened in the background, and opened again whenever it was lost.

States: *connecting*, *ready*, *waiting* (until the next attempt) and *closed*. A call while it waits begins the next
attempt at once. The time between attempts doubles up to a minute, and starts again after a connection that lasted.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from hermes_exec._async import cancel_and_wait
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.mcp.errors import AnswerLost, ServerStuck, ToolDisabled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.client_session import ClientSession, ToolAnswer
    from hermes_exec_agent.mcp.definitions import ToolDefinition
    from hermes_exec_agent.tools.tool import Context

T = TypeVar("T")
State = Literal["connecting", "ready", "waiting", "closed"]
FIRST_S = 0.25
LONGEST_S = 60.0
_LASTED_S = 10.0
"""Seconds after which a connection counts as one that works."""
_PATIENCE_S = 45.0
"""Seconds that a call waits for a connection."""
_SETTLE_S = 0.5
RELIST_S = 30.0
"""Seconds after which a server that announces no changes is asked for its tools again, before a call."""
_REST_S = 0.5
"""Seconds between two lists of a server that announces changes at once."""
_MOST_NOTICES = 100
"""Notices of changes while its tools are listed once."""
_log = logging.getLogger("hermes_exec.agent")


class Listener(Protocol):
    """Learns the tools of a server, and decides which of them may be called."""

    async def compare(self, connection: Connection, listed: Sequence[ToolDefinition], /) -> None:
        """Take the tools that the server lists now; called after each connection, and after each change."""

    def find_refusal(self, tool: str, /) -> str:
        """Return why a tool may not be called now; empty if it may."""
        ...


class Connection:
    """Keeps a connection to one server. It belongs to the event loop of `start`."""

    def __init__(
        self,
        name: str,
        settings: McpSettings,
        listener: Listener,
        *,
        known_version: str = "",
        context: Context | None = None,
        relist_s: float = RELIST_S,
    ) -> None:
        """Keep the settings of a server.

        Args:
            name: of the server.
            settings: of the server.
            listener: learns its tools.
            known_version: of the protocol that the server spoke last; empty if that is not known.
            context: of the conversation, whose model and person answer questions of the server; None: all are refused.
            relist_s: seconds after which the tools are listed again, if the server announces no changes.
        """
        self.name = name
        self.settings = settings
        self.state: State = "connecting"
        self.reason = ""
        """Why the last attempt failed, or the last connection ended."""
        self.version = known_version
        """Of the protocol that the server spoke last."""
        self.program = ""
        """The name that the server gives itself."""
        self.features: tuple[str, ...] = ()
        """What the server has besides tools: resources, prompts."""
        self.attempts = 0
        self.keys: tuple[Secret, ...] = ()
        self._listener = listener
        self._context = context
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Set at each change of the state, and then replaced."""
        self._news = asyncio.Event()
        """Set when the connection has ended, or the tools may have changed."""
        self._has_ended = False
        self._why = ""
        """Why this program ended the connection."""
        self._wake = asyncio.Event()
        self.relist_s = relist_s
        self._listed_at = 0.0
        self._notices = 0
        """Reasons until now to list the tools again."""
        self._compared = 0
        """Those of them before the list that was compared last."""

    def start(self) -> None:
        """Begin to connect; return at once."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected())

    async def close(self) -> None:
        """End the connection, and the server if it is a program of this machine."""
        if self._task is not None:
            await cancel_and_wait([self._task])
        self._set_state("closed")

    async def wait(self, limit_s: float, *, attempts: int = 0) -> bool:
        """Wait until the connection is ready, and return whether it is.

        ``attempts``: also return after so many of them failed; 0 waits for the whole time.
        """
        give_up = asyncio.get_running_loop().time() + limit_s
        while self._session is None:
            left = give_up - asyncio.get_running_loop().time()
            if left <= 0 or self.state == "closed" or (attempts and self.attempts >= attempts):
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue
        return True

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Call a tool; the call is sent once.

        Raises:
            PlaceUnavailable: there is no connection; nothing ran.
            ToolDisabled: the tool is not as it was accepted; nothing ran.
            OutcomeUnknown: the answer was lost.
            HermesError: the server refused the call.
        """
        session = await self._require_session()
        try:
            return await self._send(session, tool, arguments)
        except PlaceUnavailable:  # nothing ran
            self._drop(session)
        return await self._send(await self._require_session(), tool, arguments)

    async def use(self, read: Callable[[ClientSession], Awaitable[T]]) -> T:
        """Return what ``read`` reads from the server, with no effect there.

        Raises:
            PlaceUnavailable: there is no connection.
            HermesError: the server refused, or its answer was lost.
        """
        return await read(await self._require_session())

    async def _send(self, session: ClientSession, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        self.check_tool(tool)
        try:
            return await session.call(tool, arguments)
        except ServerStuck:
            self._drop(session)
            raise
        except AnswerLost:
            if self.settings.url is None:  # one over HTTP may have lost this answer alone
                self._drop(session)
            raise

    def check_tool(self, tool: str) -> None:
        """Check that a tool is as it was accepted, as far as that is known.

        Raises:
            ToolDisabled: it is not.
        """
        if why := self._listener.find_refusal(tool):
            raise ToolDisabled(why)

    async def settle(self) -> None:
        """Wait a moment until a broken connection is noticed, so that the next call uses a new one."""
        if self._session is not None:
            try:
                await asyncio.wait_for(self._changed.wait(), _SETTLE_S)
            except TimeoutError:
                return

    def _drop(self, session: ClientSession) -> None:
        """End the connection of ``session``, unless there is another one already."""
        if self._session is session:
            self._session = None
            self._end()

    async def _require_session(self) -> ClientSession:
        """Return the connection once its tools are compared, with all changes that were announced until now.

        Raises:
            PlaceUnavailable: this takes too long.
        """
        self._wake.set()
        loop = asyncio.get_running_loop()
        session = self._session
        if session is not None and self._is_list_old(session):
            self._notice_change()
        give_up = loop.time() + (_PATIENCE_S if session is None else self.settings.timeout_s)
        before, notices = self.attempts, self._notices
        while self._session is None or self._compared < notices:
            left = give_up - loop.time()
            if left <= 0 or self.state == "closed" or self.attempts > before + 1:
                remedy = f"hermes-exec mcp test {self.name}"
                why = f"is not connected: {self.reason}" if self._session is None else "does not list its tools in time"
                raise PlaceUnavailable(f"the MCP server {self.name} {why}", remedy=remedy)
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue
        return self._session

    def _is_list_old(self, session: ClientSession) -> bool:
        """Whether the tools may have changed unnoticed. A notice over HTTP needs a stream that a server may refuse."""
        if self.settings.url is None and session.announces_changes:
            return False
        return time.monotonic() - self._listed_at > self.relist_s

    def _notice_change(self) -> None:
        """Have the tools listed again; calls wait until they are compared."""
        self._notices += 1
        if self._notices - self._compared > _MOST_NOTICES:
            self._end("it announces changes of its tools without an end")
        self._news.set()

    async def _keep_connected(self) -> None:
        delay_s = FIRST_S
        while True:
            self._set_state("connecting")
            began = time.monotonic()
            try:
                await self._connect()
                self.reason = self.reason or "the connection ended"
            except HermesError as error:
                self.reason = Redactor(self.keys).redact(error.what)
            except Exception as error:  # noqa: BLE001  a bug must not end the attempts
                _log.exception("the connection to the MCP server %s failed", self.name)
                self.reason = f"a mistake of this program: {type(error).__name__}"
            finally:
                self._session = None
            self.attempts += 1
            if time.monotonic() - began > _LASTED_S:
                delay_s = FIRST_S
            self._set_state("waiting")
            await self._pause(delay_s)
            delay_s = min(2 * delay_s, LONGEST_S)

    async def _pause(self, delay_s: float) -> None:
        """Wait before the next attempt; a call ends the wait, but not the shortest one."""
        self._wake.clear()
        await asyncio.sleep(min(delay_s, FIRST_S))
        if delay_s > FIRST_S:
            try:
                await asyncio.wait_for(self._wake.wait(), delay_s - FIRST_S)
            except TimeoutError:
                return

    async def _connect(self) -> None:
        """Connect, and return when the connection has ended.

        Raises:
            HermesError: there is no connection.
        """
        module: Any = await asyncio.to_thread(importlib.import_module, "hermes_exec_agent.mcp.client_session")
        keys = await asyncio.to_thread(resolve_secrets, self.settings.sources, os.environ)
        self.keys = tuple(keys.values())
        self._has_ended, self._why = False, ""
        self._news.clear()
        known, self.version = self.version, ""
        async with module.open_session(
            self.name,
            self.settings,
            keys,
            known_version=known,
            on_change=self._notice_change,
            on_end=self._end,
            context=self._context,
        ) as session:
            self.version, self.program, self.features = session.version, session.program, session.features
            while not self._has_ended:
                self._news.clear()
                notices, self._listed_at = self._notices, time.monotonic()
                await self._listener.compare(self, await session.list_tools())
                if self._has_ended:
                    break
                self._compared = notices
                if self._session is None:
                    self.reason = ""
                self._session = session
                self._set_state("ready")
                await self._news.wait()
                await asyncio.sleep(min(_REST_S, self._listed_at + _REST_S - time.monotonic()))
            ended = "its program ended" if self.settings.url is None else "the server ended the session"
            self.reason = self._why or ended

    def _end(self, why: str = "") -> None:
        self._has_ended = True
        self._why = self._why or why
        self._news.set()

    def _set_state(self, state: State) -> None:
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
