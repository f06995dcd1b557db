"""The contract of a backend: five methods, a record of facts, and protocols for everything optional.

A backend starts an argv in its target and returns the byte streams of the process. Sessions, timeouts, files, jobs,
PTYs and reconnection are implemented once, above this interface (``hermes_exec.terminal.terminal``).

A backend implements the abstract methods of ``Backend``, returns its ``BackendTraits``, and may also implement any of
the ``Supports...`` protocols. Callers ask for these through the functions at the end of this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from typing import Self

    from hermes_exec.config.profile import Profile

__all__ = (
    "Backend",
    "BackendTraits",
    "BulkTransfer",
    "Channel",
    "Check",
    "Exit",
    "ExitReceiver",
    "Leftover",
    "OpenOptions",
    "OutputReceiver",
    "PieceTransfer",
    "PipeTransfer",
    "Receiver",
    "Resource",
    "SupportsBulkTransfer",
    "SupportsHandover",
    "SupportsListing",
    "SupportsNesting",
    "SupportsPatterns",
    "SupportsReap",
    "SupportsRelease",
    "SupportsReopen",
    "SupportsSnapshot",
    "SupportsSuspend",
)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a channel ended: an exit ``code``, a ``signal`` number, or ``lost`` with the reason."""

    code: int | None = None
    signal: int | None = None
    lost: str = ""


class Receiver(Protocol):
    """Callbacks for the output and the end of a channel, called on the event loop's thread."""

    def on_data(self, data: bytes, /) -> None:
        """Handle bytes of standard output, in order."""

    def on_stderr(self, data: bytes, /) -> None:
        """Handle bytes of standard error, in order."""

    def on_close(self, exit: Exit, /) -> None:
        """Handle the end of the channel; called once, after the last output."""


@runtime_checkable
class ExitReceiver(Protocol):
    """Optional callback of a receiver, for channels that report the exit before the outputs have ended."""

    def on_exit(self, exit: Exit, /) -> None:
        """Handle the exit of the process; its own output has been delivered, that of its children may follow.

        Channels of a backend with the trait ``reports_exit`` call it at most once, before ``closed``.
        """


@runtime_checkable
class OutputReceiver(Protocol):
    """Optional attribute of a receiver that treats the end of the outputs as a loss, as a link to a guest does.

    A connection that ends cleanly looks like a process that closes its outputs and keeps running. Other receivers then
    wait for the exit of the process; for this one, ``closed`` with ``lost`` follows soon.
    """

    needs_output: bool


