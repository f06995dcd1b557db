"""Commands of the user's own configuration that are run at events of a conversation (``[[agent.hooks]]``).

A hook runs on the agent's machine, in a terminal of its own that is opened for the first one. It reads one JSON object
and answers by its exit code, or by a JSON object on its standard output. Its answer is untrusted text. A failed hook
objects to nothing, except at ``pre-tool``, where the call is refused.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_exec._async import create_or_rollback
from hermes_exec.errors import HermesError
from hermes_exec.terminal.opening import open as open_terminal
from hermes_exec_agent.errors import HookRefused
from hermes_exec_agent.tools.envelope import Failure, failure_envelope
from hermes_exec_agent.tools.tool import check_approval, to_safe_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hermes_exec.config.settings import HookEvent, HookSettings
    from hermes_exec.result import Result
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.tool import Context

LIMIT_S = 10.0
"""Seconds after which a hook is ended, with all processes that it started."""
MOST_STOPS = 8
"""How often the hooks of ``stop`` may let one turn continue."""
_GRACE_S = 0.5
_LEASE_S = 30.0
"""How long a hook runs on after its agent was killed."""
_MOST_OUTPUT = 64 << 10
"""Bytes of an answer."""
_MOST_TEXT = 10_000
"""Characters of an answer that a model receives."""
_SHOWN = 60
FIELD_NAMES: Mapping[HookEvent, str] = {
    "session-start": "SessionStart",
    "user-prompt": "UserPromptSubmit",
    "pre-tool": "PreToolUse",
    "post-tool": "PostToolUse",
    "pre-compact": "PreCompact",
    "stop": "Stop",
    "session-end": "SessionEnd",
}
"""The value of ``hook_event_name`` for each event."""
_ADDS_TEXT = ("session-start", "user-prompt")
"""Events whose hooks may add text by printing it."""


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The answer of one hook, or of all hooks of an event."""

    objection: str = ""
    """Why the act is blocked; empty if it is not."""
    asks: str = ""
    """Why a person has to approve the act; empty if none has to."""
    text: str = ""
    """Text for the model."""
    line: str = ""
    """A line for the person."""
    failure: str = ""
    """Why the hook did not answer; empty if it did."""


def read_answer(event: HookEvent, result: Result) -> HookAnswer:
    """Return the answer of a hook that has ended."""
    if result.timed_out:
        return HookAnswer(failure=f"it was ended after {LIMIT_S:g} s")
    printed = result.stderr_text.strip()
    if result.exit_code == 2:
        return HookAnswer(objection=_cut(printed) or "blocked without a reason")
    if result.exit_code != 0:
        how = f"exit code {result.exit_code}" if result.exit_code is not None else f"signal {result.signal}"
        return HookAnswer(failure=f"{how}{': ' if printed else ''}{printed}")
    if "stdout" in result.truncated:
        return HookAnswer(failure=f"its answer has more than {_MOST_OUTPUT >> 10} KiB")
    text = result.stdout_text.strip()
    if not text or (event in _ADDS_TEXT and not text.startswith("{")):
        return HookAnswer(text=_cut(text))
    try:
        fields: Any = json.loads(text)
    except (ValueError, RecursionError):
        return HookAnswer(failure="its standard output is neither empty nor a JSON object")
    if not isinstance(fields, dict):
        return HookAnswer(failure="its standard output is JSON, but no object")
    return _read_fields(cast("dict[str, Any]", fields))


def _read_fields(fields: Mapping[str, Any]) -> HookAnswer:
    given: Any = fields.get("hookSpecificOutput")
    specific = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    answer = HookAnswer(text=_text(specific, "additionalContext"), line=_text(fields, "systemMessage"))
    decision, permission = fields.get("decision"), specific.get("permissionDecision")
    if fields.get("continue") is False:
        return replace(answer, objection=_text(fields, "stopReason") or "blocked without a reason")
    if decision == "block":
        return replace(answer, objection=_text(fields, "reason") or "blocked without a reason")
    why = _text(specific, "permissionDecisionReason")
    if permission == "deny":
        return replace(answer, objection=why or "blocked without a reason")
    if permission == "ask":
        return replace(answer, asks=why or "it asks for a person's approval")
    # These leave the decision to the approvals of the conversation.
    if decision not in (None, "approve") or permission not in (None, "allow", "defer"):
        return HookAnswer(failure="its decision is unknown")
    return answer


