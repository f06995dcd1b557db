"""A conversation as its model reads it, and the recorder that appends to its log.

The history is a function of the events: the same events always result in the same messages. It follows the rules of the
strictest endpoints for every list of events, also after a kill: each call has its result right after it, in the order
of the calls, and an assistant's message comes between a tool's result and a person's message.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec._async import wait_done
from hermes_exec.errors import HermesError
from hermes_exec_agent.models.images import image_of_record
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.tools.provenance import Provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.runtime.events.event import Event, Kind
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.events.turn_lock import TurnLock


NOTICE = "[notice of the agent's program] "
STEERED = "The person says, while you work: "
_CUT = "(This turn ended without an answer.)"
_INTERRUPTED = "(The person interrupted this.)"
TIME_LIMIT = "the time limit"
"""The cause of interruptions by the time limit."""
_LATE = "(The time limit of this turn ended it.)"
LOST = (
    "unknown: the agent's program ended while this ran. It may have run, wholly or in part. Look before you repeat it."
)
STOPPED = "interrupted: it was stopped before its end."
BRANCHED = (
    "unknown: this branch of the conversation began while this ran. It may have run, wholly or in part. Look before "
    "you repeat it."
)
UNANSWERED = "(This branch of the conversation began before the answer.)"
_NOT_RUN = "not run: the turn ended before."
_HOST = re.compile(r"(?:(?<=://)|(?<![\w.@-]))((?:[a-z0-9-]+\.)+[a-z0-9-]+|localhost|\[[0-9a-f:]+\])", re.IGNORECASE)


class MessageHistory:
    """The messages of one conversation; `add` takes each event in order."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.request = ""
        """The latest request, as the person wrote it."""
        self.open = False
        """Whether a turn has begun and not ended."""
        self.provenance = Provenance()
        """The sources of all text so far, also of text that a compaction removed."""
        self.hosts: set[str] = set()
        """The hosts that the person named."""
        self._messages: list[Message] = []
        self._marks: list[tuple[int, str, tuple[Image, ...]]] = []
        """The messages before each request that can be taken back, the request, and its images."""
        self._calls: tuple[ToolCall, ...] = ()
        self._begun: set[str] = set()
        self._results: dict[str, str] = {}
        self.ids: set[str] = set()
        """The ids of all calls so far."""
        for event in events:
            self.add(event)

    @property
    def messages(self) -> list[Message]:
        """All messages so far. Open calls and their results are left out."""
        return list(self._messages)

    @property
    def requests(self) -> list[str]:
        """The requests that `rewound` events can take back, the oldest first."""
        return [request for _, request, _ in self._marks]

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the latest of these requests."""
        return self._marks[-1][2] if self._marks else ()

    def cut(self, lost: str = LOST, note: str = _CUT) -> None:
        """End an open turn as if the program had ended with it: its running calls get the result ``lost``."""
        if self.open:
            self._close(lost)
            self._end("", note)

    def add(self, event: Event) -> None:
        """Add the next event."""
        data = event.data
        match event.kind:
            case "started":
                self._start(data)
            case "user":
                self._close(LOST)
                self._ensure_answer(_CUT)
                self._request(data)
            case "assistant":
                self._close(LOST)
                self._assistant(data)
            case "call":
                self._begun.add(str(data["id"]))
            case "result":
                self._results[str(data["id"])] = str(data["content"])
                self.provenance.add_result(event)
                if all(call.id in self._results for call in self._calls):
                    self._close("")
            case "warning":
                self._notice(str(data["content"]))
            case "steered":
                content = str(data["content"])
                self._notice(STEERED + content)
                self.hosts |= find_hosts(content)
            case "compacted":
                self._messages = [*self._messages[:1], *(parse_message(each) for each in data["messages"])]
                self._marks = []
            case "rewound":
                self._rewind(int(data["turns"]))
            case "interrupted":
                lost = data.get("by") == "end"
                self._close(LOST if lost else STOPPED)
                note = _LATE if data.get("by") == TIME_LIMIT else _INTERRUPTED
                self._end(str(data.get("content", "")), _CUT if lost else note)
            case "failed":
                self._close(STOPPED)
                self._end("", _CUT)
            case "ended":
                self._close(STOPPED)
                self._add_list(str(data.get("content", "")))
                self.open = False
            case _:
                pass  # for the record alone

    def _start(self, data: Mapping[str, Any]) -> None:
        self._messages = [Message("system", str(data["system"]))]
        self._messages += [parse_message(each) for each in data.get("history", ())]
        self.ids |= {call.id for message in self._messages for call in message.tool_calls}
        self.provenance.add_start(data)
        self.hosts |= set(data.get("hosts", ()))

    def _request(self, data: Mapping[str, Any]) -> None:
        content = str(data["content"])
        found = (image_of_record(each) for each in data.get("images", ()))
        images = tuple(each for each in found if each is not None)
        self._marks.append((len(self._messages), content, images))
        parts = [f"{NOTICE}{each['content']}" for each in data.get("parts", ()) if each["content"]]
        self._messages.append(Message("user", "\n\n".join([content, *parts]), images=images))
        self.provenance.has_output |= any(each.get("has_output") for each in data.get("parts", ()))
        self.request, self.open = content, True
        self.hosts |= find_hosts(content)

    def _rewind(self, turns: int) -> None:
        """Remove the latest requests with all that followed. The sources of their text still count."""
        if not self._marks or turns < 1:
            return
        length = self._marks[-turns:][0][0]
        del self._messages[length:]
        del self._marks[-turns:]
        self.request = self._marks[-1][1] if self._marks else ""
        self._calls, self.open = (), False

    def _assistant(self, data: Mapping[str, Any]) -> None:
        message = parse_message({**data, "role": "assistant"})
        self._messages.append(message)
        self._calls, self._begun, self._results = message.tool_calls, set(), {}
        self.ids |= {call.id for call in message.tool_calls}
        self.open = bool(message.tool_calls)

    def _close(self, lost: str) -> None:
        """Add a result to every open call."""
        for call in self._calls:
            content = self._results.get(call.id, lost if call.id in self._begun else _NOT_RUN)
            self._messages.append(Message("tool", content, tool_call_id=call.id))
        self._calls = ()

    def _notice(self, content: str) -> None:
        """Add a notice for the model to the last message, as some endpoints accept no other message after a tool's."""
        last = self._messages[-1]
        if last.role == "assistant":
            self._messages.append(Message("user", NOTICE + content))
            self.open = True
        else:
            self._messages[-1] = replace(last, content=f"{last.content}\n\n{NOTICE}{content}")

    def _end(self, text: str, note: str) -> None:
        self._messages.append(Message("assistant", f"{text}\n\n{note}" if text else note))
        self.open = False

    def _add_list(self, content: str) -> None:
        """Add the program's list at the end of a turn to the assistant's last message."""
        if not content:
            return
        last = self._messages[-1]
        if last.role == "assistant":
            self._messages[-1] = Message("assistant", f"{last.content}\n\n{content}".lstrip(), last.tool_calls)
        else:
            self._messages.append(Message("assistant", content))

    def _ensure_answer(self, note: str) -> None:
        """Add an assistant's message if the last one is not the assistant's."""
        if self._messages and self._messages[-1].role in ("user", "tool"):
            self._messages.append(Message("assistant", note))


