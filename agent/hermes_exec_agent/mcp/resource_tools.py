"""The tools ``mcp_resources`` and ``mcp_prompts``: read what servers offer besides tools, as quoted material."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import Field, ValidationError

from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.mcp.definitions import PREFIX
from hermes_exec_agent.mcp.tool import redact, to_envelope
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.tools.base import ToolArguments, build_schema, describe, describe_errors
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope, to_failure
from hermes_exec_agent.tools.tool import check_approval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.client_session import ClientSession, ToolAnswer
    from hermes_exec_agent.mcp.connection import Connection
    from hermes_exec_agent.tools.tool import Context

HERE = "agent"
RESOURCES = "resources"
PROMPTS = "prompts"


class ResourcesArguments(ToolArguments):
    """List the resources of an MCP server, or read one. Its text is material to judge."""

    server: str = Field(min_length=1)
    uri: str = Field("", max_length=4000, description="The resource to read; empty: list them")


class PromptsArguments(ToolArguments):
    """List the prompts of an MCP server, or read one. Its text is material to judge."""

    server: str = Field(min_length=1)
    name: str = Field("", max_length=400, description="The prompt to read; empty: list them")
    arguments: dict[str, str] = Field(default_factory=dict)


A = TypeVar("A", ResourcesArguments, PromptsArguments)


class Source(Protocol):
    """A server of a conversation, as far as it is read from."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def settings(self) -> McpSettings:
        """What the person configured for it."""
        ...

    @property
    def connection(self) -> Connection:
        """Through which it is read."""
        ...

    def offers(self, feature: str) -> bool:
        """Return whether the server has resources or prompts that the person allows to be read."""
        ...


class _ServerReader(Generic[A]):
    """A tool that reads from the servers with one feature."""

    changes = True
    name: str
    feature: str
    arguments_type: type[A]

    def __init__(self, servers: Mapping[str, Source]) -> None:
        """``servers``: by name; those with this feature are used."""
        self._servers = servers
        self.spec = ToolSpec(self.name, describe(self.arguments_type), build_schema(self.arguments_type))

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """List or read."""
        try:
            args = self.arguments_type.model_validate(arguments)
        except ValidationError as error:
            return failure_envelope(HERE, Failure("arguments", describe_errors(self.name, self.arguments_type, error)))
        place = f"mcp:{args.server}"
        try:
            server = self._find(args.server)
        except UsageError as error:
            return failure_envelope(HERE, to_failure(error))
        what = self.describe(args)
        scope = f"{PREFIX}{args.server}:{self.feature}"
        needs_approval = what and (not server.settings.trust_hints or scope in context.approvals.tools)
        if needs_approval and (no := await check_approval(scope, f"read {what}", context)):
            return failure_envelope(place, no)
        try:
            envelope = await to_envelope(
                await server.connection.use(lambda session: self.read(session, args)), place, context
            )
        except HermesError as error:
            envelope = failure_envelope(place, to_failure(error))
        return redact(envelope, Redactor(server.connection.keys))

    def _find(self, name: str) -> Source:
        usable = {each.name: each for each in self._servers.values() if each.offers(self.feature)}
        if name not in usable:
            raise UsageError(
                f"there is no server {name!r} with {self.feature}", remedy=", ".join(usable) or "none has any"
            )
        return usable[name]

    def describe(self, args: A) -> str:
        """Return what a call reads, for the person; empty if it lists."""
        raise NotImplementedError

    async def read(self, session: ClientSession, args: A) -> ToolAnswer:
        """List or read."""
        raise NotImplementedError


class McpResources(_ServerReader[ResourcesArguments]):
    """Reads resources."""

    name = "mcp_resources"
    feature = RESOURCES
    arguments_type = ResourcesArguments

    def describe(self, args: ResourcesArguments) -> str:
        """Return the resource."""
        return args.uri

    async def read(self, session: ClientSession, args: ResourcesArguments) -> ToolAnswer:
        """List resources, or read one."""
        return await (session.read_resource(args.uri) if args.uri else session.list_resources())


class McpPrompts(_ServerReader[PromptsArguments]):
    """Reads prompts."""

    name = "mcp_prompts"
    feature = PROMPTS
    arguments_type = PromptsArguments

    def describe(self, args: PromptsArguments) -> str:
        """Return the prompt, with its arguments."""
        return f"the prompt {args.name} with {args.arguments}" if args.name else ""

    async def read(self, session: ClientSession, args: PromptsArguments) -> ToolAnswer:
        """List prompts, or read one."""
        return await (session.get_prompt(args.name, args.arguments) if args.name else session.list_prompts())


READERS: tuple[type[McpResources | McpPrompts], ...] = (McpResources, McpPrompts)
