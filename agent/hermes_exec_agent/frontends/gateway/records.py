"""The records of the gateway: persons, messages that came in, and pieces that go out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

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
class ReceivedFile:
    """A file of a message."""

    name: str
    """As the sender named it; untrusted."""
    kind: str
    """The MIME type that the platform stated; untrusted."""
    size: int
    error: str = ""
    """Why it was not read."""
    content: bytes | None = None
    """None if it was not read, or is read from the store when it is needed."""


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
    files: tuple[ReceivedFile, ...] = ()
    """Without their content."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that is being sent."""

    id: int
    key: str
    """Its id for the platform."""
    text: str
    """Of a file, its name."""
    choices: tuple[Choice, ...] = ()
    follows_unknown: bool = False
    """Whether an earlier piece in this chat may not have arrived, and the person does not know yet."""
    receipt: str = ""
    """Of the piece to edit; empty if this one is sent."""
    revision: int = 0
    """The number of changes of its text."""
    attempts: int = 1
    doubt: float | None = None
    """When the first try began that may have arrived; None if it certainly has not arrived."""
    file: bytes | None = None
    """The content of a file."""


@dataclass(frozen=True, slots=True)
class GuestLimit:
    """The requests that a guest may make in 24 hours."""

    requests: int = 50


@dataclass(frozen=True, slots=True)
class Measures:
    """What the metrics show."""

    platforms: list[dict[str, Any]]
    """Each account, as `OutboxStore.platforms` returns it."""
    states: dict[str, int]
    """The number of pieces in each state."""
    received: dict[tuple[str, str], int]
    """Messages since the start, by platform and account."""
    sent: dict[tuple[str, str], int]
    """Pieces that arrived since the start, by platform and account."""


def read_uptime() -> float:
    """Return the seconds since the machine started, where the system counts them with the time that it slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def to_message(row: sqlite3.Row, files: Sequence[sqlite3.Row] = ()) -> Message:
    """Return the message of a row, with its files."""
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
        tuple(ReceivedFile(each["name"], each["kind"], each["size"], each["error"]) for each in files),
    )


def to_person(row: sqlite3.Row) -> PersonRecord:
    """Return the person of a row."""
    address = Address(row["platform"], row["account"], row["chat"])
    return PersonRecord(row["name"], row["role"], row["conversation"], row["model"], row["target"], address)
