"""One connection to a server, in the words of this project: the one module that calls the SDK's client."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client._input_required import run_input_required_driver
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    Implementation,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    InputResponses,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceUnavailable
from hermes_exec_agent.mcp.definitions import ToolDefinition
from hermes_exec_agent.mcp.errors import (
    AnswerLost,
    CallRefused,
    FurtherRights,
    ServerStuck,
    flatten_errors,
    login_command,
)
from hermes_exec_agent.mcp.http_transport import REFUSALS, RequestRecord, connect_http
from hermes_exec_agent.mcp.login import find_auth
from hermes_exec_agent.mcp.program import Program
from hermes_exec_agent.mcp.server_questions import ServerQuestions
from hermes_exec_agent.quoting import flatten, quote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.http_transport import SentRequest
    from hermes_exec_agent.mcp.remote_program import RemoteProgram
    from hermes_exec_agent.tools.tool import Context

T = TypeVar("T")

CONNECT_S = 40.0
"""Seconds until a server is connected. The SDK gives up its first question, which an older one may ignore, after 10."""
_LIST_S = 30.0
"""Seconds for all pages of a list of tools."""
_MORE_S = 1.0
"""Seconds beyond the time limit of a call, after which a server that does not read it is given up."""
_MOST_PAGES = 50
_MOST_TOOLS = 500
_LARGEST_LIST = 16 << 20
_SHOWN = 300
_PERSON_S = 3600.0
"""Seconds for a call of a server that may ask the person."""
_UNAUTHORIZED = 401
_MOST_ROUNDS = 10
"""Rounds of questions of a server during one call."""
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_CALL_KEY = "hermes-exec/call"
"""The key of a call's number in its metadata, by which the transport knows it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a tool's answer: text, or data of a type."""

    text: str = ""
    data: bytes = b""
    type: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a tool."""

    parts: tuple[Part, ...]
    structured: Any = None
    is_error: bool = False


