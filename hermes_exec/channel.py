"""The byte streams of one started argv, and who takes what they deliver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Exit:
    """How a channel ended: an exit ``code``, a ``signal`` number, or ``lost`` with the reason why."""

    code: int | None = None
    signal: int | None = None
    lost: str = ""


class Receiver(Protocol):
    """Takes what a channel delivers, on the event loop's thread."""

    def received(self, data: bytes, /) -> None:
        """Bytes of standard output, in order."""

    def stderr_received(self, data: bytes, /) -> None:
        """Bytes of standard error, in order."""

    def closed(self, exit: Exit, /) -> None:
        """The last call, made once, after all bytes that the channel will ever give."""


@runtime_checkable
class ExitReceiver(Protocol):
    """What a receiver may add, for channels that know of an exit before the outputs are at their end."""

    def exited(self, exit: Exit, /) -> None:
        """What was started has ended, and what it wrote has been given; what its children write follows.

        Called once at most, and before ``closed``, by channels of a backend that ``tells_exit``.
        """


@runtime_checkable
class OutputReceiver(Protocol):
    """What a receiver may add that has no use for a program without its outputs, as the link has none for a guest.

    A connection that ends cleanly looks like a program that closes its outputs and goes on. Other receivers wait for
    the program's end then; this one is given ``closed`` with ``lost`` soon after.
    """

    needs_output: bool


class Channel(ABC):
    """The byte streams of one started argv. Every method is called on the event loop's thread."""

    @abstractmethod
    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes for standard input; never blocks, never raises: a loss is told by ``closed``."""

    @abstractmethod
    def write_eof(self) -> None:
        """Close standard input once everything queued has been written."""

    @property
    @abstractmethod
    def unsent(self) -> int:
        """Bytes queued by ``write`` that the place has not taken yet."""

    @abstractmethod
    async def drained(self) -> None:
        """Return when ``unsent`` has fallen low enough to write on, or the channel closed."""

    @abstractmethod
    def pause(self) -> None:
        """Stop delivering output until ``resume``; the place's own buffers then hold the producer."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver output again."""

    @abstractmethod
    def abandon(self) -> None:
        """Let go of the streams at once; ``closed`` follows. What was started goes on where it can."""

    @abstractmethod
    def kill(self) -> None:
        """Stop what was started, as surely as the place allows, and let go of the streams."""