def _text(fields: Mapping[str, Any], key: str) -> str:
    value: object = fields.get(key)
    return _cut(value.strip()) if isinstance(value, str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


class ConversationHooks:
    """The hooks of a conversation, and of those that it delegates."""

    def __init__(self, hooks: Iterable[HookSettings], *, limit_s: float = LIMIT_S) -> None:
        """``limit_s`` is the time limit of each hook."""
        self._hooks = tuple(hooks)
        self._limit_s = limit_s
        self._opening = asyncio.Lock()
        self._terminal: Terminal | None = None
        self._texts: list[str] = []
        self._folder = str(Path.cwd())
        """The folder of the agent at the beginning; a command may remove it later."""

    def find(self, event: HookEvent, tool: str = "") -> list[HookSettings]:
        """Return the hooks of an event that match a tool's name."""
        return [each for each in self._hooks if each.event == event and _matches(each, tool)]

    async def start_session(self, context: Context, *, is_resumed: bool) -> None:
        """Run the hooks of ``session-start``; the next request has the text that they add."""
        fields = {"source": "resume" if is_resumed else "startup", "model": context.model}
        answer = await self._run("session-start", context, fields)
        if answer.objection:
            context.tell(f"hook session-start: {to_safe_line(answer.objection)}")
        self._texts += [answer.text] if answer.text else []

    async def end_session(self, context: Context) -> None:
        """Run the hooks of ``session-end``."""
        answer = await self._run("session-end", context, {"reason": "other"})
        if answer.objection:
            context.tell(f"hook session-end: {to_safe_line(answer.objection)}")

    async def check_prompt(self, request: str, context: Context) -> list[dict[str, object]]:
        """Run the hooks of ``user-prompt``; return the notices with the texts that hooks add to the request.

        Raises:
            HookRefused: a hook blocks the request.
        """
        answer = await self._run("user-prompt", context, {"prompt": request})
        if answer.objection:
            raise HookRefused(f"a hook blocks this request: {to_safe_line(answer.objection)}", remedy="other words")
        texts, self._texts = [*self._texts, answer.text], []
        # A hook may print what others wrote.
        return [{"source": "hook", "content": text, "has_output": True} for text in texts if text]

    async def check_call(self, tool: str, arguments: Mapping[str, Any], context: Context) -> Envelope | None:
        """Run the hooks of ``pre-tool``; return the result of a call that may not run, or None."""
        answer = await self._run("pre-tool", context, {"tool_name": tool, "tool_input": dict(arguments)}, tool)
        objection = answer.objection or answer.failure
        if objection:
            line = to_safe_line(objection)
            context.record("approval", {"tool": tool, "summary": line, "answer": "denied by a hook"})
            return failure_envelope(context.place, Failure("denied", f"a hook of the person blocks this call: {line}"))
        if answer.asks:
            summary = f"run as a hook wants it to be asked for: {answer.asks}"
            if failure := await check_approval(tool, summary, context, always=True):
                return failure_envelope(context.place, failure)
        return None

    async def review_call(
        self, tool: str, arguments: Mapping[str, Any], envelope: Envelope, context: Context
    ) -> Envelope:
        """Run the hooks of ``post-tool``; return the result with the texts that they have for the model."""
        if not self.find("post-tool", tool):
            return envelope
        response: dict[str, Any] = json.loads(envelope.text())
        fields = {"tool_name": tool, "tool_input": dict(arguments), "tool_response": response}
        answer = await self._run("post-tool", context, fields, tool)
        notes = [f"a hook of the person: {text}" for text in (answer.objection, answer.text) if text]
        return replace(envelope, note="; ".join(filter(None, [envelope.note, *notes]))) if notes else envelope

    def of_turn(self, context: Context, *, is_delegated: bool) -> HooksOfTurn:
        """Return the hooks that a turn of the conversation runs."""
        return HooksOfTurn(self, context, is_delegated)

    async def check_compaction(self, context: Context, *, manual: bool) -> str:
        """Run the hooks of ``pre-compact``; return why the conversation may not be shortened, or nothing."""
        fields = {"trigger": "manual" if manual else "auto", "custom_instructions": ""}
        return (await self._run("pre-compact", context, fields)).objection

    async def check_stop(self, text: str, context: Context, *, stops: int) -> str:
        """Run the hooks of ``stop``; return why the turn has to continue, or nothing.

        ``stops`` counts how often they let this turn continue before.
        """
        if stops >= MOST_STOPS:
            return ""
        fields = {"stop_hook_active": stops > 0, "last_assistant_message": text}
        return (await self._run("stop", context, fields)).objection

    async def close(self) -> None:
        """End what hooks left in the background."""
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            with suppress(HermesError):  # it is lost, with its processes
                await terminal.close()

    async def _run(self, event: HookEvent, context: Context, fields: Mapping[str, Any], tool: str = "") -> HookAnswer:
        """Run the hooks of an event at once, show their failures, and return one answer."""
        hooks = self.find(event, tool)
        if not hooks:
            return HookAnswer()
        about = {
            "session_id": context.conversation,
            "cwd": self._folder,
            "target": context.place,
            "hook_event_name": FIELD_NAMES[event],
        }
        payload = json.dumps(_clean({**about, **fields}, context))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_one(each, payload)) for each in hooks]
        answers = [_clean_answer(task.result(), context) for task in tasks]
        failures: list[str] = []
        for hook, answer in zip(hooks, answers, strict=True):
            if answer.failure:
                failures.append(f"the hook {to_safe_line(hook.command[:_SHOWN])!r} failed: {answer.failure}")
                context.tell(f"hook {event}: {to_safe_line(failures[-1])}")
            if answer.line:
                context.tell(f"hook {event}: {to_safe_line(answer.line)}")
        return HookAnswer(
            objection="; ".join(filter(None, (each.objection for each in answers))),
            asks="; ".join(filter(None, (each.asks for each in answers))),
            text="\n\n".join(filter(None, (each.text for each in answers))),
            failure="; ".join(failures),
        )

    async def _run_one(self, hook: HookSettings, payload: str) -> HookAnswer:
        try:
            terminal = await self._open()
        except HermesError as error:
            return HookAnswer(failure=f"it could not be started: {error}")
        argv = ["/bin/sh", "-c", hook.command]
        try:
            result = await terminal.run(
                argv, stdin=payload, cwd=self._folder, timeout=self._limit_s, grace_s=_GRACE_S, max_output=_MOST_OUTPUT
            )
        except (HermesError, OSError) as error:
            if terminal is self._terminal:  # the hook may have ended it; the next one gets another
                await self.close()
            return HookAnswer(failure=f"it has no known outcome: {error}")
        return read_answer(hook.event, result)

    async def _open(self) -> Terminal:
        """Return the terminal of the hooks. Their environment has the variables that find programs, and no secrets."""
        from hermes_exec_backends.profiles import LocalProfile

        async with self._opening:
            if self._terminal is None:
                profile = LocalProfile(inherit="tools")
                self._terminal = await create_or_rollback(open_terminal(profile, lease_s=_LEASE_S), _close_terminal)
            return self._terminal


