"""The person that a conversation belongs to.

The owner, who has no name, is the user of this machine. A conversation of another person, or of a guest, is recorded
with their name; it reads what is remembered about them alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.config.settings import Sections
    from hermes_exec_agent.runtime.events.log import EventLog

OWNER = "owner"
"""The name that means the owner on a command line; records have an empty name instead."""
VARIABLE = "HERMES_EXEC_PERSON"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class Participant:
    """The person that a conversation belongs to."""

    name: str = ""
    """Empty for the owner."""
    is_guest: bool = False
    """Whether the conversation neither reads nor changes memory."""

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Participant:
        """Return the person of a conversation from its event ``started``; the owner in older records."""
        return cls(str(record.get("person") or ""), bool(record.get("guest")))

    def to_record(self) -> dict[str, object]:
        """Return the person as the event ``started`` contains it."""
        return {"person": self.name, **({"guest": True} if self.is_guest else {})}

    def __str__(self) -> str:
        if not self.is_guest:
            return self.name or OWNER
        return f"the guest {self.name}" if self.name else "a guest"


def parse_person(word: str) -> str:
    """Return the name of a person; empty for the owner.

    Raises:
        UsageError: it is not a valid name.
    """
    if not _NAME.fullmatch(word):
        shown = to_printable(word[:80])
        raise UsageError(f"{shown!r} is not a name of a person", remedy="lower-case letters, digits and -, up to 64")
    return "" if word == OWNER else word


def choose_participant(
    settings: Sections | None, name: str | None = None, *, guest: bool = False, environ: Mapping[str, str] | None = None
) -> Participant | None:
    """Return the person of new conversations; None if neither the arguments nor the configuration name one.

    Args:
        settings: of the user; None if there are none.
        name: from the command line or a request.
        guest: whether the person is a guest.
        environ: has ``HERMES_EXEC_PERSON``, which comes before ``[agent] person``.

    Raises:
        UsageError: ``name`` is not a name.
        ConfigError: the configured one is none.
    """
    word = name
    if word is None:
        word = (os.environ if environ is None else environ).get(VARIABLE)
        word = word or (settings.agent.person if settings is not None else "") or None
    if word is None:
        return Participant(is_guest=True) if guest else None
    try:
        chosen = parse_person(word)
    except UsageError as error:
        if name is not None:
            raise
        raise ConfigError(f"{VARIABLE} or [agent] person: {error.what}", remedy=error.remedy) from None
    guests = settings.memory.guests if settings is not None else ()
    return Participant(chosen, guest or (bool(chosen) and chosen in guests))


def read_participant(log: EventLog, conversation: str) -> Participant:
    """Return the person of a recorded conversation; the owner if it does not exist."""
    first = log.first(conversation)
    return Participant.from_record(first.data) if first is not None and first.kind == "started" else Participant()


def check_participant(log: EventLog, conversation: str, asked: Participant | None) -> Participant:
    """Return the person of a recorded conversation, which a resumption or a branch keeps.

    Raises:
        UsageError: it is not the one that was ``asked`` for.
    """
    found = read_participant(log, conversation)
    if asked is not None and asked != found:
        name = to_printable(conversation)
        raise UsageError(
            f"conversation {name} is one of {found}, not of {asked}", remedy="the person of that conversation"
        )
    return found
