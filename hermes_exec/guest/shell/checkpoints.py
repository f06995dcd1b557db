"""Scheduling of state checkpoints, and detection of a stuck shell.

A session has one timer, and only while a checkpoint or a check may be due, so that a thousand idle sessions cost
nothing.
"""

from ..core.loop import now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop

_IDLE_S = 0.02
"""Seconds without a command, in any session, after which the state is written."""
_LATEST_S = 1.0
"""Seconds after which the state is written even if other sessions are busy: writing costs more than a short command."""
_SLOWEST_S = 1.0
EXEC = b"exec"
_RISKY = (EXEC, b"kill")
_WARY = b"trap"  # after these the EXIT trap may be replaced


class CheckpointScheduler:
    """A scheduler that calls ``look`` at intervals while a command runs or there is state to write."""

    _busy = 0.0
    """The time at which a command of any session last ended."""

    def __init__(self, loop: "Loop", look: "Callable[[], bool]") -> None:
        self.dirty = False
        """Whether a command has run since the state was last written."""
        self._loop = loop
        self._look = look
        self._wary = False
        self._waiting = 0
        self._ticking = False
        self._pause = _IDLE_S
        self._since = self._last = now()

    def is_due_before(self, text: bytes) -> bool:
        """Whether to write the state before a command that may end the shell without writing it."""
        self._wary = self._wary or _WARY in text
        return self.dirty and (self._wary or any(word in text for word in _RISKY))

    def on_command_start(self) -> None:
        """Schedule a look soon, then at growing intervals."""
        self._waiting = 0
        self._pause = _IDLE_S
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(_IDLE_S, self._tick)

    def on_command_end(self) -> None:
        """Schedule a checkpoint for when the sessions are idle."""
        self._pause = _IDLE_S
        self._last = CheckpointScheduler._busy = now()
        if not self.dirty:
            self.dirty = True
            self._since = self._last

    @property
    def idle_long_enough(self) -> bool:
        """Whether the state has to be written now."""
        moment = now()
        if not self.dirty or moment - self._last < _IDLE_S:
            return False
        return moment - CheckpointScheduler._busy >= _IDLE_S or moment - self._since >= _LATEST_S

    def is_stuck(self, *, waits: bool) -> bool:
        """Whether the shell waited for a command at this look and the last one, though a status is due."""
        self._waiting = self._waiting + 1 if waits else 0
        return self._waiting == 2

    def _tick(self) -> None:
        self._ticking = self._look()
        if self._ticking:
            self._pause = _IDLE_S if self.dirty or self._waiting else min(2 * self._pause, _SLOWEST_S)
            self._loop.call_later(self._pause, self._tick)