class ClientSession:
    """An open connection."""

    def __init__(
        self,
        name: str,
        client: Client,
        record: RequestRecord,
        timeout_s: float,
        questions: ServerQuestions | None = None,
    ) -> None:
        self._name = name
        self._client = client
        self._record = record
        self._timeout_s = timeout_s
        self._questions = questions
        self._abandoned: set[asyncio.Task[CallToolResult]] = set()

    @property
    def version(self) -> str:
        """The version of the protocol that the server speaks."""
        return self._client.protocol_version

    @property
    def announces_changes(self) -> bool:
        """Whether the server said that it sends a notice when its tools change; a later protocol has none."""
        tools = self._client.server_capabilities.tools
        return self.version in HANDSHAKE_PROTOCOL_VERSIONS and tools is not None and bool(tools.list_changed)

    @property
    def features(self) -> tuple[str, ...]:
        """What the server has besides tools: resources, prompts."""
        capabilities = self._client.server_capabilities
        found = {"resources": capabilities.resources, "prompts": capabilities.prompts}
        return tuple(name for name, each in found.items() if each is not None)

    @property
    def program(self) -> str:
        """The name and version that the server gives itself, which is untrusted text."""
        info = self._client.server_info
        return f"{info.name} {info.version}".strip() if info is not None else ""

    async def list_tools(self) -> list[ToolDefinition]:
        """Return all tools of the server.

        Raises:
            HermesError: it does not answer, or not as the protocol says.
        """
        found: list[ToolDefinition] = []
        size = 0
        cursor: str | None = None
        try:
            async with asyncio.timeout(_LIST_S):
                for _ in range(_MOST_PAGES):
                    page = await self._client.list_tools(cursor=cursor)
                    found += map(_to_definition, page.tools)
                    size += len(page.model_dump_json())
                    if size > _LARGEST_LIST:
                        raise PlaceUnavailable(f"the list of the MCP server {self._name} is over {_LARGEST_LIST} bytes")
                    cursor = page.next_cursor
                    if cursor is None or len(found) > _MOST_TOOLS:
                        break
        except TimeoutError:
            raise PlaceUnavailable(f"the MCP server {self._name} lists no tools within {_LIST_S:g} s") from None
        except (MCPError, ValidationError, ValueError) as error:
            raise PlaceUnavailable(f"the MCP server {self._name} lists no tools: {_describe(error)}") from None
        if len(found) > _MOST_TOOLS:
            raise PlaceUnavailable(f"the MCP server {self._name} lists more than {_MOST_TOOLS} tools")
        return found

    async def list_resources(self) -> ToolAnswer:
        """Return a line for each resource, and for each template of their addresses."""
        client, lines = self._client, list[str]()
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._read(client.list_resources(cursor=cursor), "its resources")
            lines += [
                _describe_item(str(each.uri), each.title or each.name, each.description) for each in page.resources
            ]
            cursor = page.next_cursor
            if cursor is None or len(lines) > _MOST_TOOLS:
                break
        with contextlib.suppress(CallRefused):  # many servers have none
            templates = await self._read(client.list_resource_templates(), "templates of resources")
            lines += [
                _describe_item(each.uri_template, each.title or each.name, each.description)
                for each in templates.resource_templates
            ]
        return ToolAnswer((Part("\n".join(lines[:_MOST_TOOLS]) or "there are none"),))

    async def read_resource(self, uri: str) -> ToolAnswer:
        """Return the content of a resource."""
        found = await self._read(self._client.read_resource(uri), quote(uri, _SHOWN))
        return ToolAnswer(tuple(map(_to_content, found.contents)))

    async def list_prompts(self) -> ToolAnswer:
        """Return a line for each prompt, with its arguments."""
        lines: list[str] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._read(self._client.list_prompts(cursor=cursor), "its prompts")
            for each in page.prompts:
                names = [arg.name if arg.required else f"[{arg.name}]" for arg in each.arguments or ()]
                lines.append(_describe_item(f"{each.name}({', '.join(names)})", each.title or "", each.description))
            cursor = page.next_cursor
            if cursor is None or len(lines) > _MOST_TOOLS:
                break
        return ToolAnswer((Part("\n".join(lines[:_MOST_TOOLS]) or "there are none"),))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> ToolAnswer:
        """Return the text of a prompt, each message after its role."""
        found = await self._read(self._client.get_prompt(name, dict(arguments)), f"the prompt {quote(name, _SHOWN)}")
        parts: list[Part] = []
        for each in found.messages:
            parts += [Part(f"[{each.role}]"), _to_part(each.content)]
        return ToolAnswer(tuple(parts))

    async def _read(self, asking: Awaitable[T], what: str) -> T:
        """Return the answer of a request that changes nothing.

        Raises:
            CallRefused: the server refused it.
            PlaceUnavailable: there is no answer.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                with self._allow_questions():
                    return await asking
        except TimeoutError:
            problem = f"does not answer within {self._timeout_s:g} s"
        except MCPError as error:
            if error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR):
                raise CallRefused(f"the MCP server {self._name} refused to read {what}: {_describe(error)}") from None
            problem = "did not answer"
        except ValidationError:
            problem = "broke the protocol with its answer"
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError):
            problem = "cannot be reached"
        raise PlaceUnavailable(f"the MCP server {self._name} {problem}, when asked for {what}")

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Call a tool once. Its structured answer is not compared with a schema, which is the server's own anyway.

        Raises:
            AnswerLost: the connection ended before the answer.
            ServerStuck: the server did not even read the call in time.
            OutcomeUnknown: the answer did not arrive in time, or is invalid.
            PlaceUnavailable: the call was not sent, or the server has forgotten this connection; nothing ran.
            CallRefused: the server answered with an error.
        """
        number = secrets.token_hex(8)
        meta: Any = {_CALL_KEY: number}
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=meta))
        what = f"{tool} of the MCP server {self._name}"
        with self._record.watch(number) as sent:
            try:
                with self._allow_questions():
                    result = await self._send(request)
            except TimeoutError:
                limit = f"within {self._timeout_s:g} s"
                raise ServerStuck(f"the MCP server {self._name} neither read nor answered {tool} {limit}") from None
            except MCPError as error:
                raise self._translate(error, what, sent) from None
            except ValidationError:
                state = "unknown: the call has run, and its result cannot be read"
                raise OutcomeUnknown(f"the answer of {what} is none of the protocol", state=state) from None
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError):
                raise self._explain_loss(what, sent) from None
        return ToolAnswer(tuple(map(_to_part, result.content)), result.structured_content, result.is_error)

    def _allow_questions(self) -> AbstractContextManager[None]:
        return self._questions.allow() if self._questions is not None else contextlib.nullcontext()

    async def _send(self, request: CallToolRequest) -> CallToolResult:
        """Send a call, and return its result. A message that the server does not read is not waited for.

        Raises:
            TimeoutError: the server does not read.
        """
        sending = asyncio.create_task(self._send_rounds(request))
        try:
            done = await self._wait(sending)
        finally:
            if not sending.done():
                sending.cancel()
                self._abandoned.add(sending)
                sending.add_done_callback(self._forget)
        if not done:
            raise TimeoutError
        return sending.result()

    async def _wait(self, sending: asyncio.Task[CallToolResult]) -> bool:
        """Return whether a call has ended in time; the time of questions to the model and the person does not count."""
        while True:
            answered = self._questions.answered if self._questions is not None else 0
            done, _ = await asyncio.wait([sending], timeout=self._timeout_s + _MORE_S)
            if done or self._questions is None:
                return bool(done)
            if not self._questions.waiting and self._questions.answered == answered:
                return False

    async def _send_rounds(self, request: CallToolRequest) -> CallToolResult:
        """Send a call, and send it again with the answers to each question that the server has instead of a result."""
        session, params = self._client.session, request.params
        limit_s = self._timeout_s if self._questions is None or not self._questions.are_enabled else _PERSON_S

        async def send(answers: InputResponses | None, state: str | None) -> CallToolResult | InputRequiredResult:
            asked = CallToolRequest(
                params=params.model_copy(update={"input_responses": answers, "request_state": state})
            )
            return await session.send_request(asked, _RESULT, request_read_timeout_seconds=limit_s)

        async def answer(key: str, question: InputRequest) -> InputResponse | ErrorData:
            meta = question.params.meta if question.params else None
            context = ClientRequestContext(session=session, request_id=key, meta=meta)
            return await session.dispatch_input_request(context, question)

        first = await session.send_request(request, _RESULT, request_read_timeout_seconds=limit_s)
        if not isinstance(first, InputRequiredResult):
            return first
        return await run_input_required_driver(first, dispatch=answer, retry=send, max_rounds=_MOST_ROUNDS)

    def _forget(self, sending: asyncio.Task[CallToolResult]) -> None:
        self._abandoned.discard(sending)
        if not sending.cancelled():
            sending.exception()

    def _translate(self, error: MCPError, what: str, sent: SentRequest) -> HermesError:
        if error.code == CONNECTION_CLOSED:
            return self._explain_loss(what, sent)
        if error.code == REQUEST_TIMEOUT:
            return OutcomeUnknown(
                f"{what} gave no answer within {self._timeout_s:g} s",
                remedy=f"a longer timeout_s in [mcp.{self._name}]",
                state=AnswerLost.state,
            )
        if error.code == PARSE_ERROR:
            return OutcomeUnknown(f"the answer of {what} is too long, or none of the protocol", state=AnswerLost.state)
        if sent.is_unanswered(error.message):
            return self._explain_status(error, what, sent)
        return CallRefused(f"{what} was refused: {_describe(error)}")

    def _explain_status(self, error: MCPError, what: str, sent: SentRequest) -> HermesError:
        """Return the error for an HTTP status without an answer of the protocol."""
        if sent.status not in REFUSALS:
            how = f"with HTTP status {sent.status} and no message of the protocol"
            return OutcomeUnknown(f"{what} was answered {how}", state=AnswerLost.state)
        if sent.needs_rights:
            return FurtherRights(self._name, what, sent.scope)
        if sent.status == 404 and error.code == INVALID_REQUEST:
            return PlaceUnavailable(f"the MCP server {self._name} has forgotten this connection")
        return CallRefused(f"{what} was refused: HTTP status {sent.status}")

    def _explain_loss(self, what: str, sent: SentRequest) -> HermesError:
        if sent.is_unsent:
            return PlaceUnavailable(f"the MCP server {self._name} cannot be reached")
        return AnswerLost(f"the connection was lost before {what} was answered")


