"""Every error this project raises.

HermesError
├── UsageError               the caller asked for something impossible; nothing ran (also ValueError)
│   ├── ConfigError          a profile or a configuration file is wrong; nothing ran
│   └── Unsupported          this place cannot do that, and says why; nothing ran
│       └── MissingExtra     an optional package is not installed; names the command that installs it; nothing ran
├── PlaceError               the place, or the way to it, failed us
│   ├── PlaceUnavailable     it could not be reached or opened; nothing ran (also ConnectionError)
│   │   └── PlaceGone        and it never will be again, so there is no use in trying; nothing ran
│   ├── OutcomeUnknown       it was lost while this ran: nobody knows how it ended (also ConnectionError)
│   └── ProtocolError        the other side broke the protocol; the connection was dropped
├── CommandFailed            ``check=True`` and the command did not succeed; carries its Result
├── TransferError            a file operation failed in the place (also OSError)
├── Refused                  an untrusted program is not proven, or was changed since; nothing ran
└── Closed                   the terminal, session or job was already closed; nothing ran

A command that fails is a result; an error means that *we* could not do our part. Every error says
what failed, why, what to try (``remedy``) and what is true now (``state``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec.result import Result

NOTHING_RAN = "nothing ran"
_LONGEST = 300
"""Characters of a command that an error shows."""


class HermesError(Exception):
    """The root: ``what`` failed and why, ``remedy`` to try, ``state`` that holds afterwards."""

    state = NOTHING_RAN
    place = ""
    """The target of the place that failed, where it is one of several inside of each other."""

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
    """The place lacks what the call needs; ``Terminal.capabilities`` tells beforehand."""


class MissingExtra(Unsupported):
    """An optional package that the call needs is not installed; ``remedy`` is the command that installs it."""


class PlaceError(HermesError):
    """The place, or the way to it, failed."""


class PlaceUnavailable(PlaceError, ConnectionError):
    """The place could not be opened or reached, so nothing was executed."""


class PlaceGone(PlaceUnavailable):
    """The place has ended for good (a container that died, a job's allocation that is over); nothing was executed."""


class OutcomeUnknown(PlaceError, ConnectionError):
    """The place was lost after the request was sent; it may have run, wholly or in part, once."""

    state = "unknown: the place was lost"


class ProtocolError(PlaceError):
    """The other side sent what the protocol forbids; the connection was dropped."""

    state = "unknown: the connection was dropped"


class CommandFailed(HermesError):
    """The command ran to its end and failed; ``result`` holds everything it gave."""

    state = "it ran to its end"

    def __init__(self, command: str, result: Result, last_words: str = "") -> None:
        self.command = command
        self.result = result
        why = f"{result.reason}; it wrote: {last_words}" if last_words else result.reason
        super().__init__(f"{command:.{_LONGEST}}: {why}")


class TransferError(HermesError, OSError):
    """A file operation failed in the place; ``errno`` is the place's own number."""

    def __init__(self, what: str, *, code: int = 0, remedy: str = "", state: str = "") -> None:
        HermesError.__init__(self, what, remedy=remedy, state=state or "nothing was changed")
        self.errno = code


class Refused(HermesError):
    """What was asked for is not proven, was changed since, or could be changed by others; nothing ran."""


class Closed(HermesError):
    """The object was closed before the call."""
