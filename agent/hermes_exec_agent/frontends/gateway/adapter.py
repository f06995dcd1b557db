"""The contract of an adapter, which connects the gateway to one account of a messenger.

An adapter has three attributes and four methods. It keeps no state that has to survive a restart: the gateway records
messages and answers, and decides when a piece is sent and whether it is sent again. The protocols `FileSender`,
`Editor`, `Finder`, `HistoryReader`, `LateReporter` and `WebhookReceiver` (in ``listener``) are optional: an adapter
has their methods if its platform can do that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

ENTRY_POINTS = "hermes_exec.gateways"
"""The group of entry points that name a function ``(account, table) -> Adapter`` for each kind of platform."""

NOT_OWN = "[This message was forwarded, or sent via another bot: these are not the person's own words.]"
"""The first line of a message with the words of another author."""


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
class IncomingFile:
    """A file, an image or a voice note of a message."""

    name: str
    """As the sender named it, or empty; not safe as a path."""
    kind: str
    """The MIME type that the platform states; empty if it states none."""
    size: int | None
    """The bytes that the platform states; None if it states none."""
    read: Callable[[int], Awaitable[bytes]]
    """Return the content, which is at most that many bytes long.

    Raises `PlatformDown` if it cannot be read now, and `Rejected` if it is longer, or gone.
    """


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message of a chat."""

    chat: str
    """Its id; that of a thread in a group is ``GROUP THREAD``, so that a group that is on includes its threads."""
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
    """Whether this is a new text of the message with this id; an empty text without files deletes it."""
    files: tuple[IncomingFile, ...] = ()


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
    largest_file: int = 0
    """The bytes of the largest file that can be sent; 0 if none can. See `FileSender`."""
    can_edit: bool = False
    """Whether a piece that was sent can be changed. See `Editor`."""
    repeat: Literal["never", "key", "find"] = "never"
    """What is done with a piece that may have arrived.

    ``never``: nothing, it is unknown. ``key``: it is sent again with its key, by which the platform takes it once.
    ``find``: the platform is asked for the piece with that key, and it is sent again if it is certainly not there. See
    `Finder`.
    """
    repeat_s: float = 60.0
    """With ``key``: for how many seconds after the first try the platform knows the key; later the piece is unknown."""


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

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:
        """Send a rendered piece, and return its receipt once the platform has taken it.

        Args:
            chat: where.
            text: what `render` returned.
            choices: the buttons below it.
            key: the id of the piece, of 24 hexadecimal digits. It is the same if the piece is sent again.

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


@runtime_checkable
class FileSender(Protocol):
    """An adapter that can send files."""

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:
        """Send a file of at most ``largest_file`` bytes, and return its receipt; raises what `Adapter.send` does."""
        ...


@runtime_checkable
class Editor(Protocol):
    """An adapter that can change a piece that was sent."""

    async def edit(self, chat: str, receipt: str, text: str, choices: Sequence[Choice] = ()) -> None:
        """Replace the rendered text and the buttons of the piece with this receipt; with the same ones, do nothing.

        Raises:
            NotSent: the platform did not change it, and may later.
            Rejected: the platform did not change it, and never will.
            SendUnknown: the platform may have changed it.
        """
        ...


@runtime_checkable
class Finder(Protocol):
    """An adapter that can look up whether a piece arrived."""

    async def find(self, chat: str, key: str) -> str | None:
        """Return the receipt of the piece with this key, or None if it is certainly not there.

        Raises:
            NotSent: the platform cannot be asked now, and may be after ``retry_s`` seconds.
            SendUnknown: it cannot be known; the gateway asks a few times.
        """
        ...


@runtime_checkable
class HistoryReader(Protocol):
    """An adapter whose platform shows messages again that were written while the gateway was not connected."""

    def set_positions(self, find: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        """Take the function that returns the newest message of each chat that was seen.

        When it is connected, the adapter passes the messages after these to ``accept``, before any newer ones.
        """
        ...


class ReportLate(Protocol):
    """Records what became of a piece after its platform had taken it."""

    async def __call__(self, receipt: str, error: str = "", *, replacement: str = "") -> bool:
        """Record that the piece with this receipt was refused after all, or that another one took its place.

        Returns:
            whether there is such a piece; a report that comes again finds none.
        """
        ...


@runtime_checkable
class LateReporter(Protocol):
    """An adapter whose platform may take a piece, and report later that it was not delivered."""

    def set_report(self, report: ReportLate) -> None:
        """Take the function that records such a report."""
        ...
