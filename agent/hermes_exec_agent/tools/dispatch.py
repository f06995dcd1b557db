"""Run the tool calls of a model.

A call is resolved first: the result has the name and arguments of a tool of ours. Approvals, guardrails, the record and
the person see the resolved call; the model reads its own call again, with a note that names the tool that ran.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, UsageError
from hermes_exec.extras import is_installed
from hermes_exec_agent.models.messages import ToolCall
from hermes_exec_agent.tools.argument_conversion import ArgumentConverter, NoEquivalent, adapt, read_bare_patch
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope, to_failure
from hermes_exec_agent.tools.foreign_calls import ABSENT, ALIASES
from hermes_exec_agent.tools.prepared import ToolTraits
from hermes_exec_agent.tools.provenance import find_stranger
from hermes_exec_agent.tools.tool import IndirectTool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_agent.tools.tool import Context, Tool

_log = logging.getLogger("hermes_exec.agent")
_AROUND = 30
"""Characters that are shown before the position where JSON breaks."""
_LONGEST_SHOWN = 60
_LONGEST_REPAIRED = 64 << 10
_PREFIXES = ("functions.", "tools.", "default_api.")
_NOTHING = "Nothing was done; call it again"


class BrokenJson(ValueError):
    """Text that is not JSON; the message names the position."""


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A call of one of our tools, or the reason why there is no such call."""

    call: ToolCall
    """With our name and arguments; as the model wrote it if it cannot run."""
    written: ToolCall
    """The call as the model wrote it."""
    tool: Tool | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def changes(self) -> bool:
        """Whether the call can change anything."""
        return self.tool.changes if self.tool else False

    @property
    def is_rewritten(self) -> bool:
        """Whether the call has another name or other arguments than the model wrote."""
        return self.call is not self.written

    def annotate(self, envelope: Envelope) -> Envelope:
        """Add a note about the rewriting for the model."""
        if not self.is_rewritten:
            return envelope
        verb = "ran" if envelope.error is None else "taken"
        notes = [*self.notes, f"{verb} as {_format_call(self.call.name, self.arguments)}"]
        return replace(envelope, note="; ".join(filter(None, [*notes, envelope.note])))


async def perform(tools: Iterable[Tool], call: ToolCall, context: Context) -> Envelope:
    """Resolve a call and run it; the note of the envelope names the tool that ran if the model wrote another call."""
    resolved = resolve({tool.spec.name: tool for tool in tools}, call)
    return resolved.annotate(await run(resolved, context))


def resolve(known: Mapping[str, Tool], call: ToolCall) -> ResolvedCall:
    """Find the tool and arguments that a model means. Nothing runs; an ambiguous call gets a failure and no tool."""
    known = _add_unlisted(known, call.name)
    name = _normalize_name(call.name, known)
    alias = ALIASES.get(name)
    if name not in known and (alias is None or (name in ABSENT and alias.ours not in known)):
        return ResolvedCall(call, call, failure=Failure("unknown_tool", describe_unknown_tool(call.name, known)))
    notes: list[str] = []
    try:
        arguments = read_bare_patch(name, call.arguments) or parse_arguments(call.arguments)
        found = _rewrite(known, name, arguments, notes)
    except BrokenJson as error:
        if (repaired := _repair(known, name, call, str(error))) is not None:
            return repaired
        return _refuse(call, f"its arguments are not a JSON object: {error}. {_NOTHING}")
    except ValueError as error:
        return _refuse(call, f"its arguments are not a JSON object: {error}. {_NOTHING}")
    except NoEquivalent as error:
        return _refuse(call, _explain(known, name, error))
    ours, arguments = found
    if ours not in known:
        why = f"the tool for {call.name} is {ours}, which is not among the tools here: {', '.join(known)}"
        return ResolvedCall(call, call, failure=Failure("unknown_tool", why))
    tool = known[ours]
    if not isinstance(tool, IndirectTool):
        return _make_resolved(tool, call, arguments, notes, as_written=name == call.name == ours)
    try:
        tool, arguments = tool.find_call(arguments)
    except UsageError as error:
        return _refuse(call, f"{error}. {_NOTHING}")
    return _make_resolved(tool, call, arguments, notes, as_written=False)


def _normalize_name(name: str, known: Mapping[str, object]) -> str:
    """Return the tool that ``name`` means by its spelling: a prefix, capital letters and hyphens make no other tool."""
    if name in known or name in ALIASES or name in ABSENT:
        return name
    bare = name
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix)
    lower = bare.replace("-", "_").lower()
    return bare if bare in ALIASES else lower if lower in known else name


def _add_unlisted(known: Mapping[str, Tool], name: str) -> Mapping[str, Tool]:
    """Return the tools with that of this name, if one of them knows it."""
    for tool in () if name in known else known.values():
        if isinstance(tool, IndirectTool) and (found := tool.find_tool(name)) is not None:
            return {**known, name: found}
    return known


def _rewrite(
    known: Mapping[str, Tool], name: str, arguments: dict[str, Any], notes: list[str]
) -> tuple[str, dict[str, Any]]:
    """Return the name of our tool and its arguments."""
    if name not in known:
        converter = ArgumentConverter(name, arguments)
        name, arguments = ALIASES[name].convert(converter)
        converter.end()
        notes += converter.notes
    if name in known:
        arguments, more = adapt(name, arguments, known[name].spec.parameters)
        notes += more
    return name, arguments