@dataclass(frozen=True, slots=True)
class HooksOfTurn:
    """The hooks that a turn runs."""

    hooks: ConversationHooks
    context: Context
    is_delegated: bool
    """Whether a model asked, not the person; then no hook of ``stop`` is run."""

    async def check_stop(self, text: str, stops: int) -> str:
        """Run the hooks of ``stop``; see `ConversationHooks.check_stop`."""
        return "" if self.is_delegated else await self.hooks.check_stop(text, self.context, stops=stops)

    async def check_compaction(self, *, manual: bool) -> str:
        """Run the hooks of ``pre-compact``; see `ConversationHooks.check_compaction`."""
        return await self.hooks.check_compaction(self.context, manual=manual)


async def _close_terminal(terminal: Terminal) -> None:
    await terminal.close()


def _matches(hook: HookSettings, tool: str) -> bool:
    return hook.matcher in ("", "*") or re.fullmatch(hook.matcher, tool) is not None


def _clean(value: Any, context: Context) -> Any:
    """Return a JSON value without the known secrets."""
    if isinstance(value, str):
        return context.models.redactor.redact(value) if context.models else value
    if isinstance(value, dict):
        return {key: _clean(each, context) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_clean(each, context) for each in cast("Sequence[Any]", value)]
    return value


def _clean_answer(answer: HookAnswer, context: Context) -> HookAnswer:
    names = ("objection", "asks", "text", "line", "failure")
    return HookAnswer(**{name: _clean(getattr(answer, name), context) for name in names})
