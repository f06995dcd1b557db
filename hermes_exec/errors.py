"""Every error this project raises.

HermesError
├── UsageError               the caller asked for something impossible; nothing ran (also ValueError)
│   ├── ConfigError          a profile or a configuration file is wrong; nothing ran
│   └── Unsupported          the target does not support the request; nothing ran
│       └── MissingExtra     an optional package is not installed; names the command that installs it; nothing ran
├── PlaceError               the target, or the connection to it, failed
│   ├── PlaceUnavailable     the target could not be reached or opened; nothing ran (also ConnectionError)
│   │   └── PlaceGone        the target has ended for good, so a retry fails too; nothing ran
│   ├── OutcomeUnknown       the target was lost while this ran, so its outcome is not known (also ConnectionError)
│   └── ProtocolError        the other side violated the protocol; the connection was dropped
├── GatherFailed             ``gather`` raised in some terminals; carries every result and error
├── CommandFailed            ``check=True`` and the command did not succeed; carries its Result
├── TransferError            a file operation failed in the target (also OSError)
├── Refused                  an untrusted program is not proven, or was changed since; nothing ran
└── Closed                   the terminal, session or job was already closed; nothing ran

A command that fails is a result; an error means that hermes_exec itself could not do its part. Every error states
the failure and its cause (``what``), a remedy to try (``remedy``) and the state afterwards (``state``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.result import Result

NOTHING_RAN = "nothing ran"
_LONGEST = 300
"""Characters of a command that an error shows."""


class HermesError(Exception):
    """The base class: ``what`` failed and why, the ``remedy`` to try, the ``state`` afterwards."""

    state = NOTHING_RAN
    place = ""
    """The target that failed, when targets are nested; else empty."""

    def __init__(self, what: str, *, remedy: str = "", state: str | None = None) -> None:
        self.what = what
        self.remedy = remedy
        if state is not None:
            self.state = state
        super().__init__(f"{what}. Try: {remedy}" if remedy else what)


class UsageError(HermesError, ValueError):
    """The request itself is wrong, so nothing was attempted."""


class ConfigError(UsageError):
    """A profile, a target or a configuration file is wrong."""


class Unsupported(UsageError):
    """The target does not support the request; ``Terminal.capabilities`` lists its features beforehand."""


class MissingExtra(Unsupported):
    """An optional package that the call needs is not installed; ``remedy`` is the command that installs it."""


class PlaceError(HermesError):
    """The target, or the connection to it, failed."""


class PlaceUnavailable(PlaceError, ConnectionError):
    """The target could not be opened or reached, so nothing was executed."""

    guest_is_gone = False
    """Whether the guest has ended for good, with its jobs; False if that is not known."""


class PlaceGone(PlaceUnavailable):
    """The target has ended for good (a container that died, an allocation that expired); nothing was executed."""

    guest_is_gone = True


class OutcomeUnknown(PlaceError, ConnectionError):
    """The target was lost after the request was sent; the request may have run once, wholly or in part."""

    state = "unknown: the target was lost"


class ProtocolError(PlaceError):
    """The other side violated the protocol; the connection was dropped."""

    state = "unknown: the connection was dropped"


class CommandFailed(HermesError):
    """The command ran to its end and failed; ``result`` is its Result.

    The message has the end of stderr on one line. A note (``add_note``), which tracebacks show, has its last lines.
    """

    state = "it ran to its end"

    def __init__(self, command: str, result: Result, last_words: str = "", last_lines: Sequence[str] = ()) -> None:
        self.command = command
        self.result = result
        why = f"{result.reason}; it wrote: {last_words}" if last_words else result.reason
        super().__init__(f"{command:.{_LONGEST}}: {why}")
        if len(last_lines) > 1:
            self.add_note("\n".join(["the last lines that it wrote:", *(f"    {line}" for line in last_lines)]))


class GatherFailed(HermesError):
    """``gather`` raised in at least one terminal; ``outcomes`` has the Result or the error of each, in their order."""

    state = "the other commands ran to their ends"

    def __init__(self, targets: Sequence[str], outcomes: Sequence[Result | HermesError]) -> None:
        self.targets = tuple(targets)
        self.outcomes = tuple(outcomes)
        pairs = zip(targets, outcomes, strict=True)
        failed = [(target, error) for target, error in pairs if isinstance(error, HermesError)]
        target, error = failed[0]
        super().__init__(f"{len(failed)} of {len(outcomes)} terminals failed; the first is {target}: {error}")


class TransferError(HermesError, OSError):
    """A file operation failed in the target; ``errno`` is the number that the target reported."""

    def __init__(self, what: str, *, code: int = 0, remedy: str = "", state: str = "") -> None:
        HermesError.__init__(self, what, remedy=remedy, state=state or "nothing was changed")
        self.errno = code


class Refused(HermesError):
    """The program is not proven, was changed since, or can be changed by other users; nothing ran."""


class Closed(HermesError):
    """The object was closed before the call."""