def find_hosts(text: str) -> set[str]:
    """Return the hosts that a text names, in lower case: in addresses, and as words such as ``example.org``."""
    return {each.lower() for each in _HOST.findall(text)}


def parse_message(record: Mapping[str, Any]) -> Message:
    """Return the message of a record."""
    calls = tuple(
        ToolCall(
            str(call["id"]),
            str(call["name"]),
            str(call["arguments"]),
            dict(call.get("extras") or {}),
            str(call.get("given_id") or ""),
        )
        for call in record.get("tool_calls") or ()
    )
    return Message(
        record["role"],
        str(record.get("content") or ""),
        calls,
        str(record.get("tool_call_id") or ""),
        dict(record.get("extras") or {}),
        str(record.get("origin") or ""),
        tuple(image for each in record.get("images") or () if (image := image_of_record(each)) is not None),
    )


def to_record(message: Message) -> dict[str, Any]:
    """Return the record of a message."""
    record: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        record["tool_calls"] = [_to_call_record(each) for each in message.tool_calls]
    if message.tool_call_id:
        record["tool_call_id"] = message.tool_call_id
    if message.extras:
        record["extras"] = message.extras
    if message.origin:
        record["origin"] = message.origin
    if message.images:
        record["images"] = [each.to_record() for each in message.images]
    return record


