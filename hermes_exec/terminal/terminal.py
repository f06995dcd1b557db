"""The Terminal: an open target, and every operation on it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from hermes_exec._arguments import check_calls
from hermes_exec._async import awaitable_context_manager, shield_to_completion
from hermes_exec.backend import release, require_snapshot, require_suspend
from hermes_exec.errors import Unsupported
from hermes_exec.terminal import requests
from hermes_exec.terminal.encoding import (
    encode,
    encode_argv,
    encode_env,
    validate_flag,
    validate_name,
    validate_seconds,
)
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT, SpoolFolder
from hermes_exec.terminal.requests import DEFAULT_JOB_LEASE_S, TerminalContext
from hermes_exec.terminal.session import Session
from hermes_exec.terminal.stream import Stream
from hermes_exec.transport import FileTransport

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
    from hermes_exec.observe.hooks import CommandHooks
    from hermes_exec.result import Result
    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.forward import Endpoint, Forward
    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.limits import Enforcement, Limits
    from hermes_exec.terminal.pty import Pty
    from hermes_exec.terminal.pty_status import PtyStatus
    from hermes_exec.terminal.requests import CommandSettings, RunOptions, StreamOptions
    from hermes_exec.transport import Transport
    from hermes_exec.transport.protocol import Capabilities


_log = logging.getLogger("hermes_exec.place")


class TransferOptions(TypedDict, total=False):
    """The options of a transfer; ``Files.upload`` describes them."""

    progress: Progress | None
    verify: bool | None
    parents: bool
    links: Links
    ignore: Iterable[str | bytes]


class SyncOptions(TypedDict, total=False):
    """The options of a sync; ``Files.sync`` describes them."""

    direction: Direction
    delete: bool
    dry_run: bool
    progress: Progress | None
    verify: bool | None
    links: Links
    ignore: Iterable[str | bytes]


@check_calls
class Terminal:
    """Commands, sessions, jobs, files and ports of one target. Created by ``hermes_exec.open``.

    It belongs to the event loop it was opened on, where any number of tasks may use it at once;
    ``hermes_exec.sync`` is for threads.
    """

    def __init__(  # noqa: PLR0913  the values of a plan, passed by the function that opens it
        self,
        backend: Backend,
        carrier: Transport,
        *,
        target: str,
        session: Mapping[str, Any],
        max_output: int = DEFAULT_MAX_OUTPUT,
        timeout_s: float | None = None,
        job_lease_s: float | None = None,
        audit: Audit | None = None,
        clean: Callable[[str], str] = str,
        hooks: CommandHooks | None = None,
    ) -> None:
        self._backend = backend
        self._carrier = carrier
        self._session_fields = dict(session)
        self._context = TerminalContext(
            carrier,
            target,
            SpoolFolder(),
            audit,
            max_output,
            timeout_s,
            job_lease_s or DEFAULT_JOB_LEASE_S,
            redact=clean,
            hooks=hooks,
        )
        self._default: Session | None = None
        self._sessions = 0

    def __repr__(self) -> str:
        """Return the target and whether the terminal is open."""
        return f"<Terminal {self.target}, {'closed' if self._context.closed else 'open'}>"

    @property
    def target(self) -> str:
        """The one-line target that this terminal has open."""
        return self._context.target

    @property
    def kind(self) -> str:
        """The type of the target: ``local``, ``docker``, …; of nested targets, that of the innermost one."""
        return self._backend.type

    @property
    def capabilities(self) -> Capabilities:
        """The guarantees of this target; docs/promises.md describes each name."""
        return self._carrier.capabilities

    async def run(self, command: Argument | Sequence[Argument], **options: Unpack[RunOptions]) -> Result:
        """Run a command to its end.

        A string is evaluated by the terminal's own session, where directory, variables and functions
        persist from one command to the next; such commands run one after another. A list starts a program
        without a shell, concurrently with everything else. Use ``session()`` for further shells.

        Args:
            command: shell text, or a program and its arguments.
            timeout: seconds, or text such as ``10m``, after which the command and all processes that it started are
                ended; the result is then marked ``timed_out`` and has the output so far.
            stdin: its standard input; empty by default.
            env: variables for this command alone.
            cwd: its working directory; with ``env``, ``cwd`` or ``limits`` a string runs in a subshell.
            check: raise CommandFailed unless it exits with 0.
            max_output: bytes to keep of each stream, head and tail; the rest goes to a spool file.
            merge_stderr: return both outputs in their true order as ``stdout``.
            limits: the resources that it may use.
            grace_s: seconds between TERM and KILL when it is ended; 2 by default.

        Raises:
            OutcomeUnknown: the target was lost, or was out of reach when ``timeout`` and grace had passed, for three
                times the profile's ``keepalive_s`` (45 s). The command ran at most once; its outcome is not known.
            PlaceError, UsageError: nothing ran.
            CommandFailed: see ``check``.
            asyncio.CancelledError: the task was cancelled; the command has ended by then.
        """
        if isinstance(command, str | bytes):
            return await self._default_session().run(command, **options)
        chosen = requests.choose_options(options)
        return await requests.run_command(self._context, "exec", self._argv(command, chosen), command, chosen, "")

    def stream(self, command: Argument | Sequence[Argument], **options: Unpack[StreamOptions]) -> Stream:
        """Run a command and yield its output as it arrives: ``async with terminal.stream(…) as events``.

        The options are those of ``run``. The command starts when the block is entered, and is ended when it is left.
        ``interactive`` leaves standard input open for ``Stream.write``.
        """
        if isinstance(command, str | bytes):
            return self._default_session().stream(command, **options)
        chosen = requests.choose_options(options)
        return Stream(self._context, "exec", self._argv(command, chosen), command, chosen, "")

    def _argv(self, command: Sequence[Argument], options: CommandSettings) -> dict[str, Any]:
        self._context.check_open()
        fields = requests.build_fields(self._context, options)
        fields["argv"] = encode_argv(command)
        return fields

    @awaitable_context_manager
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

        It starts with the settings of the terminal.
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
            raise Unsupported("this target keeps no live shells", remedy=requests.PYTHON_REMEDY)
        fields = dict(self._session_fields)
        if cwd is not None:
            fields["cwd"] = encode(cwd, "cwd")
        if env:
            fields["env"] = encode_env(env)
        if shell is not None:
            fields["shell"] = encode(shell, "shell")
        if login is not None:
            fields["login"] = validate_flag(login, "login")
        if name is not None:
            validate_name(name, "name")
        self._sessions += 1
        session = Session(self._context, fields, name or f"session-{self._sessions}")
        _log.debug("session opened", extra={"target": self.target, "session": session.name})
        return session

    def _default_session(self) -> Session:
        self._context.check_open()
        if self._default is None:
            self._default = self._new_session(None)
        return self._default

    @property
    def files(self) -> Files:
        """The files of the target: list, stat, glob, move, remove, permissions, links, transfer, sync.

        Raises:
            Unsupported: the target has no Python; ``read`` and ``write`` work without one.
        """
        from hermes_exec.files import Files

        return Files(self._context.require_guest("handle files"))

    async def read(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """Return the content of a file; ``files.read`` reads parts of it.

        Raises:
            TransferError: it cannot be read; ``errno`` has the cause.
        """
        self._context.check_open()
        if isinstance(self._context.carrier, FileTransport):
            return await self._context.carrier.read(path)
        return await self.files.read(path)

    async def write(self, path: str | bytes | os.PathLike[str], data: bytes) -> None:
        """Replace the content of a file atomically: readers see either the old or the new content.

        Raises:
            TransferError: it could not be written, and is unchanged.
        """
        self._context.check_open()
        if isinstance(self._context.carrier, FileTransport):
            from hermes_exec.files.requests import validate_content

            validate_content(data)
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
        """Make one folder equal to the other, transferring only differences; see ``Files.sync``."""
        return await self.files.sync(local, remote, **options)

    @awaitable_context_manager
    async def forward(
        self,
        listen: Endpoint | str | int,
        to: Endpoint | str | int,
        *,
        reverse: bool = False,
        on_failure: Callable[[str], None] | None = None,
    ) -> Forward:
        """Listen here and connect in the target, or with ``reverse`` listen in the target and connect here.

        Args:
            listen: ``8080``, ``host:8080``, ``0`` for any free port, or the path of a unix socket.
            to: the same, for the address to connect to.
            reverse: listen in the target.
            on_failure: called with a message for each connection that failed; by default it is logged.

        Raises:
            UsageError: it cannot listen on that address.
        """
        from hermes_exec.terminal.forward import Forward

        forward = Forward(
            self._context.require_guest("forward ports"), listen, to, reverse=reverse, on_failure=on_failure
        )
        await forward.start()
        return forward

    async def start(  # noqa: PLR0913  each is a choice of its own
        self,
        command: Argument | Sequence[Argument],
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: bool = False,
        cap_s: float | str | None = None,
        log_cap: int = 1 << 30,
        limits: Limits | None = None,
        keep: bool = True,
    ) -> Job:
        """Start a job: a command that keeps running when this terminal, this process or the connection ends.

        When the start is interrupted, the job is ended and removed within ten seconds; it remains only if the target
        was out of reach meanwhile.

        Args:
            command: shell text for a shell of its own, or a program and its arguments.
            name: a label for people.
            env: variables in addition to the terminal's own.
            cwd: its working directory.
            stdin: whether its standard input stays open for ``Job.write``; else it is empty.
            cap_s: seconds after which it is ended, suspended time included; by default the profile's
                ``job_lease_s`` (a day); ``math.inf`` means never.
            log_cap: bytes of output that are kept; a job that writes more waits, which its status reports.
            limits: the resources that it may use.
            keep: False ends and removes it when this terminal is closed or its lease expires; it then survives a
                broken connection, but not the terminal.

        Raises:
            UsageError: there is no such program or folder; nothing ran.
            OutcomeUnknown: the target was lost; the job runs at most once.
        """
        from hermes_exec.terminal.guest_records import new_id
        from hermes_exec.terminal.job import Job, start_job

        cap = self._context.job_lease_s if cap_s is None else validate_seconds(cap_s, "cap_s", math.inf)
        link = self._context.require_guest("keep jobs")
        with requests.record_launch(self._context, new_id(), "job", command, cwd, name) as told:
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
        """Return the jobs of this terminal's guest, in the order of their starts."""
        from hermes_exec.terminal.job import list_jobs

        return await list_jobs(self._context.require_guest("keep jobs"))

    async def job(self, id: str) -> Job:
        """Return a job by its id.

        Raises:
            UsageError: there is no such job here.
        """
        from hermes_exec.terminal.job import Job

        job = Job(self._context.require_guest("keep jobs"), id, requests.CommandRecord(self._context, id))
        await job.status()
        return job

    async def limits(self) -> Enforcement:
        """Return the mechanism that enforces each limit in this target, as tested there."""
        from hermes_exec.terminal.limits import query_enforcement

        return await query_enforcement(self._context.require_guest("enforce limits"))

    @awaitable_context_manager
    async def pty(
        self,
        command: Argument | Sequence[Argument] | None = None,
        *,
        rows: int = 24,
        cols: int = 80,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str = "",
        keep_s: float = 0.0,
    ) -> Pty:
        """Start an interactive program on a pseudo-terminal of its own; return once it runs.

        Args:
            command: shell text for a ``sh`` of its own, or a program and its arguments; by default the user's
                login shell.
            rows: height in lines.
            cols: width in characters.
            env: its variables; ``TERM`` names the type of the terminal that displays it.
            cwd: its working directory.
            name: the name for ``attach``; a random one by default.
            keep_s: seconds that it keeps running after the last client detaches, for ``attach`` from this or
                another process; 0 ends it with this terminal.

        Raises:
            UsageError: no such folder, or an invalid size; nothing ran.
            PlaceError: a PTY of that name exists, or the target cannot create one; nothing ran.
        """
        from hermes_exec.terminal.guest_records import new_id, record_guest
        from hermes_exec.terminal.pty import start_pty

        link = self._context.require_guest("run interactive programs")
        if keep_s:
            await record_guest(link, self._context.target)
        text = "the login shell" if command is None else command
        if isinstance(command, str | bytes):
            command = ("sh", "-c", command)
        with requests.record_launch(self._context, f"pty-{new_id()}", "pty", text, cwd, name) as told:
            return await start_pty(
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
        """Return the interactive programs of this terminal's guest, of every client, in the order of their starts."""
        from hermes_exec.terminal.pty_status import list_ptys

        return await list_ptys(self._context.require_guest("run interactive programs"))

    @awaitable_context_manager
    async def attach(self, name: str, *, rows: int = 0, cols: int = 0) -> Pty:
        """Attach to the interactive program of that name; its recent output is sent first.

        Raises:
            Closed: there is none of that name.
        """
        from hermes_exec.terminal.pty import attach_pty

        return await attach_pty(self._context.require_guest("run interactive programs"), name, rows=rows, cols=cols)

    async def snapshot(self, name: str | None = None) -> str:
        """Save the files of the target as they are now; return the target that opens a copy of them.

        Args:
            name: the name of the snapshot, in the notation of the backend; a random one by default.

        Raises:
            Unsupported: ``capabilities.features`` has no ``snapshot``.
            PlaceUnavailable: it could not be created; nothing is left of it.
        """
        self._context.check_open()
        return await require_snapshot(self._backend).snapshot(name)

    async def suspend(self) -> None:
        """Pause all processes of the target until ``resume``. The time limits of commands keep counting.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._context.check_open()
        backend = require_suspend(self._backend)
        self._context.suspended = True
        if self._carrier.link is not None:
            self._carrier.link.watchdog.suspend(on=True)
        await backend.suspend()

    async def resume(self) -> None:
        """Resume the processes that ``suspend`` paused.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._context.check_open()
        await require_suspend(self._backend).resume()
        self._context.suspended = False
        if self._carrier.link is not None:
            self._carrier.link.watchdog.suspend(on=False)

    async def close(self, *, keep: bool = False) -> None:
        """End everything but jobs, and release the target. Safe to call twice.

        ``keep`` leaves the target open for a later ``open``, if it supports that (``capabilities.features``). A
        target with running jobs stays open until they end. Cancellation is delivered after cleanup.
        """
        if not self._context.closed:
            self._context.closed = True
            await shield_to_completion(self._let_go(keep=keep))

    async def _let_go(self, *, keep: bool) -> None:
        try:
            await self._carrier.close()
        finally:
            self._context.spools.close()
            if not keep and self._carrier.link is not None and self._carrier.link.guest_remains:
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
        """Close the terminal."""
        await self.close()
