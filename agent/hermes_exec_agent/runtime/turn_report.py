"""List the events of a turn without a model: the answer of a turn that stops before the model writes one."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.runtime.updates import CallEnded, CallStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_exec_agent.models.messages import ToolCall
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.envelope import Envelope

_FIRST, _LAST = 10, 20
"""Lines of a section that are listed at its beginning and at its end."""
_ARGUMENT = 72
_LINE = 200
_CALL_AS_TEXT = re.compile(
    r"<tool_call>|<function[=_]|<\|python_tag\|>|\[TOOL_CALLS\]|<[|｜]tool[_▁]calls?[_▁a-z]*begin[|｜]>"  # noqa: RUF001  DeepSeek's own signs
)
"""How models write calls that their server does not parse, as some do not with ``tool_choice: "none"``."""


class TurnReport:
    """Collects the calls of a turn: `update` takes each update, and `text` returns the list."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._open: dict[str, str] = {}
        """Calls that began and did not end."""

    def __bool__(self) -> bool:
        return bool(self._done or self._failed or self._open)

    def update(self, update: Update) -> None:
        """Count a call that began or ended."""
        if isinstance(update, CallStarted):
            self._open[update.call.id] = format_call(update.call)
        elif isinstance(update, CallEnded):
            self._open.pop(update.call.id, None)
            title, reason = format_call(update.call), _failure(update.envelope)
            if reason:
                self._failed[f"{title}: {reason}"] += 1
            else:
                self._done[title] += 1

    def text(self, *, request: str, ended: str, why: str, refused: Iterable[ToolCall], running: Sequence[str]) -> str:
        """Return the list as Markdown.

        Args:
            request: the person's.
            ended: why the turn stops.
            why: what the model did instead of answering, as a clause without its subject.
            refused: calls of the model that did not run.
            running: background processes that still run.
        """
        return "\n".join(
            [
                f"This list is the program's own, as the model {why}:",
                "",
                f"Asked: {_shorten(request)}",
                "",
                f"Stopped: {_shorten(ended)}",
                *_section("Done", self._done),
                *_section("Failed", self._failed),
                *_section("Stopped before its end", Counter(self._open.values()), optional=True),
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


def _failure(envelope: Envelope) -> str:
    """Why a call failed; empty if it did not."""
    if envelope.error is not None:
        return _shorten(f"{envelope.error.type}: {envelope.error.message}")
    if envelope.exit_code:
        return f"exit code {envelope.exit_code}"
    return "" if envelope.ok else "failed"


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
