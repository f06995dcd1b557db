"""Turns of persons: each request of the inbox becomes one turn in the person's current conversation.

The inbox names the conversation and its last event before a turn begins. After a kill, the record of the conversation
shows whether the turn had begun, how far it came, and whether its answer only has to be sent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, Unsupported, UsageError
from hermes_exec_agent.frontends.chat.display import OUTCOME_MESSAGES
from hermes_exec_agent.frontends.gateway.attachments import SendFile, describe_files, find_images, place_files
from hermes_exec_agent.frontends.gateway.draft_stream import INTERVAL_S, DraftStream
from hermes_exec_agent.frontends.gateway.question_board import QuestionBoard
from hermes_exec_agent.frontends.gateway.questions import ChatPerson
from hermes_exec_agent.frontends.http.conversation_pool import ConversationInUse, ConversationPool, PoolExhausted
from hermes_exec_agent.memory.persons import OWNER, Participant
from hermes_exec_agent.runtime import Options, open_conversation
from hermes_exec_agent.runtime.events import TurnHeld
from hermes_exec_agent.runtime.history import MessageHistory
from hermes_exec_agent.runtime.links import links_to_text
from hermes_exec_agent.tools.tool import Approvals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.frontends.gateway.adapter import AdapterTraits, Choice
    from hermes_exec_agent.frontends.gateway.records import Address, Message, PersonRecord
    from hermes_exec_agent.frontends.gateway.store import Store
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime import Conversation
    from hermes_exec_agent.runtime.events import Event, EventLog

_log = logging.getLogger("hermes_exec.gateway")
CUT_OFF = "The gateway ended while it worked on this request, and what was done by then is recorded. Write to continue."
_BUSY = "This conversation is in use elsewhere; your message waits for its turn."
_BUSY_S = 2.0


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """Where and how turns run."""

    target: str | None = None
    guest_target: str = "bubblewrap"
    approvals: Approvals = field(default_factory=Approvals)
    """Of owners; guests have no approvals."""
    cwd: str | None = None
    most: int = 16
    """Conversations whose targets are open."""
    keep_s: float = 900.0
    """Seconds that a target stays open after its last turn."""
    idle_s: float = 86400.0
    draft_s: float = INTERVAL_S
    """The shortest time between two changes of an answer that is being written."""
    largest_file: int = 20 << 20
    """The limit of bytes of a file that is received or sent."""


class Turns:
    """Runs turns, one at a time for each person."""

    def __init__(self, store: Store, log: EventLog, models: Models, config: TurnConfig | None = None) -> None:
        self._store = store
        self._log = log
        self.board = QuestionBoard(store)
        """The open approvals, for other programs."""
        self.models = models
        self._config = config or TurnConfig()
        self._pool = ConversationPool(
            self._open, most=self._config.most, keep_s=self._config.keep_s, idle_s=self._config.idle_s
        )
        self._persons: dict[str, ChatPerson] = {}
        self._running: dict[str, Conversation | None] = {}
        """The persons with a turn; None before the conversation is open."""
        self._messages: dict[str, Message] = {}
        """The messages of these turns."""
        self._stopped: set[str] = set()
        self.notify: Callable[[], None] = lambda: None
        """Called after a text was put into the outbox."""
        self.find_traits: Callable[[Address], AdapterTraits | None] = lambda _: None
        """Returns the properties of the platform of a chat; None if it is not served now."""

    def person(self, record: PersonRecord) -> ChatPerson:
        """Return the questions of a person; one that was paired again with another role has new ones."""
        is_guest = record.role == "guest"
        known = self._persons.get(record.name)
        if known is None or known.is_guest != is_guest:
            board = _TurnBoard(self.board, self._messages, record.name)
            known = self._persons[record.name] = ChatPerson(is_guest=is_guest, board=board)
        return known

    async def take_answers(self) -> None:
        """Give the answers of the web view to the turns that ask, and report them in the chats."""
        if self.board.has_questions:
            for id, answer in await asyncio.to_thread(self.board.read_answers):
                self.board.pass_on(id, answer)

    @property
    def largest_file(self) -> int:
        """The limit of bytes of a file."""
        return self._config.largest_file

    def is_awaiting(self, name: str) -> bool:
        """Whether the turn of this person waits for a text as the answer to a question."""
        return name in self._persons and self._persons[name].is_awaiting

    def is_running(self, name: str) -> bool:
        """Whether a turn of this person runs."""
        return name in self._running

    def stop(self, name: str) -> bool:
        """Interrupt the turn of a person; return whether one ran."""
        if name not in self._running:
            return False
        self._stopped.add(name)
        if (conversation := self._running[name]) is not None:
            conversation.interrupt()
        return True

    async def stop_withdrawn(self) -> None:
        """Stop the turns whose messages are done, because their persons were removed."""
        for name, message in list(self._messages.items()):
            is_done = name not in self._stopped and await asyncio.to_thread(self._store.is_done, message)
            now = self._messages.get(name)
            if is_done and now is not None and now.seq == message.seq:  # else its turn ended, and the next one runs
                self.stop(name)

    async def close(self) -> None:
        """Close all conversations."""
        await self._pool.close()

    async def answer(self, message: Message, record: PersonRecord) -> str:
        """Run the turn of a message, or return what a turn that was cut off had come to.

        Raises:
            HermesError: the model or the target failed; the error is in the record.
        """
        request = format_request(message)
        if message.is_running and (earlier := await asyncio.to_thread(self._find_earlier, message, request)):
            return earlier
        self._running[record.name], self._messages[record.name] = None, message
        self._stopped.discard(record.name)
        chat = self.person(record)
        traits = self.find_traits(message.address)
        stream = DraftStream(
            self._store,
            message,
            self.notify,
            is_shown=traits is not None and traits.can_edit,
            interval_s=self._config.draft_s,
        )

        async def say(text: str, choices: Sequence[Choice]) -> None:
            await stream.end()
            await asyncio.to_thread(self._store.put_during, message, text, choices)
            self.notify()

        chat.say = say
        try:
            async with stream:
                try:
                    return await self._run(message, record, stream)
                except HermesError:
                    await stream.end()
                    raise
        finally:
            chat.say = None
            self._running.pop(record.name, None)
            self._messages.pop(record.name, None)

    async def _run(self, message: Message, record: PersonRecord, stream: DraftStream) -> str:
        waited = False
        conversation = record.conversation
        while True:
            try:
                return await self._try(message, record, conversation, stream)
            except (ConversationInUse, PoolExhausted, TurnHeld):
                if not waited:
                    await asyncio.to_thread(self._store.put_during, message, _BUSY)
                    self.notify()
                waited = True
                await asyncio.sleep(_BUSY_S)
            except UsageError:
                if not conversation or (await asyncio.to_thread(self._log.last, conversation)) > 0:
                    raise
                conversation = ""  # the log was replaced

    async def _try(self, message: Message, record: PersonRecord, id: str, stream: DraftStream) -> str:
        if record.name in self._stopped:
            return "Stopped."
        async with self._pool.acquire(id, Options(unattended=True), to_participant(record)) as conversation:
            self._running[record.name] = conversation
            if record.name in self._stopped:
                return "Stopped."
            conversation.set_model(record.model or "main")
            last = await asyncio.to_thread(self._log.last, conversation.id)
            begun = await asyncio.to_thread(self._store.begin, message, conversation.id, last)
            if begun is None:
                return ""
            self._messages[record.name] = begun
            stream.hosts = lambda: conversation.hosts
            files = await asyncio.to_thread(self._store.read_files, begun) if begun.files else []
            await place_files(conversation, begun, files)
            images = find_images(files, conversation.model)
            answer = await conversation.ask(format_request(begun), stream.update, images=images)
            text = links_to_text(answer.text, conversation.hosts)
        if note := OUTCOME_MESSAGES.get(answer.outcome):
            text = f"{text}\n\n[{note}]".lstrip()
        return text

    def _find_earlier(self, message: Message, request: str) -> str:
        """Return the answer of the turn that began for a message before a kill; empty if none began."""
        events = self._log.events(message.conversation) if message.conversation else []
        text = self._log.redact(request)
        start = next(
            (
                index
                for index, event in enumerate(events)
                if event.number > message.after and event.kind == "user" and event.data["content"] == text
            ),
            None,
        )
        if start is None:
            return ""
        following = [index for index, event in enumerate(events) if index > start and event.kind == "user"]
        end = following[0] if following else len(events)
        return _describe_turn(events[:end], events[start:end])

    def _open(self, id: str, options: Options, participant: Participant) -> AbstractAsyncContextManager[Conversation]:
        record = self._store.person(participant.name or OWNER)
        if record is None or to_participant(record) != participant:
            raise UsageError("this person was removed")
        is_guest = record.role == "guest"
        return open_conversation(
            self._config.guest_target if is_guest else record.target or self._config.target,
            models=self.models,
            person=self.person(record),
            log=self._log,
            resume=id,
            options=options,
            cwd=None if is_guest or record.target else self._config.cwd,
            approvals=Approvals("deny") if is_guest else self._config.approvals,
            tell=lambda line: _log.info("%s", line),
            participant=participant,
            more_tools=(SendFile(partial(self._find_file_limit, record.name), partial(self._put_file, record.name)),),
        )

    def _find_file_limit(self, name: str) -> int:
        """Return the bytes of a file that the chat of a person's turn takes; 0 if none runs."""
        message = self._messages.get(name)
        traits = None if message is None else self.find_traits(message.address)
        return 0 if traits is None else min(traits.largest_file, self._config.largest_file)

    async def _put_file(self, name: str, file: str, content: bytes) -> None:
        message = self._messages.get(name)
        if message is None:
            raise Unsupported("no turn runs")
        await asyncio.to_thread(self._store.put_file, message, file, content)
        self.notify()


