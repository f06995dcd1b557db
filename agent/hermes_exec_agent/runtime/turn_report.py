"""List the calls of a turn without a model: the answer of a turn that stops before the model writes one."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.models.messages import ToolCall
from hermes_exec_agent.tools.envelope import find_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_exec_agent.runtime.events.event import Event

_FIRST, _LAST = 10, 20
"""Lines of a section that are listed at its beginning and at its end."""
_ARGUMENT = 72
_LINE = 200
_CALL_AS_TEXT = re.compile(
    r"<tool_call>|<function[=_]|<\|python_tag\|>|\[TOOL_CALLS\]|<[|｜]tool[_▁]calls?[_▁a-z]*begin[|｜]>"  # noqa: RUF001  DeepSeek's own signs
)
"""How models write calls that their server does not parse, as some do not with ``tool_choice: "none"``."""


def format_report(
    events: Iterable[Event], *, request: str, ended: str, why: str, refused: Iterable[ToolCall], running: Sequence[str]
) -> str:
    """Return the list of a turn as Markdown.

    Args:
        events: of the turn.
        request: the person's.
        ended: why the turn stops.
        why: what the model did instead of answering, as a clause without its subject.
        refused: calls of the model that did not run.
        running: background processes that still run.
    """
    written: dict[str, str] = {}
    done, failed, begun = Counter[str](), Counter[str](), dict[str, str]()
    for event in events:
        data = event.data
        if event.kind == "assistant":
            written = {str(each["id"]): str(each["arguments"]) for each in data.get("tool_calls", ())}
        elif event.kind == "call":
            arguments = data.get("arguments", written.get(data["id"], ""))
            begun[data["id"]] = format_call(ToolCall(data["id"], data["name"], arguments))
        elif event.kind == "result":
            title, reason = begun.pop(data["id"]), _find_reason(data["content"])
            if reason:
                failed[f"{title}: {reason}"] += 1
            else:
                done[title] += 1
    return "\n".join(
        [
            f"This list is the program's own, as the model {why}:",
            "",
            f"Asked: {_shorten(request)}",
            "",
            f"Stopped: {_shorten(ended)}",
            *_section("Done", done),
            *_section("Failed", failed),
            *_section("Stopped before its end", Counter(begun.values()), optional=True),
            *_section("Asked for and not run", Counter(map(format_call, refused)), optional=True),
            *_section("Left running", Counter(running)),
        ]
    )


def is_call_as_text(text: str) -> bool:
    """Whether a reply holds a call of a tool in a model's own notation, as text."""
    return bool(_CALL_AS_TEXT.search(text))


def format_call(call: ToolCall) -> str:
    """Return a call in one line: its tool, and the first of its arguments that is text."""
    try:
        arguments: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.arguments
    values: list[Any] = list(arguments.values()) if isinstance(arguments, dict) else [arguments]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]  it is JSON
    text = next((each for each in values if isinstance(each, str) and each), "")
    return f"{_shorten(call.name, 100)}  {_shorten(text, _ARGUMENT)}".rstrip()


def _find_reason(content: str) -> str:
    """Return why a call failed, without the output of its command; empty if it did not."""
    reason = find_failure(content)
    return reason.partition(":")[0] if reason.startswith("exit code ") else reason


def _section(name: str, lines: Counter[str], *, optional: bool = False) -> Iterator[str]:
    if not lines:
        if not optional:
            yield from ("", f"{name}: nothing")
        return
    yield from ("", f"{name}:", "")
    items = [f"- {line}{f' ({count} times)' if count > 1 else ''}" for line, count in lines.items()]
    if len(items) > _FIRST + _LAST:
        items[_FIRST:-_LAST] = [f"- … {len(items) - _FIRST - _LAST} more"]
    yield from items


def _shorten(text: str, most: int = _LINE) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
