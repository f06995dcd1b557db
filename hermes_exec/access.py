"""What a terminal does besides commands: files, ports, jobs and interactive programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict, Unpack

from hermes_exec import account
from hermes_exec.carrier import FileCarrier
from hermes_exec.within import opens

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hermes_exec.encoding import Words
    from hermes_exec.execute import Context
    from hermes_exec.files.files import Files
    from hermes_exec.files.info import Progress, SyncReport, TransferReport
    from hermes_exec.files.requests import Path
    from hermes_exec.files.sync import Direction
    from hermes_exec.files.transfer import Links
    from hermes_exec.forward import Endpoint, Forward
    from hermes_exec.job import Job
    from hermes_exec.jobstatus import JobStatus
    from hermes_exec.limits import Enforcement, Limits
    from hermes_exec.pty import Pty
    from hermes_exec.ptystatus import PtyStatus


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
        from hermes_exec.forward import Forward

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
        from hermes_exec.job import Job, start_job
        from hermes_exec.records import new_id

        cap = self._context.job_lease_s if cap_s is None else cap_s
        link = self._context.link("keep jobs")
        with account.starting(self._context, new_id(), "job", account.shown(command), cwd, name) as told:
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
        from hermes_exec.job import list_jobs

        return await list_jobs(self._context.link("keep jobs"))

    async def job(self, id: str) -> Job:
        """A job by its id.

        Raises:
            UsageError: there is no such job here.
        """
        from hermes_exec.job import Job

        job = Job(self._context.link("keep jobs"), id, account.Account(self._context, id))
        await job.status()
        return job

    async def limits(self) -> Enforcement:
        """What enforces each limit in this place; it was tried there, not assumed."""
        from hermes_exec.limits import enforcement

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
        from hermes_exec.pty import link_pty
        from hermes_exec.records import new_id, record_guest

        link = self._context.link("run interactive programs")
        if keep_s:
            await record_guest(link, self._context.target)
        text = "the login shell" if command is None else account.shown(command)
        if isinstance(command, str | bytes):
            command = ("sh", "-c", command)
        with account.starting(self._context, f"pty-{new_id()}", "pty", text, cwd, name) as told:
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
        from hermes_exec.ptystatus import list_ptys

        return await list_ptys(self._context.link("run interactive programs"))

    @opens
    async def attach(self, name: str, *, rows: int = 0, cols: int = 0) -> Pty:
        """Look at an interactive program that was started under ``name``, after what it showed of late.

        Raises:
            Closed: there is none of that name.
        """
        from hermes_exec.pty import attach_pty

        return await attach_pty(self._context.link("run interactive programs"), name, rows=rows, cols=cols)
