"""The records of the gateway: persons, messages that came in, and pieces that go out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import sqlite3

    from hermes_exec_agent.frontends.gateway.adapter import Choice

Kind = Literal["request", "ordered", "immediate"]
"""A request to the model; a command that waits for earlier messages; a command that does not."""
Role = Literal["owner", "guest"]


@dataclass(frozen=True, slots=True)
class Address:
    """A chat of an account."""

    platform: str
    account: str
    chat: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Its parts."""
        return self.platform, self.account, self.chat

    @property
    def group(self) -> Address:
        """The group that a thread is in; else the same address."""
        return Address(self.platform, self.account, self.chat.partition(" ")[0])


@dataclass(frozen=True, slots=True)
class PersonRecord:
    """A person."""

    name: str
    role: Role
    conversation: str
    """The current conversation; empty before the first request."""
    model: str
    target: str
    address: Address
    """The private chat that was used last; empty parts before the first message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A recorded message of a person."""

    seq: int
    person: str
    kind: Kind
    text: str
    address: Address
    is_group: bool
    is_running: bool
    """Whether a turn may have begun for it before the last start."""
    conversation: str
    after: int
    """The last event of the conversation before that turn."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that is being sent."""

    id: int
    key: str
    """Its id for the platform."""
    text: str
    choices: tuple[Choice, ...]
    follows_unknown: bool
    """Whether an earlier piece in this chat may not have arrived, and the person does not know yet."""


@dataclass(frozen=True, slots=True)
class GuestLimit:
    """The requests that a guest may make in 24 hours."""

    requests: int = 50


def to_message(row: sqlite3.Row) -> Message:
    """Return the message of a row."""
    return Message(
        row["seq"],
        row["person"],
        row["kind"],
        row["text"],
        Address(row["platform"], row["account"], row["chat"]),
        bool(row["is_group"]),
        row["state"] == "running",
        row["conversation"],
        row["after"],
    )


def to_person(row: sqlite3.Row) -> PersonRecord:
    """Return the person of a row."""
    address = Address(row["platform"], row["account"], row["chat"])
    return PersonRecord(row["name"], row["role"], row["conversation"], row["model"], row["target"], address)
