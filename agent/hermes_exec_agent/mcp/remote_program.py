"""A server as a program in a target: a sandbox of this machine, a container or another host, through a terminal.

It gets the variables that its configuration names, and those of the target without which hardly a program starts. The
terminal is its own, and ends with the connection, and so does the program, also if this program is killed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_exec.observe.redact import Redactor
from hermes_exec.terminal.opening import open_plan, plan_open
from hermes_exec_agent.agent_shell import mark_plan
from hermes_exec_agent.mcp.message_exchange import MessageExchange
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec.terminal.stream import Stream
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec_agent.mcp.message_exchange import Streams

INHERITED = ("HOME", "LANG", "PATH")
"""Variables of the target that every program gets."""
_TAIL = 1 << 16
_SHOWN = 300
_LONGEST_S = 365 * 86400.0
"""The time limit of the program, as that of the target's commands is not meant for it."""
_LEASE_S = 30.0
"""Seconds that the program runs on after this program was killed."""
_FAR_LEASE_S = 180.0
_SCRIPT = (
    'keep=" $1 "; shift; for name in $(env | sed -n "s/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p"); do case "$keep" in '
    '*" $name "*) ;; *) unset "$name" 2>/dev/null || :;; esac; done; exec "$@"'
)
"""It removes all variables but those of its first argument, and becomes the program; no value is in an argument."""


class RemoteProgram:
    """A program that is started in a target for one connection."""

    def __init__(
        self,
        target: str,
        argv: Sequence[str],
        variables: Mapping[str, Secret],
        on_end: Callable[[], None],
        read_limit_s: float,
    ) -> None:
        """Keep the settings of a program.

        Args:
            target: the target that it runs in.
            argv: the program and its arguments.
            variables: its variables, in addition to `INHERITED`.
            on_end: called once no further message can come.
            read_limit_s: seconds in which it has to read a message.
        """
        self._target = target
        kept = " ".join((*INHERITED, *variables))
        self._argv = ("/bin/sh", "-c", _SCRIPT, "sh", kept, *argv)
        self._variables = {name: value.reveal() for name, value in variables.items()}
        self._redactor = Redactor(variables.values())
        self._exchange = MessageExchange(on_end, read_limit_s)
        self._tail = b""
        self._how = ""

    @property
    def reason(self) -> str:
        """Why it ended, with the last line that it wrote to standard error, without the values of its variables."""
        tail = self._redactor.redact_bytes(self._tail).decode("utf-8", "replace")
        last = flatten(tail.rstrip().rpartition("\n")[2], _SHOWN)
        how = self._redactor.redact(self._exchange.reason) or self._how or "it ended"
        return f"{how}: {last}" if last else how

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[Streams]:
        """Open the target, start the program, and yield the streams of its messages.

        Raises:
            HermesError: the target cannot be opened.
        """
        async with await self._open() as terminal:
            stream = terminal.stream(self._argv, env=self._variables, interactive=True, timeout=_LONGEST_S)
            async with stream, self._exchange.run(lambda: self._read(stream), stream.write, stream.close) as streams:
                yield streams

    async def _open(self) -> Terminal:
        plan = await asyncio.to_thread(plan_open, self._target)
        mark_plan(plan, "mcp")
        if not plan.lease_given:
            plan.lease_s = _LEASE_S if plan.backend.traits.shares_host else _FAR_LEASE_S
        return await open_plan(plan, plan.create_audit(wanted=None))

    async def _read(self, stream: Stream) -> bytes:
        """Return output; nothing once the program has ended."""
        async for event in stream:
            if event.result is not None:
                self._how = f"it ended: {event.result.reason}"
                break
            if event.kind == "stdout":
                return event.data
            self._tail = (self._tail + event.data)[-_TAIL:]
        return b""
