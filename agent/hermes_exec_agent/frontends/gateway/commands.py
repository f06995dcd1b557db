"""Commands of persons in a chat, such as ``/new`` and ``/approve``."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.frontends.chat.listing import find_conversation, list_conversations
from hermes_exec_agent.frontends.chat.safe_text import to_line
from hermes_exec_agent.frontends.gateway.questions import quote_code
from hermes_exec_agent.frontends.gateway.turns import to_participant
from hermes_exec_agent.memory.persons import check_participant, read_participant

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.frontends.gateway.records import Kind, Message, PersonRecord
    from hermes_exec_agent.frontends.gateway.store import Store
    from hermes_exec_agent.frontends.gateway.turns import Turns
    from hermes_exec_agent.runtime.events import EventLog

HELP = """\
/new begins a new conversation
/stop interrupts the running turn
/status shows the conversation and what waits
/approve CODE and /deny CODE answer a question
/again sends messages once more that may not have arrived
/model NAME uses another model
/target NAME begins a new conversation in another target
/resume ID continues another conversation of yours
/group on|off answers mentions in this group, or stops that"""
_ORDERED = frozenset({"/new", "/model", "/target", "/resume"})
_COMMAND = re.compile(r"/[a-z]+", re.IGNORECASE)
_OWNERS = frozenset({"/model", "/target", "/approve", "/deny", "/group"})
_LISTED = 5


def classify(text: str) -> Kind:
    """Return whether a text is a request or a command, and whether the command waits for earlier messages."""
    word = (text.split(maxsplit=1) or [""])[0]
    if not _COMMAND.fullmatch(word):
        return "request"
    return "ordered" if word.lower() in _ORDERED else "immediate"


class Commands:
    """Handles the commands."""

    def __init__(self, store: Store, log: EventLog, turns: Turns, check_target: Callable[[str], object]) -> None:
        """``check_target`` raises a `ConfigError` for a word that is not a target."""
        self._store = store
        self._log = log
        self._turns = turns
        self._check_target = check_target

    async def handle(self, message: Message, record: PersonRecord) -> None:
        """Handle a command, and record its answer; a wrong one gets a line."""
        word, _, rest = message.text.partition(" ")
        word, rest = word.lower(), rest.strip()
        if word == "/again":
            await asyncio.to_thread(self._store.send_again, message)
            return
        changes: dict[str, str] = {}
        try:
            if record.role == "guest" and word in _OWNERS:
                raise UsageError(f"{word} is not for guests")
            text = await asyncio.to_thread(self._answer, word, rest, message, record, changes)
        except HermesError as error:
            text = str(error)
        await asyncio.to_thread(self._store.finish, message, [text], **changes)

    def _answer(self, word: str, rest: str, message: Message, record: PersonRecord, changes: dict[str, str]) -> str:
        match word:
            case "/new":
                changes["conversation"] = ""
                return "Your next message begins a new conversation."
            case "/status":
                return self._describe_status(record)
            case "/model":
                return self._choose_model(rest, record, changes)
            case "/target":
                return self._choose_target(rest, record, changes)
            case "/resume":
                return self._resume(rest, record, changes)
            case "/group":
                return self._set_group(rest, message, record)
            case "/help" | "/start":
                return HELP
            case _:
                raise UsageError(f"there is no command {to_line(word)}", remedy="/help")

    def decide(self, message: Message, record: PersonRecord) -> str | None:
        """Return the answer to a command that acts on the running turn; None for other commands.

        It runs on the event loop, to which the turn belongs.
        """
        word, _, rest = message.text.partition(" ")
        match word.lower():
            case "/stop":
                return "Stopping." if self._turns.stop(record.name) else "No turn of yours runs."
            case "/approve" | "/deny" if record.role == "owner":
                return self._turns.person(record).decide(rest.strip(), allow=word.lower() == "/approve")
            case _:
                return None

    def _describe_status(self, record: PersonRecord) -> str:
        lines = [
            f"conversation: {record.conversation or 'begins with your next message'}",
            f"model: {record.model or 'main'}",
            f"target: {record.target or 'the default one'}" if record.role == "owner" else "role: guest",
            f"turn: {'running' if self._turns.is_running(record.name) else 'none'}",
            f"waiting: {self._store.count_waiting(record.name)}",
        ]
        lines += [f"question {quote_code(each, is_inline=True)}" for each in self._turns.person(record).pending]
        return "\n".join(lines)

    def _choose_model(self, name: str, record: PersonRecord, changes: dict[str, str]) -> str:
        if not name:
            now = record.model or "main"
            return "\n".join(f"{'→' if each == now else '-'} {each}" for each in self._turns.models.names)
        self._turns.models.get(name)
        changes["model"] = name
        return f"The model is {name} from now on."

    def _choose_target(self, name: str, record: PersonRecord, changes: dict[str, str]) -> str:
        if not name:
            return f"target: {record.target or 'the default one'}"
        self._check_target(name)
        changes |= {"target": name, "conversation": ""}
        return f"Your next message begins a new conversation in {quote_code(name, is_inline=True)}."

    def _resume(self, word: str, record: PersonRecord, changes: dict[str, str]) -> str:
        participant = to_participant(record)
        if not word:
            found = [
                each
                for each in list_conversations(self._log, 50)
                if read_participant(self._log, each.id) == participant
            ]
            if not found:
                return "You have no conversation yet."
            return "\n".join(
                f"- `{each.id}` {quote_code(to_line(each.title), is_inline=True)}" for each in found[:_LISTED]
            )
        id = find_conversation(self._log, word, participant)
        check_participant(self._log, id, participant)
        changes["conversation"] = id
        return f"Continuing `{id}`: {quote_code(to_line(self._log.title(id)), is_inline=True)}"

    def _set_group(self, word: str, message: Message, record: PersonRecord) -> str:
        if not message.is_group or word not in {"on", "off"}:
            raise UsageError("/group is for groups", remedy="/group on or /group off in a group, with a mention")
        self._store.set_group(message.address, record.name, on=word == "on")
        return (
            "I answer mentions by paired persons in this group."
            if word == "on"
            else "I no longer answer in this group."
        )
