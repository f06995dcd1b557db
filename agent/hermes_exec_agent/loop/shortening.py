"""Make a list of messages shorter and keep it well formed. Pure functions: the same list gives the same list.

A call and its results are one piece, and no cut goes through it. The system's message stays the first.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.loop.history import NOTICE
from hermes_exec_agent.messages import Message
from hermes_exec_agent.models.tokens import CHARACTERS, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CLEARED = "[cleared to save room: "
SUMMARY = "[What was before, summarised by the agent's program]\n"
REQUEST = "\n\n[The request that you work on, word for word]\n"
_NOTED = "I go on from there."
_SMALL = 200
"""Characters of a result that are not worth clearing."""
_SHOWN = 80
_LEAST = 400
"""Characters that shrinking leaves of a result."""
_LISTED = 8_000
"""Characters of a list of what happened."""
_LINE = 160


def size(messages: Iterable[Message]) -> int:
    """Tokens, about."""
    return sum(map(tokens, messages))


def pieces(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages that belong together: a call with its results, and every other one by itself."""
    found: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and found:
            found[-1].append(message)
        else:
            found.append([message])
    return found


def split(messages: Sequence[Message], tail: int) -> int:
    """Where the latest pieces begin that take at most ``tail`` tokens together; the last piece is among them always."""
    grouped = pieces(messages[1:])
    start, taken = len(messages), 0
    for number, piece in enumerate(reversed(grouped)):
        taken += size(piece)
        if number and taken > tail:
            break
        start -= len(piece)
    return start


def clear(messages: Sequence[Message], tail: int) -> list[Message]:
    """Replace older tool results by a word about them; the latest ``tail`` tokens stay as they are."""
    kept = split(messages, tail)
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [
        replace(message, content=_cleared(message.content, names.get(message.tool_call_id, "a tool")))
        if number < kept and _worth_clearing(message)
        else message
        for number, message in enumerate(messages)
    ]


def _worth_clearing(message: Message) -> bool:
    return message.role == "tool" and len(message.content) > _SMALL and not message.content.startswith(CLEARED)


def _cleared(content: str, name: str) -> str:
    return f"{CLEARED}{len(content)} characters of {name}; it began with {content[:_SHOWN]!r}. Call it again if needed]"


def replace_by_summary(messages: Sequence[Message], cut: int, summary: str, request: str) -> list[Message]:
    """The list with everything before ``cut`` summarised; the request stands in it word for word."""
    tail = list(messages[cut:])
    told = SUMMARY + summary.strip()
    if request and not any(holds(message, request) for message in tail):
        told += REQUEST + request
    made = [Message("user", told)]
    if tail and tail[0].role == "user":
        made.append(Message("assistant", _NOTED))
    return [*messages[:1], *made, *tail]


def holds(message: Message, request: str) -> bool:
    """Whether a message is where the request stands, as the person sent it or after an earlier summary."""
    told = message.content
    as_sent = told == request or told.startswith(f"{request}\n\n{NOTICE}")
    return message.role == "user" and (as_sent or told.endswith(REQUEST + request))


def shrink(messages: Sequence[Message], target: int) -> list[Message]:
    """Cut the middle out of the longest tool results until all takes ``target`` tokens, as far as that goes."""
    longest = max((len(message.content) for message in messages if message.role == "tool"), default=0)
    shrunk = list(messages)
    while longest > _LEAST and size(shrunk) > target:
        longest = max(longest // 2, _LEAST)
        shrunk = [_shortened(message, longest) if message.role == "tool" else message for message in shrunk]
    return shrunk


def _shortened(message: Message, most: int) -> Message:
    content = message.content
    if len(content) <= most:
        return message
    note = f"\n[… {len(content)} characters, the middle cleared to save room …]\n"
    room = max(most - len(note), 0)
    # The end of an output tells more than its beginning.
    head, end = room * 2 // 5, room - room * 2 // 5
    return replace(message, content=content[:head] + note + (content[-end:] if end else ""))


def listed(messages: Sequence[Message]) -> str:
    """A summary that needs no model: what was asked, what was called, how it went."""
    results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    lines: list[str] = []
    for message in messages:
        if message.role == "user":
            lines.append(f"The person or the program said: {_line(message.content.removeprefix(SUMMARY))}")
        elif message.role == "assistant":
            if message.content:
                lines.append(f"You said: {_line(message.content)}")
            for call in message.tool_calls:
                outcome = _outcome(results.get(call.id, ""))
                lines.append(f"You called {call.name} {_line(call.arguments)}: {outcome}")
    text = "\n".join(lines)
    if len(text) <= _LISTED:
        return text
    # What was first says what it is about, what was last where it stands.
    return text[: _LISTED // 4] + "\n[…]\n" + text[-_LISTED * 3 // 4 :]


def _outcome(result: str) -> str:
    try:
        told: Any = json.loads(result)
        code = told.get("exit_code")
        return ("ok" if told["ok"] else "failed") + ("" if code is None else f", exit code {code}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _line(result) or "no result"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"


def rendered(messages: Sequence[Message], most: int) -> str:
    """Messages as plain text for who summarises, at most ``most`` tokens."""
    room = most * CHARACTERS
    each = max(room // 40, 500)
    parts: list[str] = []
    for message in messages:
        text = message.content if len(message.content) <= each else message.content[: each - 1] + "…"
        calls = "".join(f"\ncalls {call.name} {call.arguments[:each]}" for call in message.tool_calls)
        parts.append(f"## {message.role}\n{text}{calls}")
    whole = "\n\n".join(parts)
    if len(whole) <= room:
        return whole
    return whole[: room // 3] + "\n\n[…]\n\n" + whole[-(room - room // 3) :]