@asynccontextmanager
async def open_session(
    name: str,
    settings: McpSettings,
    keys: Mapping[str, Secret],
    *,
    known_version: str,
    on_change: Callable[[], None],
    on_end: Callable[[], None],
    context: Context | None = None,
) -> AsyncGenerator[ClientSession]:
    """Connect to a server.

    Args:
        name: of the server.
        settings: of the server.
        keys: the values of its variables by name, and of its token as ``token``.
        known_version: of the protocol that it spoke last; empty if that is not known.
        on_change: called when the server says that its tools changed.
        on_end: called when a program has ended.
        context: of the conversation, whose model and person answer questions of the server; None: all are refused.

    Raises:
        PlaceUnavailable: it cannot be started or reached, or does not answer in time.
    """

    async def listen(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    record = RequestRecord()
    program: Program | RemoteProgram | None = None
    transport: AbstractAsyncContextManager[Any]
    if settings.url is not None:
        auth = await asyncio.to_thread(find_auth, name, settings, os.environ)
        transport = connect_http(settings.url, keys.get("token"), record, settings.timeout_s, auth)
    else:
        program = _create_program(settings, keys, on_end)
        transport = program.run()
    questions = ServerQuestions(name, settings, context) if context is not None else None
    client = Client(
        transport,
        mode="legacy" if known_version in HANDSHAKE_PROTOCOL_VERSIONS else "auto",
        client_info=Implementation(name="hermes-exec", version=_version()),
        message_handler=listen,
        read_timeout_seconds=max(CONNECT_S, settings.timeout_s),
        cache=None,
        sampling_callback=questions.sampling if questions is not None else None,
        elicitation_callback=questions.elicitation if questions is not None else None,
    )
    try:
        async with asyncio.timeout(CONNECT_S) as limit, client:
            limit.reschedule(None)
            yield ClientSession(name, client, record, settings.timeout_s, questions)
    except TimeoutError:
        raise PlaceUnavailable(f"the MCP server {name} does not answer within {CONNECT_S:g} s") from None
    except Exception as error:  # noqa: BLE001  a group of errors where a task of the SDK failed
        raise _explain(name, flatten_errors(error), program, record) from None


def _create_program(
    settings: McpSettings, keys: Mapping[str, Secret], on_end: Callable[[], None]
) -> Program | RemoteProgram:
    """Return the program of a server, on this machine or in its target."""
    argv = [settings.command or "", *settings.args]
    variables = {key: keys[key] for key in settings.env}
    if settings.target is None:
        return Program(argv, variables, settings.cwd, on_end, settings.timeout_s)
    from hermes_exec_agent.mcp.remote_program import RemoteProgram

    return RemoteProgram(settings.target, argv, variables, on_end, settings.timeout_s)


def _explain(
    name: str, errors: list[Exception], program: Program | RemoteProgram | None, record: RequestRecord
) -> HermesError:
    """Return the error to show for the errors that ended a connection."""
    for error in errors:
        if isinstance(error, HermesError):
            return error
    if record.refused:
        why = f"HTTP status {record.refused}"
        if record.refused == _UNAUTHORIZED:
            why += f", so that it needs a valid token, or {login_command(name)}"
        elif record.last.needs_rights:
            why += f", so that the login needs further rights: {login_command(name, record.last.scope)}"
    elif program is not None and any(isinstance(each, MCPError) and each.code == CONNECTION_CLOSED for each in errors):
        why = program.reason
    else:
        why = _describe(errors[0])
    return PlaceUnavailable(f"the MCP server {name} cannot be used: {why}")


def _to_definition(tool: Tool) -> ToolDefinition:
    hints = tool.annotations
    return ToolDefinition(
        tool.name,
        tool.description or "",
        tool.input_schema,
        only_reads=bool(hints and hints.read_only_hint),
        is_idempotent=bool(hints and hints.idempotent_hint),
        title=tool.title or (hints.title if hints else "") or "",
    )


def _describe_item(name: str, title: str, description: str | None) -> str:
    about = ": ".join(filter(None, (title if title != name else "", description or "")))
    return flatten(f"{name} - {about}" if about else name, _SHOWN)


def _to_content(content: TextResourceContents | BlobResourceContents) -> Part:
    if isinstance(content, TextResourceContents):
        return Part(content.text)
    return Part(data=_decode(content.blob), type=content.mime_type or "application/octet-stream")


def _to_part(content: object) -> Part:
    match content:
        case TextContent():
            return Part(content.text)
        case ImageContent() | AudioContent():
            return Part(data=_decode(content.data), type=content.mime_type)
        case ResourceLink():
            return Part(f"[resource {content.uri}]")
        case EmbeddedResource():
            return _to_content(content.resource)
        case _:
            return Part("[a part of an unknown kind]")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode("utf-8", "replace")


def _describe(error: BaseException) -> str:
    """Return the text of an error; that of a server is untrusted, and quoted."""
    if isinstance(error, MCPError):
        return quote(error.message, _SHOWN)
    if isinstance(error, httpx2.ConnectError):
        return "nothing listens there"
    return "its answer breaks the protocol" if isinstance(error, ValidationError) else type(error).__name__


@functools.cache
def _version() -> str:
    try:
        return version("hermes-exec")
    except PackageNotFoundError:
        return "0"
