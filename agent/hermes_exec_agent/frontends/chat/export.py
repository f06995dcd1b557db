"""The events of a conversation as a document and as messages."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.chat.display import COMPACTION_MESSAGES
from hermes_exec_agent.frontends.chat.safe_text import escape_text
from hermes_exec_agent.runtime.history import LOST, STOPPED, MessageHistory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hermes_exec_agent.runtime.events.event import Event

ExportFormat = Literal["jsonl", "markdown", "messages"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("jsonl", "markdown", "messages")
SCRIPTED = "scripted: the replies come from a file, and no model was asked"
"""The mark of scripted conversations."""
_RESULT_LINES = 20


def parse_format(word: str) -> ExportFormat:
    """Return the format of this name.

    Raises:
        UsageError: there is no such format.
    """
    for form in EXPORT_FORMATS:
        if form == word:
            return form
    raise UsageError(f"there is no format {word!r}", remedy=", ".join(EXPORT_FORMATS))


def format_time(at: float) -> str:
    """Format a time in local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def to_messages(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the messages in the form of OpenAI's chat completions, with a result for each call of an interrupted turn.

    Messages that were compacted for the model are included in full.
    """
    history = MessageHistory(event for event in events if event.kind != "compacted")
    history.cut()
    return [message.to_wire() for message in history.messages]


def to_markdown(events: Iterable[Event]) -> Iterator[str]:
    """Yield the lines of a Markdown document. Long results are cut; the format `jsonl` has all of them."""
    scripted = False
    arguments: dict[str, str] = {}
    running: set[object] = set()
    for event in events:
        data = event.data
        if event.kind == "call":
            running.add(data["id"])
        elif event.kind == "result":
            running.discard(data.get("id"))
        elif running and event.kind in _ENDS:
            running.clear()
            yield from _fence(LOST if data.get("by") == "end" else STOPPED)
        arguments |= {str(call["id"]): str(call["arguments"]) for call in data.get("tool_calls") or ()}
        if event.kind == "started":
            scripted = bool(data.get("scripted"))
            yield f"# Conversation {event.conversation}"
            yield ""
            place, model = escape_text(str(data.get("target", ""))), escape_text(str(data.get("model", "")))
            yield f"{format_time(event.at)}, in `{place}`, with `{model}`"
            if scripted:
                yield ""
                yield f"**{SCRIPTED}**"
        else:
            yield from _entry(event, "assistant (scripted)" if scripted else "assistant", arguments)
    if running:
        yield from _fence(LOST)


def _entry(event: Event, assistant: str, arguments: Mapping[str, str]) -> Iterator[str]:
    data = event.data
    if event.kind == "user":
        yield from ("", "## you", "", escape_text(data["content"]))
    elif event.kind == "steered":
        yield from ("", "## you, meanwhile", "", escape_text(data["content"]))
    elif event.kind == "assistant":
        if data["content"]:
            yield from ("", f"## {assistant}", "", escape_text(data["content"]))
    elif event.kind == "call":
        yield from ("", f"### {escape_text(data['name'])}", "", *_fence(arguments.get(str(data["id"]), ""), "json"))
    elif event.kind == "result":
        yield from ("", *_fence(_output(data["content"])))
    elif event.kind == "ended":
        if listed := str(data.get("content", "")):
            yield from ("", "## hermes-exec", "", escape_text(listed))
    elif event.kind == "compacted":
        yield from ("", f"*for the model, from here on: {COMPACTION_MESSAGES.get(data.get('how', ''), 'shortened')}*")
    elif event.kind in _NOTES:
        yield from ("", f"*{_NOTES[event.kind].format_map(_Shown(data))}*")


_ENDS = frozenset({"interrupted", "failed", "ended"})
_NOTES = {
    "approval": "{tool}: {summary}: {answer}",
    "warning": "warning, {reason}: {content}",
    "skill": "skill {name}, version {version}: {outcome}",
    "failed": "failed: {error}",
    "interrupted": "interrupted",
    "rewound": "taken back: the latest {turns} requests",
}


class _Shown(dict[str, Any]):
    """Values escaped for a terminal; a missing value is empty."""

    def __getitem__(self, key: str) -> str:
        return escape_text(str(super().get(key, "")))

    def __missing__(self, key: str) -> str:
        return ""


def _output(content: str) -> str:
    """Return the output of an envelope, or its error."""
    try:
        envelope: Any = json.loads(content)
    except ValueError:
        return content
    if not isinstance(envelope, dict):
        return content
    parts: list[str] = []
    for key in ("output", "error"):
        value: Any = envelope.get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  it is JSON
        if value:
            parts.append(str(value.get("message", value)) if isinstance(value, dict) else str(value))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  it is JSON
    return "\n".join(parts) or content


def _fence(text: str, kind: str = "text") -> Iterator[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    lines = escape_text(text).splitlines()
    yield f"{fence}{kind}"
    yield from lines[:_RESULT_LINES]
    if len(lines) > _RESULT_LINES:
        yield f"… {len(lines) - _RESULT_LINES} more lines"
    yield fence
