"""The contract of an adapter, which connects the gateway to one account of a messenger.

An adapter has three attributes and four methods. It keeps no state that has to survive a restart: the gateway records
messages and answers, and decides when a piece is sent and whether it is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

ENTRY_POINTS = "hermes_exec.gateways"
"""The group of entry points that name a function ``(account, table) -> Adapter`` for each kind of platform."""


class NotSent(HermesError):
    """The platform certainly did not take the piece; it may be sent again after ``retry_s`` seconds."""

    def __init__(self, what: str, *, retry_s: float) -> None:
        super().__init__(what)
        self.retry_s = retry_s


class Rejected(HermesError):
    """The platform certainly did not take the piece, and never will."""


class SendUnknown(HermesError):
    """The piece was handed to the connection, and no answer came: it may have arrived."""

    state = "unknown: the piece may have arrived"


class PlatformDown(HermesError):
    """The platform cannot be reached, or ended the connection; the gateway connects again."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message of a chat."""

    chat: str
    message: str
    """Its id, unique in the chat. A message that is delivered again has the same id."""
    sender: str
    """The id of the account that wrote it, which the platform vouches for."""
    text: str
    """Empty for a message without text."""
    is_group: bool = False
    is_mention: bool = False
    """Whether the message addresses the gateway."""
    is_edit: bool = False
    """Whether this is a new text of the message with this id; an empty text deletes it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A button, or the word that a person writes where there are none."""

    label: str
    text: str
    """The message that the button stands for."""


@dataclass(frozen=True, slots=True)
class AdapterTraits:
    """Properties of a platform."""

    longest: int
    """The limit of a rendered piece, in ``unit``."""
    unit: Literal["utf16", "bytes"]
    interval_s: float
    """The shortest time between two pieces in one chat."""
    is_one_line: bool = False
    """Whether a piece has no line breaks."""
    has_buttons: bool = False


class Adapter(Protocol):
    """One account of a platform."""

    @property
    def platform(self) -> str:
        """The kind of platform."""
        ...

    @property
    def account(self) -> str:
        """The id of the account; no secret, and the same after a restart."""
        ...

    @property
    def traits(self) -> AdapterTraits:
        """Properties of the platform."""
        ...

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Connect, and pass each message to ``accept``, in order, until cancelled; call ``ready`` once connected.

        A message is recorded when ``accept`` returns. Only then the adapter may acknowledge it to the platform.

        Raises:
            PlatformDown: the connection failed or ended. The gateway calls this again.
        """
        ...

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = ()) -> str:
        """Send a rendered piece, and return its receipt once the platform has taken it.

        Raises:
            NotSent: the platform did not take it, and may later.
            Rejected: the platform did not take it, and never will.
            SendUnknown: the platform may have taken it.
        """
        ...

    def render(self, text: str) -> str:
        """Return Markdown in the form of the platform."""
        ...

    async def close(self) -> None:
        """Release the connection; safe to call twice."""
        ...
