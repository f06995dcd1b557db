"""Jobs: commands that outlive the connection and the process that started them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hermes_exec._async import made
from hermes_exec.errors import PlaceError, ProtocolError, UsageError
from hermes_exec.terminal import guest_records, job_log
from hermes_exec.terminal.encoding import checked_seconds, encode, encode_env, encode_words
from hermes_exec.terminal.job_status import JobState, JobStatus, raise_error
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT
from hermes_exec.terminal.requests import shown
from hermes_exec.transport.call import Lapsed

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from hermes_exec.result import Event, Result
    from hermes_exec.terminal.encoding import Words
    from hermes_exec.terminal.job_log import LogStream
    from hermes_exec.terminal.limits import Limits
    from hermes_exec.terminal.requests import Account
    from hermes_exec.transport.link import Link

CAP_S = 86400.0
"""Seconds after which a job is ended unless it was started with another cap."""
LOG_CAP = 1 << 30
"""Bytes of log that a job may write unless it was started with another cap."""
_LONGEST_CAP_S = 1e9
_LONGEST_NAME = 256
_log = logging.getLogger("hermes_exec.terminal.job")
_PART = "jobs"
_QUESTIONS = {"jobs", "job_wait"}


class Job:
    """One job in a place, known by its id. Made by ``Terminal.start``, or for any id of ``Terminal.jobs``.

    A job ends when its program ends; what that left running in the background is ended then too.
    """

    def __init__(self, link: Link, id: str, account: Account | None = None) -> None:
        self.id = id
        self._link = link
        self._account = account

    def __repr__(self) -> str:
        """The id."""
        return f"<Job {self.id}>"

    async def status(self) -> JobStatus:
        """How it is now.

        Raises:
            UsageError: the place does not know the job: it was pruned, or never there.
        """
        return await self._status("jobs")

    async def _status(self, operation: str, **fields: Any) -> JobStatus:
        self._link.need(_PART)
        answer = await self._asked(operation, fields)
        raise_error(answer, f"job {self.id}")
        try:
            status = JobStatus.from_answer(answer["jobs"][0])
        except (KeyError, IndexError) as error:
            raise ProtocolError("the guest's account of a job makes no sense") from error
        if status.result is not None and self._account is not None:
            self._account.ended(status.result, status.stdout_bytes, status.stderr_bytes)
            self._account = None
        return status

    async def _asked(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        while True:
            try:
                return await self._link.call(operation, {"job": self.id, **fields}).result()
            except Lapsed:  # our lease was over, and the job goes on: to ask once more changes nothing
                if operation not in _QUESTIONS:
                    raise

    async def logs(self, offset: int = 0, stream: LogStream = "both", *, follow: bool = False) -> AsyncGenerator[Event]:
        """What it wrote, as events, from byte ``offset`` of the stream on.

        ``both`` gives the streams in the order in which they came; its offsets count the bytes of both.
        A negative offset counts from the end. With ``follow`` it goes on until the job ends. Whoever
        reads slowly, or leaves, does not disturb the job.
        """
        self._link.need(_PART)
        fields = {"job": self.id, "offset": offset, "follow": follow}
        async with aclosing(job_log.read(self._link, fields, stream)) as events:
            async for event in events:
                yield event

    async def write(self, data: bytes | str) -> None:
        """Send standard input; returns when the job's pipe has taken it all.

        Raises:
            Closed: its input was closed, or it was started without ``stdin``, or it has ended.
        """
        await self._input(data.encode() if isinstance(data, str) else data, last=False)

    async def close_stdin(self) -> None:
        """Its standard input ends here. Safe to call twice."""
        await self._input(b"", last=True)

    async def _input(self, data: bytes, *, last: bool) -> None:
        self._link.need(_PART)
        call = self._link.call("job_input", {"job": self.id, "last": last})
        await call.write(data)
        call.write_eof()
        answer = await call.result()
        if not (last and answer.get("error") == "closed"):
            raise_error(answer, f"job {self.id}")

    async def wait(self, timeout: float | None = None, *, max_output: int = DEFAULT_MAX_OUTPUT) -> Result:
        """Wait for its end; the result has up to ``max_output`` bytes of each stream, head and tail.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds, and goes on.
        """
        async with asyncio.timeout(timeout):
            status = await self._status("job_wait")
        return await job_log.result(self._link, status, max_output)

    async def kill(self, grace_s: float = 2.0, *, max_output: int = DEFAULT_MAX_OUTPUT) -> Result:
        """End it with all that it started: TERM, and KILL after ``grace_s``. An ended job is left as it is.

        Raises:
            PlaceError: some of its processes could not be ended; they still run.
        """
        status = await self._status("job_kill", grace=float(grace_s))
        if status.state is not JobState.ENDED:
            raise PlaceError(f"job {self.id}: {status.note}", state="it still runs")
        return await job_log.result(self._link, status, max_output)

    async def prune(self) -> None:
        """Forget it and its log. Safe when the place has forgotten it already.

        Raises:
            UsageError: it has not ended.
        """
        self._link.need(_PART)
        answer = await self._link.call("job_prune", {"job": self.id}).result()
        if answer.get("error") != "missing":
            raise_error(answer, f"job {self.id}")
            await guest_records.forget_guest(self._link)


class JobOptions(TypedDict, total=False):
    """How a job is started; ``start_job`` says what each name means."""

    id: str
    name: str
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    stdin: bool
    cap_s: float | None
    log_cap: int
    limits: Limits | None
    keep: bool


async def start_job(link: Link, target: str, command: Words | Sequence[Words], **options: Unpack[JobOptions]) -> Job:
    """Start a job, and return once its program runs.

    Args:
        link: the guest that shall have it.
        target: the one-line target of the place, under which other processes will look for the job.
        command: shell text, run by the place's ``bash -c`` (else ``sh -c``), or a program and its arguments.
        options: how to start it.
            id: what it is known by, from ``records.new_id``; a new one if left out.
            name: a label for people, of 256 characters at most.
            env: variables beside the terminal's own.
            cwd: its folder.
            stdin: whether it will be sent input (``Job.write``); else it reads nothing.
            cap_s: seconds after which it is ended, suspended time included; a day unless given, None
                for never.
            log_cap: bytes of output that are kept, 1 GiB unless given; a job that writes more waits, and
                its status says so.
            limits: what it may use.
            keep: whether it outlives the client that starts it; True if left out.

    Raises:
        UsageError: there is no such program or folder, or an option makes no sense; nothing ran.
        OutcomeUnknown: the place was lost; the job runs once at most.
        asyncio.CancelledError: the task was cancelled; the job was ended and forgotten, within ten seconds more, and
            is there still only if the place was out of reach meanwhile.
    """
    limits = options.get("limits")
    fields = {**_words(command), **_options(options), "job": options.get("id") or guest_records.new_id()}
    if limits is not None:
        link.need("limits")
        fields["limits"] = limits.as_fields()
    link.need(_PART)
    guest = await guest_records.record_guest(link, target)

    async def start() -> Job:
        answer = await link.call("start", fields).result()
        if "error" in answer:
            await list_jobs(link)
            raise_error(answer, shown(command)[:80])
        if guest_records.read_record(guest.id) is None:  # another process has just pruned its last job
            await asyncio.to_thread(guest_records.write_record, guest)
        return Job(link, fields["job"])

    job = await made(start(), _unwanted)
    _log.info("job %s started", job.id, extra={"target": target, "lease_s": fields["cap_s"]})
    _log.debug("job %s was asked for", job.id, extra={"command": shown(command)})
    return job


async def _unwanted(job: Job) -> None:
    await job.kill(0.1, max_output=0)
    await job.prune()


def _words(command: Words | Sequence[Words]) -> dict[str, Any]:
    if isinstance(command, str | bytes):
        return {"command": encode(command)}
    return {"argv": encode_words(command)}


def _options(options: JobOptions) -> dict[str, Any]:
    name, cwd = options.get("name", ""), options.get("cwd")
    cap_s, log_cap = options.get("cap_s", CAP_S), options.get("log_cap", LOG_CAP)
    if len(name) > _LONGEST_NAME:
        raise UsageError(f"a name of {len(name)} characters", remedy=f"{_LONGEST_NAME} at most")
    if log_cap < 1:
        raise UsageError(f"a log of {log_cap} bytes", remedy="at least 1")
    return {
        "name": name,
        "env": encode_env(options.get("env") or {}),
        "cwd": None if cwd is None else encode(cwd),
        "stdin": bool(options.get("stdin")),
        "cap_s": None if cap_s is None else checked_seconds(cap_s, "a cap", _LONGEST_CAP_S),
        "log_cap": log_cap,
        "bound": not options.get("keep", True),
    }


async def list_jobs(link: Link) -> list[JobStatus]:
    """The jobs of a guest, in the order of their starts; a guest without any is no longer recorded."""
    link.need(_PART)
    answer = await link.call("jobs", {}).result()
    raise_error(answer, "jobs")
    jobs = [JobStatus.from_answer(fields) for fields in answer["jobs"]]
    if not jobs:
        await guest_records.forget_guest(link)
    return jobs


async def prune_jobs(link: Link) -> list[str]:
    """Forget all jobs that have ended, and their logs; gives their ids."""
    link.need(_PART)
    answer = await link.call("job_prune", {}).result()
    raise_error(answer, "jobs")
    await guest_records.forget_guest(link)
    return [str(id) for id in answer["pruned"]]