def _to_call_record(call: ToolCall) -> dict[str, Any]:
    record: dict[str, Any] = {"id": call.id, "name": call.name, "arguments": call.arguments}
    if call.extras:
        record["extras"] = call.extras
    if call.given_id:
        record["given_id"] = call.given_id
    return record


class EventRecorder:
    """The events of one conversation, in the log and as its history."""

    def __init__(self, log: EventLog, conversation: str) -> None:
        self.conversation = conversation
        self.history = MessageHistory()
        self._log = log
        self._last = 0
        self._lock = asyncio.Lock()
        self._turn: TurnLock | None = None
        self._noted: list[tuple[Kind, dict[str, Any]]] = []

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    async def load(self) -> list[Event]:
        """Read the recorded events."""
        events = await self.read_since(0)
        self.history = MessageHistory(events)
        self._last = events[-1].number if events else 0
        return events

    async def read_since(self, number: int) -> list[Event]:
        """Read the recorded events after one."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._log.executor, self._log.events, self.conversation, number)

    async def acquire(self, lease_s: float) -> list[Event]:
        """Hold the turn, and read the events that other programs added; return them. See `EventLog.acquire_turn`."""
        await self.release()  # if that failed before
        loop = asyncio.get_running_loop()
        acquiring = loop.run_in_executor(self._log.executor, self._log.acquire_turn, self.conversation, lease_s)
        cancelled = await wait_done(acquiring)
        self._turn = acquiring.result()
        if cancelled:
            await self.release()
            raise asyncio.CancelledError
        try:
            added = await self.read_since(self._last)
        except BaseException:
            await self.release()
            raise
        for event in added:
            self.history.add(event)
            self._last = event.number
        return added

    async def renew(self) -> None:
        """Renew the lease of the turn. See `EventLog.renew_turn`."""
        if self._turn is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._log.executor, self._log.renew_turn, self._turn)

    async def release(self) -> None:
        """Release the turn. If that cannot be written, the next `acquire` repeats it."""
        if self._turn is not None:
            with contextlib.suppress(HermesError):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._log.executor, self._log.release_turn, self._turn)
                self._turn = None

    def drop_notes(self) -> None:
        """Drop the notes for an event that is never recorded."""
        self._noted = []

    async def record(self, kind: Kind, data: dict[str, Any]) -> Event:
        """Append an event; one whose recording is cancelled is still recorded, and the cancellation follows.

        Raises:
            TurnLost: another program took this conversation over.
            HermesError: the event could not be written; nothing was recorded.
        """
        async with self._lock:
            self.note(kind, data)
            events, self._noted = self._noted, []
            return await self._keep(events)

    def note(self, kind: Kind, data: dict[str, Any]) -> None:
        """Append something together with the next recorded event, right before it."""
        self._noted.append((kind, data))

    async def _keep(self, events: list[tuple[Kind, dict[str, Any]]]) -> Event:
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._log.executor, self._append, events, self._last)
        cancelled = await wait_done(writing)
        kept = writing.result()
        for event in kept:
            self.history.add(event)
        self._last = kept[-1].number
        if cancelled:
            raise asyncio.CancelledError
        return kept[-1]

    def _append(self, events: list[tuple[Kind, dict[str, Any]]], after: int) -> list[Event]:
        return self._log.append_all(self.conversation, events, after=after, turn=self._turn)
