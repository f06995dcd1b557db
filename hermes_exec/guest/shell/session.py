"""A session: a live shell, the queue of its commands, checkpoints, and recovery when the shell ends or breaks.

The shell's state is written when it is idle, before a command that may replace or kill it, and by its own EXIT trap.
After a shell has ended, a new one starts with the last state; the answer reports that.
"""

from _collections import deque

from ..core import process_tree
from ..core.fdutil import remove_folder
from ..core.loop import now
from ..process.command import describe_error
from .folders import ShellSpec, reset_state
from .orphans import Orphans
from .shell import LiveShell, commit_state, describe_status
from .shell_command import ShellCommand, ShellOutputs
from .shell_text import BROKEN, MOVED, REPLACED, UNREADABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque

    from ..core.loop import Loop
    from ..core.server import Request
    from .inotify_watcher import InotifyWatcher
    from .polling_watcher import PollingWatcher

_GRACE_S = 0.5
KEPT, RESTORED, ROLLED_BACK = range(3)
_IDLE_S = 0.02
"""Seconds without a command, in any session, after which the state is written."""
_LATEST_S = 1.0
"""Seconds after which the state is written even if other sessions are busy: writing costs more than a short command."""
_SLOWEST_S = 1.0
_EXEC = b"exec"
_RISKY = (_EXEC, b"kill")
_WARY = b"trap"  # after these the EXIT trap may be replaced


class CheckpointScheduler:
    """A scheduler that calls ``look`` at intervals while a command runs or there is state to write.

    A session has one timer, and only while a checkpoint or a check for a stuck shell may be due, so that a thousand
    idle sessions cost nothing.
    """

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


