"""From what a model asks for to a result, whatever it wrote."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import nearest
from hermes_exec.errors import HermesError
from hermes_exec_agent.tools.asking import failed, failure_of
from hermes_exec_agent.tools.envelope import Envelope, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_agent.messages import ToolCall
    from hermes_exec_agent.tools.tool import Context, Tool

_log = logging.getLogger("hermes_exec.agent")


async def perform(tools: Iterable[Tool], call: ToolCall, context: Context) -> Envelope:
    """Do what is asked for. Everything that goes wrong is in the envelope; a cancelled call leaves nothing running."""
    known = {tool.spec.name: tool for tool in tools}
    tool = known.get(call.name)
    if tool is None:
        return failed("agent", Failure("unknown_tool", unknown(call.name, known)))
    try:
        arguments = parsed(call.arguments)
    except ValueError as error:
        said = f"{call.name}: its arguments are no JSON object: {error}. Nothing was done; call it again"
        return failed("agent", Failure("arguments", said))
    envelope = await _done(tool, arguments, context)
    if not envelope.ok and (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError  # it failed as it was ended, and nobody goes on with that
    return envelope


async def _done(tool: Tool, arguments: dict[str, Any], context: Context) -> Envelope:
    try:
        return await tool.call(arguments, context)
    except HermesError as error:
        return failed(context.place, failure_of(error))
    except Exception as error:  # noqa: BLE001  a mistake of ours must not end somebody's conversation
        name = tool.spec.name
        _log.exception("%s failed", name)
        said = f"{name} failed by a mistake of its own: {type(error).__name__}; how far it came is not known"
        return failed(context.place, Failure("internal", said))


def unknown(name: str, known: Iterable[str]) -> str:
    """What is said of a tool that is not there."""
    names = list(known)
    return f"there is no tool {name!r}; the nearest one is {nearest(name, names)!r}. There are: {', '.join(names)}"


def parsed(text: str) -> dict[str, Any]:
    """The arguments of a call. Nothing at all stands for no arguments.

    Raises:
        ValueError: they are no JSON object; says where.
    """
    try:
        told: Any = json.loads(text, parse_constant=_refused, strict=False) if text.strip() else {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(told, dict):
        raise ValueError("it is no object")  # noqa: TRY004  to whoever reads it, it is one mistake of many
    return told  # pyright: ignore[reportUnknownVariableType]  JSON


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number")
