"""The narrow waist: what a backend must do, and nothing else.

A backend answers one question: "start this argv in your place and give me its byte streams". Sessions,
timeouts, files, jobs, PTYs and reconnection are written once, above it (``hermes_exec.terminal.terminal``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec.files.bulk_protocol import Mover


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


__all__ = ("Alive", "Backend", "Channel", "Check", "Exit", "ExitReceiver", "Leftover", "OutputReceiver", "Receiver")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of ``doctor``: what was looked at, whether it is usable, why not, what mends it."""

    name: str
    status: Literal["ok", "warning", "missing"]
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One place that nobody needed any more: its ``target``, and why it is still there, if it is."""

    target: str
    left: str = ""


@dataclass(frozen=True, slots=True)
class Alive:
    """One place of ours that somebody pays for, or that holds something: its ``target``, and what is known of it."""

    target: str
    since: float | None = None
    """When it was created, in seconds since 1970."""
    state: str = ""
    size: str = ""
    """What it has, in words."""
    owner: str = ""
    """The orchestrator that created it."""


class Backend(ABC):
    """A kind of place. Create one from its profile, ``open`` it, ``spawn`` in it, ``close`` it."""

    type: ClassVar[str]
    """The name that profiles and targets use."""

    features: ClassVar[frozenset[str]] = frozenset()
    """Optional capabilities that this kind of place adds, such as ``snapshot``, ``suspend``, ``gpu``."""

    profile: Profile | None = None
    """Made from this profile; ``hermes_exec.open`` applies its ``cwd``, ``env``, ``secrets``, ``setup`` and so on."""

    lease_s: float = 900.0
    """Seconds that what ``open`` creates outlives an orchestrator that vanished; set before ``open``."""

    keepalive_s: float = 15.0
    """Seconds of silence after which a peer is asked for a sign of life, while something waits for it."""

    returning: bool = False
    """Whether ``open`` goes to a place that was there before, so that one that is missing is gone; set before it."""

    adopting: bool = False
    """Whether a place that ``open`` goes to is ours from then on, as its creator is dead; set before ``open``."""

    handover: Callable[[], Awaitable[Callable[[], Awaitable[None]]]] | None = None
    """Awaited by a place that ``moves``, right before its files are copied to go on elsewhere; what it gives is awaited
    once they are there, or cannot be. Set by those who have a guest in it."""

    tells_exit: ClassVar[bool] = False
    """Whether its channels call ``exited`` of an ``ExitReceiver``."""

    @property
    @abstractmethod
    def target(self) -> str:
        """A one-line target that opens the same place again, without secrets."""

    @property
    def gpu(self) -> bool:
        """Whether it has a GPU once it is open, because its profile asks for one and it does not open without."""
        return False

    @property
    def has(self) -> frozenset[str]:
        """Which of the ``features`` this place has once it is open."""
        return self.features if self.gpu else self.features - {"gpu"}

    @property
    def place(self) -> str:
        """While it is open: what a profile's ``attach_field`` has to say to find what ``open`` created.

        Of places inside of each other all are told, innermost first, with a ``+`` between them.
        """
        return ""

    @property
    def pythons(self) -> Sequence[str]:
        """Interpreters to try in the place, best first; empty where only the plain carrier serves."""
        return ("/usr/bin/python3", "python3", "/usr/libexec/platform-python")

    @property
    def same_python(self) -> bool:
        """True when the first interpreter is this very one, so that it can be sent compiled code."""
        return False

    @property
    def reattaches(self) -> bool:
        """Whether a second ``spawn`` finds what the first one left running there, as a reconnection has to."""
        return True

    @property
    def moves(self) -> bool:
        """Whether it may go on elsewhere with its files while it is open; nothing that runs goes with it."""
        return False

    @property
    def near(self) -> bool:
        """True when what is spawned runs as this user among this process's own, so that /proc shows its pipes."""
        return False

    @property
    def mover(self) -> Mover | None:
        """The vendor's own way of moving files of the place, where it is faster than a channel."""
        return None

    @property
    def authenticated(self) -> bool:
        """Whether a byte that changes on the way ends the connection, so that to compare hashes gains nothing."""
        return False

    @property
    def needs_checksum(self) -> bool:
        """Whether a byte may change on the way unnoticed, so that streams are summed; asked once it is open."""
        return not (self.near or self.authenticated)

    @property
    def far(self) -> bool:
        """Whether fewer bytes to the place are worth a slower start of the guest there; asked once it is open."""
        return False

    @property
    def guarded(self) -> bool:
        """True when commands may be trusted less than the guest, which then lets none read or change its memory."""
        return False

    @classmethod
    @abstractmethod
    def from_profile(cls, profile: Profile) -> Backend:
        """Build the backend from a checked profile; touches nothing outside the process."""

    @classmethod
    def inside(cls, profile: Profile, outer: Backend) -> Backend:  # noqa: ARG003  for those that can
        """Build the backend of a place that is inside of another one; see ``hermes_exec.wrapper``.

        Raises:
            Unsupported: this kind of place is inside of none.
        """
        raise Unsupported(
            f"{cls.type}: such a place cannot be inside of another one",
            remedy=f"without 'via', or {cls.type} as the outermost place",
        )

    @classmethod
    @abstractmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Say what is usable on this machine, what is not, why, and the command that mends it.

        ``profile`` names the account, engine, program or files to look at; without one, those that are usual here.
        """

    @classmethod
    async def reap(cls) -> list[Leftover]:
        """Remove places of this kind whose lease is over, because their orchestrators vanished; says which.

        Raises:
            PlaceUnavailable: there is nothing to ask.
        """
        return []

    @classmethod
    async def alive(cls, profile: Profile | None = None) -> list[Alive]:  # noqa: ARG003  for those that can
        """What of ours is alive on the account of ``profile``, or on the one that is found without.

        Raises:
            PlaceUnavailable: there is nothing to ask.
        """
        return []

    @abstractmethod
    async def open(self) -> None:
        """Make the place ready.

        Raises:
            PlaceUnavailable: it cannot be reached or created; nothing is left behind.
            PlaceGone: it is not there any more, where it was ``returning``.
        """

    @abstractmethod
    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start ``argv`` in the place, its streams tied to ``receiver``.

        ``env`` is added to the place's own environment.

        Raises:
            PlaceUnavailable: it could not be started; nothing ran.
        """

    @abstractmethod
    async def close(self, *, keep: bool = False) -> None:
        """Let go of the place, removing what ``open`` created unless ``keep``. Safe to call twice."""

    async def release(self) -> None:
        """Let go of the place instead of ``close``, while jobs go on in it: what ``open`` created ends after them."""
        await self.close(keep=True)

    async def snapshot(self, name: str | None = None) -> str:  # noqa: ARG002  for those that can
        """Keep the place's files as they are now, as ``name``; gives the target that opens a copy of them.

        Raises:
            Unsupported: ``features`` has no ``snapshot``.
        """
        raise self._cannot("be kept as a snapshot")

    async def suspend(self) -> None:
        """Stop every process in the place where it is, until ``resume``; their memory is kept.

        Raises:
            Unsupported: ``features`` has no ``suspend``.
        """
        raise self._cannot("be suspended")

    async def resume(self) -> None:
        """Let everything go on that ``suspend`` stopped.

        Raises:
            Unsupported: ``features`` has no ``suspend``.
        """
        raise self._cannot("be resumed")

    def _cannot(self, what: str) -> Unsupported:
        return Unsupported(f"{self.target}: such a place cannot {what}", remedy="see Terminal.capabilities.features")
