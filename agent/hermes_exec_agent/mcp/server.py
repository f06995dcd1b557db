"""The server's end of the protocol: tools and their annotations, calls, progress and cancellation."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.tools.base import build_schema, describe, describe_errors
from hermes_exec_agent.tools.envelope import to_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mcp.server.context import ServerRequestContext

    from hermes_exec_agent.mcp.served_target import ServedTarget
    from hermes_exec_agent.mcp.served_tools import ServedTool

T = TypeVar("T")
NAME = "hermes-exec"


def choose_tools(tools: Sequence[ServedTool], names: Sequence[str]) -> list[ServedTool]:
    """Return the tools of these names, or all.

    Raises:
        UsageError: there is no such tool.
    """
    known = {tool.name: tool for tool in tools}
    if unknown := next((name for name in names if name not in known), None):
        raise UsageError(f"--tool {unknown}: there is no such tool", remedy=", ".join(known))
    return [tool for tool in tools if not names or tool.name in names]


class TargetServer:
    """Serves the tools of one target."""

    def __init__(self, target: ServedTarget, tools: Sequence[ServedTool], clean: Callable[[str], str] = str) -> None:
        """``clean`` removes keys from results."""
        self._target = target
        self._tools = {tool.name: tool for tool in tools}
        self._clean = clean
        self.protocol: Server[Any] = Server(
            NAME,
            version=_version(),
            title=f"hermes-exec: {target.name}",
            instructions=f"Every tool works in one target, {target.name}.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            get_tool_input_schema=self._find_schema,
        )

    async def _list(self, _: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_to_wire(tool) for tool in self._tools.values()])

    def _find_schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return _to_schema(tool) if tool else None

    async def _call(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(
                code=INVALID_PARAMS, message=f"there is no tool {params.name!r}. There are: {', '.join(self._tools)}"
            )
        try:
            args = tool.arguments.model_validate(params.arguments or {})
        except ValidationError as error:
            return self._fail("arguments", describe_errors(tool.name, tool.arguments, error), retryable=False)

        async def report(elapsed_s: float, line: str) -> None:
            await context.session.report_progress(elapsed_s, message=self._clean(line))

        try:
            result = await run_apart(tool.call(args, report))
        except HermesError as error:
            await run_apart(self._target.drop_if_gone(error))
            failure = to_failure(error)
            return self._fail(failure.type, failure.message, retryable=failure.retryable)
        return self._to_result(result.model_dump(mode="json"), is_error=False)

    def _fail(self, kind: str, message: str, *, retryable: bool) -> CallToolResult:
        error = {"type": kind, "message": message, "retryable": retryable}
        return self._to_result({"ok": False, "backend": self._target.name, "error": error}, is_error=True)

    def _to_result(self, fields: dict[str, Any], *, is_error: bool) -> CallToolResult:
        fields = _clean_texts(fields, self._clean)
        text = json.dumps(fields, ensure_ascii=False)
        return CallToolResult(
            content=[TextContent(type="text", text=text)], structured_content=fields, is_error=is_error
        )


def _to_wire(tool: ServedTool) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.about or describe(tool.arguments),
        input_schema=_to_schema(tool),
        output_schema=build_schema(tool.result),
        annotations=ToolAnnotations(
            read_only_hint=tool.only_reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.is_idempotent,
            open_world_hint=tool.reaches_out,
        ),
    )


def _to_schema(tool: ServedTool) -> dict[str, Any]:
    return (tool.schema or build_schema(tool.arguments)) | {"type": "object", "additionalProperties": False}


def _clean_texts(value: Any, clean: Callable[[str], str]) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {key: _clean_texts(each, clean) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]  JSON
        case list():
            return [_clean_texts(each, clean) for each in value]  # pyright: ignore[reportUnknownVariableType]  JSON
        case _:
            return value


async def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` as a task of its own, and return its result.

    A cancelled scope of anyio cancels its tasks again and again, which would cut the cleanup of a command short; this
    task is cancelled once, and has ended when the cancellation is delivered.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it
        raise


def _version() -> str:
    try:
        return version("hermes-exec")
    except PackageNotFoundError:
        return ""
