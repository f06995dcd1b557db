"""Tools of other servers, for a model."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.mcp.answers import redact, to_envelope
from hermes_exec_agent.mcp.errors import AnswerLost, ToolDisabled
from hermes_exec_agent.tools.base import failure_envelope, to_failure
from hermes_exec_agent.tools.provenance import find_stranger
from hermes_exec_agent.tools.tool import check_approval

if TYPE_CHECKING:
    from hermes_exec_agent.mcp.client_session import ToolAnswer
    from hermes_exec_agent.mcp.connection import Connection
    from hermes_exec_agent.mcp.definitions import ToolDefinition
    from hermes_exec_agent.models.protocol import ToolSpec
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.tool import Context


class McpTool:
    """A tool of another server. Each call is approved like that of a tool of ours that acts, and is sent once."""

    def __init__(self, connection: Connection, definition: ToolDefinition, spec: ToolSpec) -> None:
        self.spec = spec
        self.connection = connection
        self._definition = definition

    @property
    def place(self) -> str:
        """The server, for envelopes."""
        return f"mcp:{self.connection.name}"

    @property
    def changes(self) -> bool:
        """Whether a call can change anything; the server's word that it cannot counts if the person trusts it."""
        return not (self.connection.settings.trust_hints and self._definition.only_reads)

    @property
    def _is_repeatable(self) -> bool:
        definition = self._definition
        return self.connection.settings.trust_hints and (definition.only_reads or definition.is_idempotent)

    def check(self) -> None:
        """Check that the tool is as it was accepted, as far as that is known.

        Raises:
            ToolDisabled: it is not.
        """
        self.connection.check_tool(self._definition.name)

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Call the tool if the person approves it."""
        try:
            self.check()
        except ToolDisabled as error:
            return failure_envelope(self.place, to_failure(error))
        if self.changes or self.spec.name in context.approvals.tools:
            summary = f"call it with {json.dumps(arguments, ensure_ascii=False)}"
            stays = context.provenance.strangers.keys() <= {find_stranger(self.spec.name)}  # it wrote all of that text
            if no := await check_approval(self.spec.name, summary, context, stays=stays):
                return failure_envelope(self.place, no)
        began = time.monotonic()
        try:
            envelope = await to_envelope(await self._send(arguments), self.place, context)
        except HermesError as error:
            envelope = failure_envelope(self.place, to_failure(error))
        return redact(replace(envelope, duration_s=time.monotonic() - began), Redactor(self.connection.keys))

    async def _send(self, arguments: dict[str, Any]) -> ToolAnswer:
        """Send the call. If its answer was lost, it is sent once more only if a second call has no further effect."""
        try:
            return await self.connection.call(self._definition.name, arguments)
        except AnswerLost:
            if not self._is_repeatable:
                raise
        await self.connection.settle()
        return await self.connection.call(self._definition.name, arguments)
