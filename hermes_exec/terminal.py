"""The Terminal: one place, opened, and everything that can be done there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self, Unpack

from hermes_exec import execute
from hermes_exec.access import Access
from hermes_exec.collect import DEFAULT_MAX_OUTPUT
from hermes_exec.encoding import encode, encode_env, encode_words
from hermes_exec.errors import Unsupported
from hermes_exec.execute import DEFAULT_JOB_LEASE_S, Context, Options
from hermes_exec.finishing import finished
from hermes_exec.session import Session
from hermes_exec.spools import Spools
from hermes_exec.stream import Stream
from hermes_exec.within import opens

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from hermes_exec.backend import Backend
    from hermes_exec.carrier import Capabilities, Carrier
    from hermes_exec.encoding import Words
    from hermes_exec.execute import RunOptions, StreamOptions
    from hermes_exec.observe.audit import Audit
    from hermes_exec.result import Result

_log = logging.getLogger("hermes_exec.place")


class Terminal(Access):
    """Commands, sessions, jobs, files and ports of one place. Made by ``hermes_exec.open``.

    It belongs to the event loop it was opened on, where any number of tasks may use it at once;
    ``hermes_exec.sync`` is for threads.
    """

    def __init__(  # noqa: PLR0913  what a plan knows, passed on by the one who opens it
        self,
        backend: Backend,
        carrier: Carrier,
        *,
        target: str,
        session: Mapping[str, Any],
        max_output: int = DEFAULT_MAX_OUTPUT,
        timeout_s: float | None = None,
        job_lease_s: float | None = None,
        audit: Audit | None = None,
        clean: Callable[[str], str] = str,
    ) -> None:
        self._backend = backend
        self._carrier = carrier
        self._session_fields = dict(session)
        self._context = Context(
            carrier, target, Spools(), audit, max_output, timeout_s, job_lease_s or DEFAULT_JOB_LEASE_S, clean=clean
        )
        self._default: Session | None = None
        self._sessions = 0

    @property
    def target(self) -> str:
        """The one-line target of this place."""
        return self._context.target

    @property
    def kind(self) -> str:
        """What kind of place this is: ``local``, ``docker``, …; of a place inside of others, its own."""
        return self._backend.type

    @property
    def capabilities(self) -> Capabilities:
        """What holds here; docs/promises.md says what each name means."""
        return self._carrier.capabilities

    async def run(self, command: Words | Sequence[Words], **options: Unpack[RunOptions]) -> Result:
        """Run a command to its end.

        A string is evaluated by the terminal's own session, where directory, variables and functions
        persist from one to the next; such commands run one after another. A list of words starts that
        program without a shell, beside whatever else runs. Use ``session()`` for further shells.

        Args:
            command: shell text, or the program and its arguments.
            timeout: seconds after which everything that the command started is ended; the result is
                then marked ``timed_out`` and has the output so far.
            stdin: what the command reads; nothing, if left out.
            env: variables for this command alone.
            cwd: its folder; with ``env``, ``cwd`` or ``limits`` a string runs in a subshell.
            check: raise CommandFailed unless it exits with 0.
            max_output: bytes to keep of each stream, head and tail; the rest goes to a spool file.
            merge_stderr: one stream for both outputs, in their true order, as ``stdout``.
            limits: what it may use.
            grace_s: seconds between TERM and KILL when it is ended; 2 by default.

        Raises:
            OutcomeUnknown: the place was lost, or out of reach when the ``timeout`` and the grace were over, for three
                times the profile's ``keepalive_s`` (45 s); it ran once at most, and nobody knows how it ended.
            PlaceError, UsageError: nothing ran.
            CommandFailed: see ``check``.
            asyncio.CancelledError: the task was cancelled; the command has ended by then.
        """
        if isinstance(command, str | bytes):
            return await self._default_session().run(command, **options)
        chosen = Options(**options)
        return await execute.run(self._context, "exec", self._argv(command, chosen), command, chosen, "")

    def stream(self, command: Words | Sequence[Words], **options: Unpack[StreamOptions]) -> Stream:
        """Run a command and take its output as it comes: ``async with terminal.stream(…) as events``.

        The options are those of ``run``. The command runs for the length of the block; nothing runs before.
        ``interactive`` leaves standard input open for ``Stream.write``.
        """
        if isinstance(command, str | bytes):
            return self._default_session().stream(command, **options)
        chosen = Options(**options)
        return Stream(self._context, "exec", self._argv(command, chosen), command, chosen, "")

    def _argv(self, command: Sequence[Words], options: Options) -> dict[str, Any]:
        self._context.check_open()
        fields = execute.arguments_of(self._context, options)
        fields["argv"] = encode_words(command)
        return fields

    @opens
    async def session(
        self,
        name: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        shell: str | None = None,
        login: bool | None = None,
    ) -> Session:
        """Open another live shell, independent of all others: ``async with terminal.session() as session``.

        It starts with the terminal's own settings.
        """
        return self._new_session(name, cwd=cwd, env=env, shell=shell, login=login)

    def _new_session(
        self,
        name: str | None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        shell: str | None = None,
        login: bool | None = None,
    ) -> Session:
        self._context.check_open()
        if not self.capabilities.sessions and name is not None:
            raise Unsupported("this place keeps no live shells", remedy=execute.NEEDS_PYTHON)
        fields = dict(self._session_fields)
        if cwd is not None:
            fields["cwd"] = encode(cwd)
        if env:
            fields["env"] = encode_env(env)
        if shell is not None:
            fields["shell"] = encode(shell)
        if login is not None:
            fields["login"] = login
        self._sessions += 1
        session = Session(self._context, fields, name or f"session-{self._sessions}")
        _log.debug("session opened", extra={"target": self.target, "session": session.name})
        return session

    def _default_session(self) -> Session:
        self._context.check_open()
        if self._default is None:
            self._default = self._new_session(None)
        return self._default

    async def snapshot(self, name: str | None = None) -> str:
        """Keep the place's files as they are now; gives the target that opens a copy of them.

        Args:
            name: what to call it, in the place's own way; one is made up when left out.

        Raises:
            Unsupported: ``capabilities.features`` has no ``snapshot``.
            PlaceUnavailable: it could not be made; nothing is left of it.
        """
        self._context.check_open()
        return await self._backend.snapshot(name)

    async def suspend(self) -> None:
        """Stop everything in the place where it is, until ``resume``. The time limits of commands run on.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._context.check_open()
        self._context.suspended = True
        if self._carrier.link is not None:
            self._carrier.link.watch.suspend(on=True)
        await self._backend.suspend()

    async def resume(self) -> None:
        """Let everything go on that ``suspend`` stopped.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._context.check_open()
        await self._backend.resume()
        self._context.suspended = False
        if self._carrier.link is not None:
            self._carrier.link.watch.suspend(on=False)

    async def close(self, *, keep: bool = False) -> None:
        """End everything but jobs, and let go of the place. Safe to call twice.

        ``keep`` asks the place to stay for a later ``open``, where it can (``capabilities.features``). A place
        in which jobs go on stays for as long as they do. Who is cancelled meanwhile learns it when that is done.
        """
        if not self._context.closed:
            self._context.closed = True
            await finished(self._let_go(keep=keep))

    async def _let_go(self, *, keep: bool) -> None:
        try:
            await self._carrier.close()
        finally:
            self._context.spools.close()
            if not keep and self._carrier.link is not None and self._carrier.link.stays:
                await self._backend.release()
            else:
                await self._backend.close(keep=keep)
            _log.info("closed", extra={"target": self.target, "kept": keep})

    async def __aenter__(self) -> Self:
        """The terminal itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