def _make_resolved(
    tool: Tool, call: ToolCall, arguments: dict[str, Any], notes: list[str], *, as_written: bool
) -> ResolvedCall:
    if as_written and not notes and arguments == _decode_or_none(call.arguments):
        return ResolvedCall(call, call, tool, arguments)
    ours = ToolCall(call.id, tool.spec.name, json.dumps(arguments, ensure_ascii=False))
    return ResolvedCall(ours, call, tool, arguments, tuple(notes))


def _decode_or_none(text: str) -> Any:
    """Decode JSON text; None if it is not JSON."""
    try:
        return json.loads(text, strict=False) if text.strip() else {}
    except ValueError:
        return None


def _repair(known: Mapping[str, Tool], name: str, call: ToolCall, why: str) -> ResolvedCall | None:
    """Repair the broken JSON of a call; None if its tool does more than read, or its meaning is ambiguous."""
    if len(call.arguments) > _LONGEST_REPAIRED or not is_installed("json_repair"):
        return None
    from json_repair import repair_json

    notes: list[str] = []
    try:
        arguments: Any = repair_json(call.arguments, return_objects=True, skip_json_loads=True, strict=True)
        if not isinstance(arguments, dict) or not arguments:
            return None
        ours, arguments = _rewrite(known, name, arguments, notes)  # pyright: ignore[reportUnknownArgumentType]  JSON
    except (ValueError, RecursionError, NoEquivalent):
        return None
    tool = known.get(ours)
    if tool is None or not _only_reads(tool):
        return None
    notes.insert(0, f"the arguments were broken JSON ({why}) and were repaired")
    return _make_resolved(tool, call, arguments, notes, as_written=False)


def _only_reads(tool: Tool) -> bool:
    return isinstance(tool, ToolTraits) and tool.only_reads


def _refuse(call: ToolCall, why: str) -> ResolvedCall:
    return ResolvedCall(call, call, failure=Failure("arguments", f"{call.name}: {why}"))


def _explain(known: Mapping[str, Tool], name: str, error: NoEquivalent) -> str:
    if name in known:
        return f"{error}. {_NOTHING}"
    ours = ALIASES[name].ours
    takes = f", which takes: {', '.join(known[ours].spec.parameters['properties'])}" if ours in known else ""
    return f"{error}. The tool for this is {ours}{takes}. Nothing was done; call that"


async def run(resolved: ResolvedCall, context: Context) -> Envelope:
    """Run a call once. The envelope contains any failure; a cancelled call leaves nothing running."""
    if resolved.tool is None:
        return failure_envelope("agent", resolved.failure or Failure("arguments", "this cannot be done"))
    envelope = await _call_with_hooks(resolved.tool, resolved.arguments, context)
    context.provenance.add(envelope.origins)
    if envelope.error is None or envelope.error.type != "denied":
        context.provenance.add_strangers([find_stranger(resolved.call.name), *envelope.strangers])
    if not envelope.ok and (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError  # it failed because it was cancelled
    return envelope


async def _call_with_hooks(tool: Tool, arguments: dict[str, Any], context: Context) -> Envelope:
    """Run a call between the hooks of ``pre-tool``, which may refuse it, and those of ``post-tool``."""
    hooks, name = context.hooks, tool.spec.name
    if hooks is None:
        return await _call_tool(tool, arguments, context)
    if (refusal := await hooks.check_call(name, arguments, context)) is not None:
        return refusal
    return await hooks.review_call(name, arguments, await _call_tool(tool, arguments, context), context)


async def _call_tool(tool: Tool, arguments: dict[str, Any], context: Context) -> Envelope:
    try:
        return await tool.call(arguments, context)
    except HermesError as error:
        return failure_envelope(context.place, to_failure(error))
    except Exception as error:  # noqa: BLE001  a bug in a tool must not end the conversation
        name = tool.spec.name
        _log.exception("%s failed", name)
        message = f"{name} failed by a mistake of its own: {type(error).__name__}; how far it came is not known"
        return failure_envelope(context.place, Failure("internal", message))


def describe_unknown_tool(name: str, known: Iterable[str]) -> str:
    """Return the failure of a call of an unknown tool."""
    names = list(known)
    there = f"there is no tool {name!r}"
    if name in ABSENT:
        return f"{there}: {ABSENT[name]}. There are: {', '.join(names)}"
    same = next((each for each in ALIASES if each.lower() == name.lower()), None)
    if same is not None:
        return f"{there}; the tool for this is {ALIASES[same].ours}. There are: {', '.join(names)}"
    near = difflib.get_close_matches(name, names, 1)
    return f"{there}{f'; the nearest one is {near[0]!r}' if near else ''}. There are: {', '.join(names)}"


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a call. An empty text means no arguments; a JSON string may contain the object.

    Raises:
        BrokenJson: they are not JSON; the message names the position.
        ValueError: they are not a JSON object.
    """
    value: Any = _decode(text) if text.strip() else {}
    if isinstance(value, str):
        value = _decode(value)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  callers handle one error
    return value  # pyright: ignore[reportUnknownVariableType]  JSON


def _decode(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, strict=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        before = error.doc[max(0, error.pos - _AROUND) : error.pos]
        where = f"at character {error.pos + 1} of {len(error.doc)}" + (f", after {before!r}" if before else "")
        raise BrokenJson(f"{error.msg} {where}") from None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _format_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Format a call in one line, without its long values."""
    return f"{name}({', '.join(f'{key}={_format_value(value)}' for key, value in arguments.items())})"


def _format_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else "…"
