"""The options of an orchestrator's pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hermes_exec._arguments import check_calls
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.terminal.terminal import Terminal


@check_calls
@dataclass(frozen=True, slots=True)
class Pool:
    """Terminals that are alike: where they are opened, how many wait ready, and whether they are used again.

    Raises:
        UsageError: a number is out of range, or ``reset`` is given where nothing is kept.
    """

    target: str | Callable[[], Backend] | None = None
    """A profile's name, a one-line target, what makes a new Backend, or None for the configured default."""
    warm: int = 0
    """How many are kept open and ready; opened and replaced in the background."""
    reset: str | Sequence[str] | Callable[[Terminal], Awaitable[object]] | None = None
    """How a used target is made clean for the next caller: text for a ``sh`` of its own, a program and its
    arguments, or a function. Left out, a target is used once. The next one gets a new Terminal: shells,
    variables, forwards and running commands of the last one are gone; files are what a reset is for."""
    reset_s: float = 60.0
    """Seconds that making a target clean may take; one that is not clean by then is closed and replaced."""
    place: str = ""
    """Terminals of pools with the same word count together towards its limit; the target if left out."""
    hold_s: float | None = None
    """Seconds after which a terminal that was handed out is closed, whatever runs on it."""
    cwd: str | None = None
    """The folder that commands start in."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables for every command."""
    lease_s: float | None = None
    """Seconds that the target keeps running after the orchestrator vanished; the profile's own if left out."""
    carrier: Literal["auto", "guest", "plain"] | None = None
    """As for ``hermes_exec.open``."""
    audit: bool | None = None
    """As for ``hermes_exec.open``."""

    def __post_init__(self) -> None:
        if self.warm < 0:
            raise UsageError(f"{self.warm} warm terminals", remedy="0 or more")
        if self.reset is not None and not self.warm:
            raise UsageError("a reset where no terminal is kept to be used again", remedy="warm=1 or more")
        for name, value in (("hold_s", self.hold_s), ("reset_s", self.reset_s)):
            if value is not None and value <= 0:
                raise UsageError(f"{name} of {value} s", remedy="more than 0")

    @property
    def limit_key(self) -> str:
        """The name of the target whose limit its terminals count towards."""
        if self.place or isinstance(self.target, str):
            return self.place or str(self.target)
        return "default" if self.target is None else f"pool {id(self):x}"