class ShellSession:
    """A live shell and its successors."""

    def __init__(
        self, watches: "InotifyWatcher | PollingWatcher", request: "Request", arguments: "dict[str, Any]"
    ) -> None:
        self._loop = request.client.server.loop
        self._recipe = ShellSpec(request.client, arguments)
        self.folder = self._recipe.folder
        self._watches = watches
        self._request = request
        self._outputs = ShellOutputs(request)
        self._queue: "Deque[ShellCommand]" = deque()
        self._current: "ShellCommand | None" = None
        self._internal: "Callable[[int, bool], None] | None" = None
        self._shell: "LiveShell | None" = None
        self._settling = self._replacing = False
        self._closed: "Callable[[], None] | None" = None
        self._orphans = Orphans(self._loop, self.folder)
        self._state = KEPT
        self._note = watches.note
        self._code = 0
        self._stillborn = 0
        if arguments.get("state"):
            self._state, self._note = ROLLED_BACK, MOVED
        self._lookout = CheckpointScheduler(self._loop, self.check)
        self._start_shell()

    def _start_shell(self) -> None:
        self._ready = self._whole = False
        try:
            outputs = self._outputs.open()
            self._shell = LiveShell(self._loop, self._watches, self._recipe, outputs, self._on_open, self._on_exit)
            self._orphans.record(process_tree.living_processes([self._shell.pid]))
        except OSError:
            self._outputs.retire()
            raise

    def submit(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Run the command of a request after those submitted before."""
        self._queue.append(ShellCommand(self.folder, self._stop, request, arguments))
        self._next()

    def _next(self) -> None:
        if self._current or self._internal or self._settling or self._replacing or self._closed or not self._queue:
            return
        shell = self._shell
        try:
            if shell is None:
                self._start_shell()
            elif self._ready:
                if self._lookout.is_due_before(self._queue[0].text) and self._checkpoint():
                    return
                self._current = self._queue.popleft()
                self._run(shell, self._current)
        except OSError as error:
            command = self._queue.popleft() if self._current is None else self._current
            self._current = None
            self._refuse(command, error)

    def _refuse(self, command: ShellCommand, error: OSError) -> None:
        """Refuse a command that could not start for lack of a resource, such as disk space; run the next."""
        command.disconnect(self._shell)
        command.refuse(describe_error(error), error.errno or 0)
        self._settling = True
        self._loop.call_soon(self._settle)

    def _run(self, shell: LiveShell, command: ShellCommand) -> None:
        command.connect(self._outputs.taps, shell)
        command.begin()
        text = self._recipe.dialect.status(self._code, command.text) + command.text
        shell.run(text, command.wrap(self._recipe.dialect), self._outputs.switch_text)
        self._outputs.on_switched()
        self._lookout.on_command_start()

    def _on_open(self, name: bytes) -> None:
        """Handle the opening of a file in the status folder by the shell."""
        command = self._current
        if self._replacing:
            return
        if name in (b"stdin", b"cwd"):
            if command is not None:
                command.on_opened(name)
        elif name == b"whole":
            self._whole = True
        elif not self._ready:
            self._ready = True
            self._stillborn = 0
            if not self._whole:
                self._state, self._note = ROLLED_BACK, UNREADABLE
            self._next()
        elif name.isdigit():
            self._status(int(name))

    def _status(self, code: int) -> None:
        begun = self._shell is not None and self._shell.has_begun()
        command = self._current
        internal, self._internal = self._internal, None
        if internal is not None:
            internal(code, begun)
        elif command is None:
            self._replace()
        elif command.bad_folder:
            command.set_missing_folder()
            self._on_done(command, code)
        elif begun:
            self._on_done(command, code)
        elif not code or not self._ask(
            b"", lambda _, works: self._on_done(command, code) if works else self._replace()
        ):
            self._replace()  # either a syntax error or a shadowed loop: an empty command shows which

    def _replace(self) -> None:
        """Run the current command in a new shell, as the old one's loop is shadowed and ran nothing of it."""
        self._note = REPLACED
        command = self._current
        if command is not None and not command.stopping:
            self._current = None
            try:
                command.rewind()
                self._queue.appendleft(command)
            except OSError as error:
                self._refuse(command, error)
        if self._shell is not None:
            self._replacing = True
            self._shell.kill()

    def _on_done(self, command: ShellCommand, code: int) -> None:
        if not command.stopping:
            command.answer["code"] = self._code = code
            if _EXEC in command.text and self._shell is not None:
                self._note = self._note or self._outputs.describe_redirect(self._shell)
            self._deliver(command)

    def _deliver(self, command: ShellCommand) -> None:
        if not command.over:
            command.over = True
            command.drain(lambda: self._finish(command))

    def _finish(self, command: ShellCommand) -> None:
        command.disconnect(self._shell)
        if self._state != KEPT:
            command.answer["shell"] = self._state
            self._state = KEPT
        if self._note:
            command.answer.setdefault("note", self._note)
            self._note = ""
        command.finish()
        self._current = None
        self._lookout.on_command_end()
        self._settling = True
        self._loop.call_soon(self._settle)  # after the answer was sent

    def _settle(self) -> None:
        """Separate the background processes of the last command from the next command."""
        self._settling = False
        shell = self._shell
        if shell is None:
            self._outputs.retire()
        elif shell.has_children():
            shell.kept = process_tree.living_processes(shell.descendants())
            self._orphans.record(shell.kept)
            self._note = self._note or self._outputs.renew(shell)
        self._next()

    def _ask(self, text: bytes, told: "Callable[[int, bool], None]") -> bool:
        """Have the shell run text of the guest; return False if it cannot, for example without disk space."""
        try:
            if self._shell is not None:
                self._shell.run(text)
                self._internal = told
        except OSError:
            pass
        return self._internal is told

    def _checkpoint(self) -> bool:
        self._lookout.dirty = False
        return self._ask("{{ . {}/dump; }} >/dev/null 2>&1".format(self.folder).encode(), self._on_checkpoint)

    def _on_checkpoint(self, _: int, begun: bool) -> None:
        if not begun:
            return self._replace()
        commit_state(self.folder)
        return self._next()

    def check(self) -> bool:
        """Check the shell for the checkpoint scheduler; return whether to check again."""
        shell = self._shell
        if shell is None or not self._ready or self._closed:
            return False
        if self._current is None:
            if self._lookout.idle_long_enough and not self._internal:
                self._checkpoint()
            return self._lookout.dirty and not self._internal
        command = self._current
        settled = command.stopping or command.over  # it has its status, but a slow reader
        if not settled and self._lookout.is_stuck(waits=shell.is_waiting):
            owed = (command, self._internal)
            self._watches.catch_up()  # its status may not have been handled yet
            if (self._current, self._internal) == owed and not command.over:
                command.answer["note"] = BROKEN
                self._replacing = True  # files that are closed as it dies may still report a status
                shell.kill_command(_GRACE_S, lambda _: None)
        return True

    def _stop(self, command: ShellCommand) -> None:
        """Stop a command: a queued one never runs, the running one is killed with its process tree."""
        if command is self._current and self._shell is not None:
            self._shell.kill_command(command.grace_s, command.note_survivors)
        elif command in self._queue:
            self._queue.remove(command)
            command.withdraw()

    def _on_exit(self, status: int) -> None:
        """Handle the end of the shell: by itself, by a command, or by the guest."""
        shell, self._shell = self._shell, None
        stillborn = not self._ready and not self._replacing
        self._ready = self._replacing = False
        self._internal = None
        self._code = 0
        new: "set[process_tree.Process]" = self._orphans.claim(shell.pid) - shell.kept if shell is not None else set()
        self._state = RESTORED if commit_state(self.folder) else ROLLED_BACK
        self._lookout.dirty = False
        if self._closed is not None:
            self._end()
        elif self._current is not None:
            command = self._current
            command.set_exit_status(status)
            if command.stopping and new:  # it was started by the shell that was to be ended
                self._orphans.kill(new, command.grace_s, lambda _: self._deliver(command))
            else:
                self._deliver(command)
        else:
            self._stillborn = self._stillborn + 1 if stillborn else 0
            if self._stillborn:
                self._begin_anew(status)
            self._settle()

    def _begin_anew(self, status: int) -> None:
        """Restart after a shell that ended before it read a command: without its state, then give up."""
        why = "its shell ends as soon as it starts ({})".format(describe_status(status))
        if self._stillborn == 1:
            try:
                reset_state(self.folder)
            except OSError as error:
                why = describe_error(error)
            else:
                self._note = UNREADABLE
                return
        self._stillborn = 0
        while self._queue:
            self._queue.popleft().refuse(why)

    def close(self, done: "Callable[[], None]") -> None:
        """End the shell and all processes of its commands; ``done`` is called when they are gone."""
        self._closed = done
        for command in list(self._queue):
            command.cancel()
        if self._shell is None:
            return self._end()
        self._shell.kept = set()
        return self._shell.kill_command(_GRACE_S, lambda _: None)

    def _end(self) -> None:
        if self._current is not None:
            self._current.answer.setdefault("cancelled", True)
            self._deliver(self._current)
        else:
            self._outputs.retire()
        self._orphans.kill_all(_GRACE_S, self._on_gone)
        remove_folder(self.folder)

    def _on_gone(self, _: "list[int]") -> None:
        self._request.finish({})
        if self._closed is not None:
            self._closed()