class _TurnBoard:
    """The board for the questions of one person's turns."""

    def __init__(self, board: QuestionBoard, messages: Mapping[str, Message], name: str) -> None:
        self._board = board
        self._messages = messages
        self._name = name

    def add(
        self, call: tuple[str, str], until: float, decide: Callable[[str], bool], choices: Sequence[str] | None
    ) -> str:
        message = self._messages.get(self._name)
        if message is None or (choices is not None and message.person != OWNER):
            return ""  # the words of another person's question are for their chat alone
        return self._board.add(message, call, until, decide, choices)

    def end(self, id: str, outcome: str) -> None:
        self._board.end(id, outcome)


def to_participant(record: PersonRecord) -> Participant:
    """Return the person as a conversation records them."""
    return Participant("" if record.name == OWNER else record.name, record.role == "guest")


def format_request(message: Message) -> str:
    """Return the request as the model reads it, with its files; in a group it names the person."""
    text = f"[{message.person}, in a group] {message.text}" if message.is_group else message.text
    return f"{text}\n\n{describe_files(message)}".strip() if message.files else text


def _describe_turn(events: Sequence[Event], turn: Sequence[Event]) -> str:
    """Return the answer of a turn, or how it ended without one; ``events`` are all up to its end."""
    texts = [str(event.data.get("content", "")) for event in turn if event.kind in ("assistant", "ended")]
    for event in turn:
        if event.kind == "failed":
            return describe_failure(str(event.data.get("error", "")))
    said = next((text for text in reversed(texts) if text), "")
    history = MessageHistory(events)
    if history.open or any(event.kind == "interrupted" for event in turn) or not said:
        return f"{said}\n\n{CUT_OFF}".lstrip()
    return links_to_text(said, history.hosts)


def describe_failure(error: str) -> str:
    """Return the text for a turn that failed."""
    return f"This failed: {error}"
