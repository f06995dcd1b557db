"""Hooks: plugins that are called at the start and at the end of every command.

A distribution registers a hook as an entry point of the group ``hermes_exec.hooks``: an object with one or both
methods of ``Hook``, or a factory without arguments that returns such an object. Only hooks that the user's own
``hermes.toml`` names (``hooks = ["NAME"]``) are loaded.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from hermes_exec.config.plugins import find_plugins, load_entry_point
from hermes_exec.config.registry import suggest_name
from hermes_exec.errors import ConfigError, PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import EntryPoint

    from hermes_exec.observe.redact import Redactor

GROUP = "hermes_exec.hooks"
METHODS = ("on_command_start", "on_command_end")

_log = logging.getLogger(GROUP)


@dataclass(frozen=True, slots=True)
class CommandStart:
    """A command, job or PTY was sent to its target. Known secrets are removed from every text."""

    terminal: str
    """The terminal that sent it; ``terminal`` and ``id`` together are unique."""
    id: str
    at: float
    """Seconds since 1970."""
    target: str
    session: str
    """The name of its session, or of the job; empty for an argv list."""
    kind: str
    """``shell``, ``argv``, ``job`` or ``pty``."""
    command: str
    cwd: str
    """The working directory that it was given; empty for the session's own."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """A command, job or PTY ended, failed to start, or its outcome is unknown."""

    terminal: str
    id: str
    """As in its ``CommandStart``. A job may end in another process than the one that started it; its id is the same."""
    at: float
    target: str
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_s: float
    stdout_bytes: int
    stderr_bytes: int
    error: str
    """Why it has neither exit code nor signal; empty if it has one of them."""


class Hook(Protocol):
    """The methods of a hook; either one may be missing.

    They are called on the event loop, so they must return quickly; a hook that writes to a slow device hands the event
    to a thread of its own. A hook that raises is logged once, and changes nothing for the command.
    """

    def on_command_start(self, event: CommandStart, /) -> object:
        """Handle a command that was sent."""

    def on_command_end(self, event: CommandEnd, /) -> object:
        """Handle a command that ended."""


class LoadedHook:
    """A hook of this process, and whether a failure of it was logged."""

    def __init__(self, name: str, hook: object) -> None:
        self.name = name
        self._hook = hook
        self._failed = False

    def call(self, method: str, event: CommandStart | CommandEnd) -> None:
        """Call a method, if the hook has it; its errors are logged once and go no further."""
        function: Callable[[object], object] | None = getattr(self._hook, method, None)
        if function is None:
            return
        try:
            function(event)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a plugin may raise anything, sys.exit included
            if not self._failed:
                self._failed = True
                _log.warning("the hook %r failed in %s, and may miss commands: %r", self.name, method, error)


class CommandHooks:
    """The hooks of one terminal."""

    def __init__(self, hooks: Iterable[LoadedHook], redactor: Redactor) -> None:
        self._hooks = tuple(hooks)
        self._redact = redactor.redact
        self._terminal = f"{os.getpid()}-{os.urandom(4).hex()}"

    def record_start(self, id: str, target: str, session: str, kind: str, command: str, cwd: str) -> None:
        """Call the hooks for a command that was sent."""
        texts = (self._redact(text) for text in (target, session, kind, command, cwd))
        event = CommandStart(self._terminal, id, time.time(), *texts)
        for hook in self._hooks:
            hook.call("on_command_start", event)

    def record_end(self, id: str, target: str, *facts: Any) -> None:
        """Call the hooks for a command that ended; ``facts`` are the fields of ``CommandEnd`` from ``exit_code`` on."""
        event = CommandEnd(self._terminal, id, time.time(), self._redact(target), *facts)
        event = replace(event, error=self._redact(event.error))
        for hook in self._hooks:
            hook.call("on_command_end", event)


_loaded: dict[str, LoadedHook] = {}
_loading = threading.Lock()


def load_hooks(names: Iterable[str]) -> tuple[LoadedHook, ...]:
    """Load the named hooks; each is created once in a process.

    Raises:
        ConfigError: no installed distribution registers a hook of that name, or two of them do.
        PlaceUnavailable: a hook cannot be loaded, or has no method of a hook.
    """
    names = list(names)
    with _loading:
        if missing := [name for name in names if name not in _loaded]:
            points = find_hooks(missing)
            _loaded.update({name: LoadedHook(name, _create(points[name])) for name in missing})
        return tuple(_loaded[name] for name in names)


def find_hooks(names: Iterable[str]) -> dict[str, EntryPoint]:
    """Return the entry points of the named hooks, without loading them.

    Raises:
        ConfigError: no installed distribution registers a hook of that name, or two of them do.
    """
    points = find_plugins(GROUP, is_reserved=lambda _: False)
    for name in names:
        if name not in points:
            near = suggest_name(name, points, "; the nearest known one is")
            remedy = "install the distribution that registers it, or remove it from 'hooks' in hermes.toml"
            raise ConfigError(f"no installed distribution registers the hook {name!r}{near}", remedy=remedy)
    return {name: points[name] for name in names}


def _create(point: EntryPoint) -> object:
    hook = load_entry_point(point)
    where = f"the hook {point.name!r} ({point.value})"
    if isinstance(hook, type) or (callable(hook) and not _has_method(hook)):
        try:
            hook = cast("Callable[[], object]", hook)()
        except Exception as error:  # a plugin's code may raise anything
            raise PlaceUnavailable(f"{where} cannot be created: {error!r}") from error
    if not _has_method(hook):
        raise PlaceUnavailable(f"{where} has neither of the methods {' and '.join(METHODS)}")
    return hook


def _has_method(hook: object) -> bool:
    return any(callable(getattr(hook, method, None)) for method in METHODS)
