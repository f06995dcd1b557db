"""The Terminal: one place, opened, and everything that can be done there."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from hermes_exec._async import finished, opens
from hermes_exec.backend import release, require_snapshot, require_suspend
from hermes_exec.errors import Unsupported
from hermes_exec.terminal import requests
from hermes_exec.terminal.encoding import encode, encode_env, encode_words
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT, Spools
from hermes_exec.terminal.requests import DEFAULT_JOB_LEASE_S, Context, Options
from hermes_exec.terminal.session import Session
from hermes_exec.terminal.stream import Stream
from hermes_exec.transport.protocol import FileCarrier

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from hermes_exec.backend import Backend
    from hermes_exec.files.files import Files
    from hermes_exec.files.info import Progress, SyncReport, TransferReport
    from hermes_exec.files.requests import Path
    from hermes_exec.files.sync import Direction
    from hermes_exec.files.transfer import Links
    from hermes_exec.observe.audit import Audit
    from hermes_exec.result import Result
    from hermes_exec.terminal.encoding import Words
    from hermes_exec.terminal.forward import Endpoint, Forward
    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.limits import Enforcement, Limits
    from hermes_exec.terminal.pty import Pty
    from hermes_exec.terminal.pty_status import PtyStatus
    from hermes_exec.terminal.requests import RunOptions, StreamOptions
    from hermes_exec.transport.protocol import Capabilities, Carrier


class TransferOptions(TypedDict, total=False):
    """What a transfer may be asked; ``Files.upload`` says what each name means."""

    progress: Progress | None
    verify: bool | None
    parents: bool
    links: Links
    ignore: Iterable[str | bytes]


class SyncOptions(TypedDict, total=False):
    """What a sync may be asked; ``Files.sync`` says what each name means."""

    direction: Direction
    delete: bool
    dry_run: bool
    progress: Progress | None
    verify: bool | None
    links: Links
    ignore: Iterable[str | bytes]


class Access:
    """The part of ``Terminal`` that hands its calls on to modules loaded on first use."""

    _context: Context

    @property
    def files(self) -> Files:
        """Everything about files: list, stat, glob, move, remove, permissions, links, transfer, sync.

        Raises:
            Unsupported: the place has no Python; ``read`` and ``write`` work all the same.
        """
        from hermes_exec.files import Files

        return Files(self._context.link("handle files"))

    async def read(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """The content of a file; ``files.read`` reads parts of it.

        Raises:
            TransferError: it cannot be read; ``errno`` says why.
        """
        self._context.check_open()
        if isinstance(self._context.carrier, FileCarrier):
            return await self._context.carrier.read(path)
        return await self.files.read(path)

    async def write(self, path: str | bytes | os.PathLike[str], data: bytes) -> None:
        """Give a file a new content, at once: whoever reads it sees the old or the new one, whole.

        Raises:
            TransferError: it could not be written; it is as it was.
        """
        self._context.check_open()
        if isinstance(self._context.carrier, FileCarrier):
            await self._context.carrier.write(path, data)
        else:
            await self.files.write(path, data)

    async def upload(self, local: Path, remote: Path, **options: Unpack[TransferOptions]) -> TransferReport:
        """Send a file or a tree to exactly ``remote``; see ``Files.upload``."""
        return await self.files.upload(local, remote, **options)

    async def download(self, remote: Path, local: Path, **options: Unpack[TransferOptions]) -> TransferReport:
        """Fetch a file or a tree to exactly ``local``; see ``Files.download``."""
        return await self.files.download(remote, local, **options)

    async def sync(self, local: Path, remote: Path, **options: Unpack[SyncOptions]) -> SyncReport:
        """Make one folder like the other, moving only what differs; see ``Files.sync``."""
        return await self.files.sync(local, remote, **options)

    @opens
    async def forward(
        self,
        listen: Endpoint | str | int,
        to: Endpoint | str | int,
        *,
        reverse: bool = False,
        on_failure: Callable[[str], None] | None = None,
    ) -> Forward:
        """Listen here and connect in the place, or with ``reverse`` listen there and connect here.

        Args:
            listen: ``8080``, ``host:8080``, ``0`` for any free port, or the path of a unix socket.
            to: likewise.
            reverse: listen in the place.
            on_failure: told of each connection that could not be made; left out, it is logged.

        Raises:
            UsageError: that cannot be listened on, and why; nothing listens.
        """
        from hermes_exec.terminal.forward import Forward

        forward = Forward(self._context.link("forward ports"), listen, to, reverse=reverse, on_failure=on_failure)
        await forward.start()
        return forward

    async def start(  # noqa: PLR0913  each is a choice of its own
        self,
        command: Words | Sequence[Words],
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: bool = False,
        cap_s: float | None = None,
        log_cap: int = 1 << 30,
        limits: Limits | None = None,
        keep: bool = True,
    ) -> Job:
        """Start a job: a command that goes on when this terminal, this process or the connection ends.

        One whose start is interrupted is ended and forgotten, which takes ten seconds at most; it may be there still
        only if the place was out of reach meanwhile.

        Args:
            command: shell text for a shell of its own, or a program and its arguments.
            name: a label for people.
            env: variables beside the terminal's own.
            cwd: its folder.
            stdin: whether it will be sent input (``Job.write``); else it reads nothing.
            cap_s: seconds after which it is ended, suspended time included; the profile's
                ``job_lease_s`` (a day) if left out, ``math.inf`` for never.
            log_cap: bytes of output that are kept; a job that writes more waits, and its status says so.
            limits: what it may use.
            keep: False ends it, and forgets it, when this terminal is closed or its lease is over: then it goes on
                over a connection that breaks and comes back, and no longer.

        Raises:
            UsageError: there is no such program or folder; nothing ran.
            OutcomeUnknown: the place was lost; the job runs once at most.
        """
        from hermes_exec.terminal.guest_records import new_id
        from hermes_exec.terminal.job import Job, start_job

        cap = self._context.job_lease_s if cap_s is None else cap_s
        link = self._context.link("keep jobs")
        with requests.starting(self._context, new_id(), "job", requests.shown(command), cwd, name) as told:
            job = await start_job(
                link,
                self._context.target,
                command,
                id=told.id,
                name=name,
                env=env,
                cwd=cwd,
                stdin=stdin,
                cap_s=None if cap == math.inf else cap,
                log_cap=log_cap,
                limits=limits,
                keep=keep,
            )
        return Job(link, job.id, told)

    async def jobs(self) -> list[JobStatus]:
        """The jobs of this terminal's guest, in the order of their starts."""
        from hermes_exec.terminal.job import list_jobs

        return await list_jobs(self._context.link("keep jobs"))

    async def job(self, id: str) -> Job:
        """A job by its id.

        Raises:
            UsageError: there is no such job here.
        """
        from hermes_exec.terminal.job import Job

        job = Job(self._context.link("keep jobs"), id, requests.Account(self._context, id))
        await job.status()
        return job

    async def limits(self) -> Enforcement:
        """What enforces each limit in this place; it was tried there, not assumed."""
        from hermes_exec.terminal.limits import enforcement

        return await enforcement(self._context.link("enforce limits"))

    @opens
    async def pty(
        self,
        command: Words | Sequence[Words] | None = None,
        *,
        rows: int = 24,
        cols: int = 80,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str = "",
        keep_s: float = 0.0,
    ) -> Pty:
        """Start an interactive program on a terminal of its own; returns once it runs.

        Args:
            command: shell text for a ``sh`` of its own, or a program and its arguments; the user's login shell
                if left out.
            rows: height in lines.
            cols: width in characters.
            env: variables for it; ``TERM`` says what kind of terminal will show it.
            cwd: its folder.
            name: what others attach by; a random one if left out.
            keep_s: seconds that it lives on with nobody attached, for ``attach`` from this or from another
                process; 0 ends it with this terminal.

        Raises:
            UsageError: no such folder, or an impossible size; nothing ran.
            PlaceError: there is a PTY of that name, or the place cannot make one; nothing ran.
        """
        from hermes_exec.terminal.guest_records import new_id, record_guest
        from hermes_exec.terminal.pty import link_pty

        link = self._context.link("run interactive programs")
        if keep_s:
            await record_guest(link, self._context.target)
        text = "the login shell" if command is None else requests.shown(command)
        if isinstance(command, str | bytes):
            command = ("sh", "-c", command)
        with requests.starting(self._context, f"pty-{new_id()}", "pty", text, cwd, name) as told:
            return await link_pty(
                link,
                command,
                rows=rows,
                cols=cols,
                env=env,
                cwd=cwd,
                name=name,
                keep_s=keep_s,
                account=told,
            )

    async def ptys(self) -> list[PtyStatus]:
        """The interactive programs of this terminal's guest, whoever started them, in the order of their starts."""
        from hermes_exec.terminal.pty_status import list_ptys

        return await list_ptys(self._context.link("run interactive programs"))

    @opens
    async def attach(self, name: str, *, rows: int = 0, cols: int = 0) -> Pty:
        """Look at an interactive program that was started under ``name``, after what it showed of late.

        Raises:
            Closed: there is none of that name.
        """
        from hermes_exec.terminal.pty import attach_pty

        return await attach_pty(self._context.link("run interactive programs"), name, rows=rows, cols=cols)


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
        return await requests.run(self._context, "exec", self._argv(command, chosen), command, chosen, "")

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
        fields = requests.arguments_of(self._context, options)
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
            raise Unsupported("this place keeps no live shells", remedy=requests.NEEDS_PYTHON)
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
        return await require_snapshot(self._backend).snapshot(name)

    async def suspend(self) -> None:
        """Stop everything in the place where it is, until ``resume``. The time limits of commands run on.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._context.check_open()
        backend = require_suspend(self._backend)
        self._context.suspended = True
        if self._carrier.link is not None:
            self._carrier.link.watch.suspend(on=True)
        await backend.suspend()

    async def resume(self) -> None:
        """Let everything go on that ``suspend`` stopped.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._context.check_open()
        await require_suspend(self._backend).resume()
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
                await release(self._backend)
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
