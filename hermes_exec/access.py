"""What a terminal does through the guest alone: jobs, interactive programs, and later files and ports."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from hermes_exec.execute import Context, Words
    from hermes_exec.job import Job
    from hermes_exec.jobstatus import JobStatus
    from hermes_exec.limits import Enforcement, Limits
    from hermes_exec.pty import Pty


class Access:
    """The part of ``Terminal`` that hands its calls on to modules loaded on first use."""

    _context: Context

    async def start(
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
    ) -> Job:
        """Start a job: a command that goes on when this terminal, this process or the connection ends.

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

        Raises:
            UsageError: there is no such program or folder; nothing ran.
            OutcomeUnknown: the place was lost; the job runs once at most.
        """
        from hermes_exec.job import start_job

        cap = self._context.job_lease_s if cap_s is None else cap_s
        return await start_job(
            self._context.link("keep jobs"),
            self._context.target,
            command,
            name=name,
            env=env,
            cwd=cwd,
            stdin=stdin,
            cap_s=None if cap == math.inf else cap,
            log_cap=log_cap,
            limits=limits,
        )

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

        job = Job(self._context.link("keep jobs"), id)
        await job.status()
        return job

    async def limits(self) -> Enforcement:
        """What enforces each limit in this place; it was tried there, not assumed."""
        from hermes_exec.limits import enforcement

        return await enforcement(self._context.link("enforce limits"))

    async def pty(
        self,
        command: Sequence[Words] | None = None,
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
            command: the program and its arguments; the user's login shell if left out.
            rows: height in lines.
            cols: width in characters.
            env: variables for it; ``TERM`` says what kind of terminal will show it.
            cwd: its folder.
            name: what others attach by; a random one if left out.
            keep_s: seconds that it lives on with nobody attached; 0 ends it with this terminal.

        Raises:
            UsageError: no such folder, or an impossible size; nothing ran.
            PlaceError: there is a PTY of that name, or the place cannot make one; nothing ran.
        """
        from hermes_exec.pty import link_pty

        return await link_pty(
            self._context.link("run interactive programs"),
            command,
            rows=rows,
            cols=cols,
            env=env,
            cwd=cwd,
            name=name,
            keep_s=keep_s,
        )

    async def attach(self, name: str, *, rows: int = 0, cols: int = 0) -> Pty:
        """Look at an interactive program that was started under ``name``, after what it showed of late.

        Raises:
            Closed: there is none of that name.
        """
        from hermes_exec.pty import attach_pty

        return await attach_pty(self._context.link("run interactive programs"), name, rows=rows, cols=cols)