class Channel(ABC):
    """The byte streams of one started process. Every method is called on the event loop's thread."""

    @abstractmethod
    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes for standard input; never blocks or raises: ``closed`` reports a loss."""

    @abstractmethod
    def write_eof(self) -> None:
        """Close standard input once everything queued has been written."""

    @property
    @abstractmethod
    def unsent(self) -> int:
        """Bytes queued by ``write`` that the target has not accepted yet."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until ``unsent`` is low enough to write more, or the channel has closed."""

    @abstractmethod
    def pause(self) -> None:
        """Stop delivering output until ``resume``, so that full buffers block the process."""

    @abstractmethod
    def resume(self) -> None:
        """Continue to deliver output."""

    @abstractmethod
    def abandon(self) -> None:
        """Close the streams at once; ``closed`` follows. The process keeps running where it can."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the process, as far as the target permits, and close the streams."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of ``doctor``: the checked item, its status, an explanation, and a remedy."""

    name: str
    status: Literal["ok", "warning", "missing"]
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A target whose lease has expired: its ``target`` text, and why it could not be removed, if so."""

    target: str
    left: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """A running resource that this project created, such as a billed sandbox."""

    target: str
    since: float | None = None
    """When it was created, in seconds since 1970."""
    state: str = ""
    size: str = ""
    """Its CPUs, memory and so on, for display."""
    owner: str = ""
    """The orchestrator that created it."""
    hourly_cost: float | None = None
    """US dollars an hour; None if that is not known."""
    price_source: str = ""
    """The vendor's page and its day, if the price is an estimate; empty if a profile states it."""


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options of ``Backend.open``; assign a new value to ``Backend.options`` before it."""

    lease_s: float = 900.0
    """Seconds that the resource created by ``open`` outlives an orchestrator that vanished."""
    keepalive_s: float = 15.0
    """Seconds of silence after which a peer is probed, while a request waits for it."""
    reopen: bool = False
    """Whether the target existed before, so that a missing one raises ``PlaceGone``."""
    take_ownership: bool = False
    """Whether ``close`` also removes a resource that this ``open`` finds, because its creator is dead."""
    personal: bool = False
    """Whether a person opens the target for commands of their own, and not for an agent or a program."""
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the processes that serve us on this machine, and so of everything that they start."""

    @classmethod
    def from_profile(cls, profile: Profile) -> Self:
        """Return the options that a profile states."""
        return cls(lease_s=profile.lease_s, keepalive_s=profile.keepalive_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTraits:
    """Facts about a target that decide how the layers above use it."""

    features: frozenset[str] = frozenset()
    """Those of ``Backend.features`` that this target has."""
    pythons: Sequence[str] = ("/usr/bin/python3", "python3", "/usr/libexec/platform-python")
    """Interpreters to try in the target, best first; empty where only the plain transport works."""
    same_python: bool = False
    """Whether the first of ``pythons`` is the running interpreter, which accepts compiled code from here."""
    reattaches: bool = True
    """Whether a second ``spawn`` finds the processes of the first, as reconnecting requires."""
    migrates: bool = False
    """Whether the target may move, with its files and without its processes, while it is open."""
    shares_host: bool = False
    """Whether processes run as this user on this machine, so that their pipes are in this /proc."""
    high_latency: bool = False
    """Whether sending fewer bytes is worth a slower start of the guest; known once the target is open."""
    authenticated: bool = False
    """Whether a byte that changes in transit ends the connection, so that comparing hashes adds nothing."""
    needs_checksum: bool = True
    """Whether a byte may change in transit unnoticed, so that streams carry checksums."""
    guarded: bool = False
    """Whether commands are trusted less than the guest, which then protects its memory from them."""
    reports_exit: bool = False
    """Whether channels call ``exited`` of an ``ExitReceiver``."""


class _Fetcher(Protocol):
    """A vendor's file transfer. Every failure raises a HermesError or an OSError."""

    piece: int
    """The most bytes that the caller passes at once."""

    def fetch(self, path: str, /) -> AsyncIterator[bytes]:
        """Return the content of a file, in chunks."""
        ...


@runtime_checkable
class PieceTransfer(_Fetcher, Protocol):
    """A file transfer that creates whole files in the target."""

    async def put(self, path: str, data: bytes, /) -> None:
        """Create a file."""


@runtime_checkable
class PipeTransfer(_Fetcher, Protocol):
    """A file transfer that has a byte stream of its own into the target."""

    async def pour(self, path: str, pieces: AsyncIterator[bytes | memoryview], /) -> None:
        """Write all ``pieces`` into the named pipe ``path``."""


BulkTransfer = PieceTransfer | PipeTransfer
"""The file transfer of a vendor; ``hermes_exec.files.bulk_transfer`` verifies its results."""


class Backend(ABC):
    """One kind of target. Create a backend from its profile, ``open`` it, ``spawn`` in it, ``close`` it."""

    type: ClassVar[str]
    """The name that profiles and targets use."""

    features: ClassVar[frozenset[str]] = frozenset()
    """Optional capabilities that this kind of target may have, such as ``snapshot``, ``suspend`` and ``gpu``."""

    profile: Profile | None = None
    """The profile that this was created from; ``hermes_exec.open`` applies its ``cwd``, ``env`` and so on."""

    options: OpenOptions = OpenOptions()
    """Options of ``open``."""

    def __repr__(self) -> str:
        """Return the class and the one-line target, which has no secrets."""
        return f"<{type(self).__name__} {self.target}>"

    @property
    @abstractmethod
    def target(self) -> str:
        """A one-line target that opens the same target again, without secrets."""

    @property
    def traits(self) -> BackendTraits:
        """Facts about this target; some are known only once it is open."""
        return BackendTraits(features=self.features)

    @classmethod
    @abstractmethod
    def from_profile(cls, profile: Profile) -> Backend:
        """Create the backend from a validated profile, without a side effect outside the process."""

    @classmethod
    @abstractmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check whether this machine can use such targets.

        ``profile`` names the account, engine, program or files to check; without it, the usual ones are checked.
        """

    @abstractmethod
    async def open(self) -> None:
        """Connect to the target, or create it.

        Raises:
            PlaceUnavailable: it cannot be reached or created; nothing is left behind.
            PlaceGone: it no longer exists, and ``options.reopen`` is set.
        """

    @abstractmethod
    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start ``argv`` in the target and connect its streams to ``receiver``.

        ``env`` is added to the environment of the target.

        Raises:
            PlaceUnavailable: it could not be started; nothing ran.
        """

    @abstractmethod
    async def close(self, *, keep: bool = False) -> None:
        """Disconnect, and remove the resource that ``open`` created unless ``keep``. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The variables of this process that commands inherit, and the names of those that are withheld as secrets."""

    variables: Mapping[str, str]
    withheld: Sequence[str]


@runtime_checkable
class SupportsInheritance(Protocol):
    """A backend on this machine, whose commands inherit variables of this process."""

    def select_inherited(self) -> Inherited:
        """Return what commands inherit with these ``options``."""
        ...


@runtime_checkable
class SupportsReopen(Protocol):
    """A backend whose ``open`` creates a resource that a later ``open`` can find."""

    @property
    def resource_id(self) -> str:
        """The value of the profile's ``attach_field`` that finds the created resource; empty where there is none.

        For nested targets: the values of all of them, innermost first, separated by ``+``.
        """
        ...


@runtime_checkable
class SupportsRelease(Protocol):
    """A backend that can leave its target to the jobs that run there."""

    async def release(self) -> None:
        """Disconnect while jobs run; the resource that ``open`` created ends after the last one."""


@runtime_checkable
class SupportsSnapshot(Protocol):
    """A backend that can save the files of its target."""

    async def snapshot(self, name: str | None = None) -> str:
        """Save the files under ``name``; return the target that opens a copy of them."""
        ...


@runtime_checkable
class SupportsCopies(SupportsSnapshot, Protocol):
    """A backend whose snapshots take seconds and cost nothing, so that one may be taken for a moment."""

    async def check_copies(self) -> None:
        """Check that a snapshot of this target may be copied, and takes seconds.

        Raises:
            Unsupported: it may not, or its files are too large; the message says why.
            PlaceUnavailable: the target does not answer.
        """
        ...

    def create_copy(self, snapshot: str) -> Backend:
        """Create the backend of a target that starts from a snapshot of this one, with its limits.

        It has neither the mounts of this target nor its secrets.
        """
        ...

    async def remove_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot.

        Raises:
            PlaceUnavailable: it could not be removed.
        """
        ...


@runtime_checkable
class SupportsSuspend(Protocol):
    """A backend that can stop its target without losing memory."""

    async def suspend(self) -> None:
        """Stop every process in the target until ``resume``."""

    async def resume(self) -> None:
        """Continue every process that ``suspend`` stopped."""


@runtime_checkable
class SupportsBulkTransfer(Protocol):
    """A backend whose vendor transfers large files faster than a channel."""

    @property
    def bulk_transfer(self) -> BulkTransfer | None:
        """The vendor's file transfer; None where it is not faster."""
        ...


@runtime_checkable
class SupportsHandover(Protocol):
    """A backend with the trait ``migrates``, which reports each migration."""

    handover: Callable[[], Awaitable[Callable[[], Awaitable[None]]]] | None
    """Awaited right before the files are copied to the new target; its result is awaited after the migration has
    succeeded or failed. Set by the link to the guest in the target."""


@runtime_checkable
class SupportsNesting(Protocol):
    """A backend whose target can be inside another one; see ``hermes_exec.wrapper``."""

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """Create the backend of a target inside ``outer``."""
        ...


@runtime_checkable
class SupportsReap(Protocol):
    """A backend whose targets can outlive their orchestrators."""

    @classmethod
    async def reap(cls) -> list[Leftover]:
        """Remove targets whose lease has expired; return them.

        Raises:
            PlaceUnavailable: there is no service or engine to ask.
        """
        ...


@runtime_checkable
class SupportsListing(Protocol):
    """A backend whose targets cost money while they run."""

    @classmethod
    async def list_resources(cls, profile: Profile | None = None) -> list[Resource]:
        """List the running resources of this project on the account of ``profile``, or on the default account.

        Raises:
            PlaceUnavailable: there is no service to ask.
        """
        ...


@runtime_checkable
class SupportsPatterns(Protocol):
    """A backend whose targets are listed on this machine, so that a pattern can select them."""

    @classmethod
    def find_targets(cls, pattern: str) -> list[str]:
        """Return the one-line targets that ``pattern``, the text after ``TYPE:`` with ``*`` and ``?``, selects.

        May block for seconds.

        Raises:
            HermesError: the list cannot be read.
        """
        ...


def get_resource_id(backend: Backend) -> str:
    """Return the identifier of the resource that ``open`` created, or an empty string."""
    return backend.resource_id if isinstance(backend, SupportsReopen) else ""


async def release(backend: Backend) -> None:
    """Disconnect while jobs run in the target."""
    await (backend.release() if isinstance(backend, SupportsRelease) else backend.close(keep=True))


def require_snapshot(backend: Backend) -> SupportsSnapshot:
    """Return the backend as one that can save a snapshot.

    Raises:
        Unsupported: it cannot.
    """
    if not isinstance(backend, SupportsSnapshot):
        raise _lacking(backend, "snapshot")
    return backend


def require_suspend(backend: Backend) -> SupportsSuspend:
    """Return the backend as one that can be suspended.

    Raises:
        Unsupported: it cannot.
    """
    if not isinstance(backend, SupportsSuspend):
        raise _lacking(backend, "suspend")
    return backend


def get_bulk_transfer(backend: Backend) -> BulkTransfer | None:
    """Return the vendor's file transfer, or None."""
    return backend.bulk_transfer if isinstance(backend, SupportsBulkTransfer) else None


def nest(kind: type[Backend], profile: Profile, outer: Backend) -> Backend:
    """Create the backend of a target inside ``outer``.

    Raises:
        Unsupported: such a target cannot be inside another one.
    """
    if not issubclass(kind, SupportsNesting):
        raise Unsupported(
            f"{kind.type}: such a target cannot be inside another one",
            remedy=f"without 'via', or {kind.type} as the outermost target",
        )
    return kind.nest(profile, outer)


async def reap_expired(kind: type[Backend]) -> list[Leftover]:
    """Remove targets of this kind whose lease has expired; return them."""
    return await kind.reap() if issubclass(kind, SupportsReap) else []


async def list_resources(kind: type[Backend], profile: Profile | None = None) -> list[Resource]:
    """List the running resources of this kind that cost money."""
    return await kind.list_resources(profile) if issubclass(kind, SupportsListing) else []


def _lacking(backend: Backend, feature: str) -> Unsupported:
    return Unsupported(f"{backend.target}: no {feature} of such a target", remedy="see Terminal.capabilities.features")
