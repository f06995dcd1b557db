"""Jobs: commands that outlive the connection and the process that started them."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hermes_exec._arguments import check_calls
from hermes_exec._async import create_or_rollback
from hermes_exec.errors import PlaceError, ProtocolError, UsageError
from hermes_exec.terminal import guest_records, job_log, requests
from hermes_exec.terminal.encoding import (
    encode,
    encode_command,
    encode_data,
    encode_env,
    validate_choice,
    validate_count,
    validate_flag,
    validate_name,
    validate_offset,
    validate_seconds,
)
from hermes_exec.terminal.job_status import JobList, JobState, JobStatus, raise_for_answer
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT
from hermes_exec.terminal.requests import format_command
from hermes_exec.transport.call import LeaseExpired

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from hermes_exec.result import Event, Result
    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.job_log import LogStream
    from hermes_exec.terminal.limits import Limits
    from hermes_exec.terminal.requests import CommandRecord
    from hermes_exec.transport.link import Link

CAP_S = 86400.0
"""Seconds after which a job is ended by default."""
LOG_CAP = 1 << 30
"""Bytes of log that a job may write by default."""
_LONGEST_CAP_S = 1e9
_LONGEST_NAME = 256
_log = logging.getLogger("hermes_exec.terminal.job")
_PART = "jobs"
_QUESTIONS = {"jobs", "job_wait"}


@check_calls
class Job:
    """A job in a target, identified by its id. Returned by ``Terminal.start`` and ``Terminal.job``.

    A job ends when its program ends; background processes that the program left are ended then too.
    """

    def __init__(self, link: Link, id: str, account: CommandRecord | None = None) -> None:
        self.id = id
        self._link = link
        self._account = account

    def __repr__(self) -> str:
        """Return the id."""
        return f"<Job {self.id}>"

    async def status(self) -> JobStatus:
        """Return its current status.

        Raises:
            UsageError: the target has no such job: it was pruned, or never existed.
        """
        return await self._status("jobs")

    async def _status(self, operation: str, **fields: Any) -> JobStatus:
        self._link.load_part(_PART)
        answer = await self._request(operation, fields)
        raise_for_answer(answer, f"job {self.id}")
        try:
            status = JobStatus.from_answer(answer["jobs"][0])
        except (KeyError, IndexError) as error:
            raise ProtocolError("the guest sent an invalid job status") from error
        if status.result is not None and self._account is not None:
            self._account.record_end(status.result, status.stdout_bytes, status.stderr_bytes)
            self._account = None
        return status

    async def _request(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        while True:
            try:
                return await self._link.call(operation, {"job": self.id, **fields}).result()
            except LeaseExpired:  # the lease expired, and the job keeps running: asking again is safe
                if operation not in _QUESTIONS:
                    raise

    async def logs(
        self,
        offset: int = 0,
        stream: LogStream = "both",
        *,
        follow: bool = False,
        since: float | str | None = None,
    ) -> AsyncGenerator[Event]:
        """Yield its output as events, from byte ``offset`` of the stream on.

        ``both`` yields the streams in the order in which they were written; its offsets count the bytes of both.
        A negative offset counts from the end. With ``follow`` it continues until the job ends. A reader that
        is slow, or stops, does not affect the job. ``since`` replaces ``offset``: it yields what was written
        in the last seconds, or text such as ``10m``, by the target's clock, exact to a second
        or to a hundredth of a long time.
        """
        self._link.load_part(_PART)
        validate_choice(stream, "stream", tuple(job_log.STREAMS))
        validate_offset(offset, "offset")
        fields: dict[str, Any] = {"job": self.id, "offset": offset, "follow": validate_flag(follow, "follow")}
        if since is not None:
            if offset:
                raise UsageError("since and offset exclude each other", remedy="leave one of them out")
            fields["since"] = validate_seconds(since, "since", _LONGEST_CAP_S)
        async with aclosing(job_log.read_log(self._link, fields, stream)) as events:
            async for event in events:
                yield event

    async def write(self, data: bytes | str) -> None:
        """Write to its standard input; return when the job's pipe has all of it.

        Raises:
            Closed: its input was closed, or it was started without ``stdin``, or it has ended.
        """
        await self._input(encode_data(data), last=False)

    async def close_stdin(self) -> None:
        """Close its standard input. Safe to call twice."""
        await self._input(b"", last=True)

    async def _input(self, data: bytes, *, last: bool) -> None:
        self._link.load_part(_PART)
        call = self._link.call("job_input", {"job": self.id, "last": last})
        await call.write(data)
        call.write_eof()
        answer = await call.result()
        if not (last and answer.get("error") == "closed"):
            raise_for_answer(answer, f"job {self.id}")

    async def wait(self, timeout: float | str | None = None, *, max_output: int = DEFAULT_MAX_OUTPUT) -> Result:
        """Wait for its end; the result has up to ``max_output`` bytes of each stream, head and tail.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds, and keeps running.
        """
        validate_count(max_output, "max_output")
        limit = None if timeout is None else validate_seconds(timeout, "timeout", math.inf, zero=True)
        async with asyncio.timeout(limit):
            status = await self._status("job_wait")
        return await job_log.read_result(self._link, status, max_output)

    async def kill(self, grace_s: float | str = 2.0, *, max_output: int = DEFAULT_MAX_OUTPUT) -> Result:
        """End the job and all its processes: TERM, and KILL after ``grace_s``. An ended job is left unchanged.

        Raises:
            PlaceError: some of its processes could not be ended and still run.
        """
        validate_count(max_output, "max_output")
        status = await self._status("job_kill", grace=validate_seconds(grace_s, "grace_s", _LONGEST_CAP_S, zero=True))
        if status.state is not JobState.ENDED:
            raise PlaceError(f"job {self.id}: {status.note}", state="it still runs")
        return await job_log.read_result(self._link, status, max_output)

    async def prune(self) -> None:
        """Remove the job and its log. Safe when it is removed already.

        Raises:
            UsageError: it has not ended.
        """
        self._link.load_part(_PART)
        answer = await self._link.call("job_prune", {"job": self.id}).result()
        if answer.get("error") != "missing":
            raise_for_answer(answer, f"job {self.id}")
            await guest_records.forget_guest(self._link)


class JobOptions(TypedDict, total=False):
    """The options of a job; ``start_job`` describes them."""

    id: str
    name: str
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    stdin: bool
    cap_s: float | None
    log_cap: int
    limits: Limits | None
    keep: bool


async def start_job(
    link: Link, target: str, command: Argument | Sequence[Argument], **options: Unpack[JobOptions]
) -> Job:
    """Start a job; return once its program runs.

    Args:
        link: the link to the guest that runs it.
        target: the one-line target, by which other processes find the job.
        command: shell text, run by the target's ``bash -c`` (else ``sh -c``), or a program and its arguments.
        options: further options.
            id: its id, from ``guest_records.new_id``; a new one by default.
            name: a label for people, of at most 256 characters.
            env: variables in addition to the terminal's own.
            cwd: its working directory.
            stdin: whether its standard input stays open for ``Job.write``; else it is empty.
            cap_s: seconds after which it is ended, suspended time included; a day by default, None for never.
            log_cap: bytes of output that are kept, 1 GiB by default; a job that writes more waits, which its
                status reports.
            limits: the resources that it may use.
            keep: whether it outlives the client that starts it; True by default.

    Raises:
        UsageError: there is no such program or folder, or an option is not valid; nothing ran.
        OutcomeUnknown: the target was lost; the job runs at most once.
        asyncio.CancelledError: the task was cancelled; the job was ended and removed within ten more seconds, and
            remains only if the target was out of reach meanwhile.
    """
    limits = options.get("limits")
    fields = {
        **encode_command(command),
        **_encode_options(options),
        "job": options.get("id") or guest_records.new_id(),
    }
    if limits is not None:
        link.load_part("limits")
        fields["limits"] = requests.encode_limits(limits)
    link.load_part(_PART)
    guest = await guest_records.record_guest(link, target)

    async def start() -> Job:
        answer = await link.call("start", fields).result()
        if "error" in answer:
            await list_jobs(link)
            is_folder = answer["error"] == "cwd"
            raise_for_answer(answer, f"cwd: {options.get('cwd')}" if is_folder else format_command(command)[:80])
        if guest_records.read_record(guest.id) is None:  # another process has pruned the last job meanwhile
            await asyncio.to_thread(guest_records.write_record, guest)
        return Job(link, fields["job"])

    job = await create_or_rollback(start(), _kill_and_prune)
    _log.info("job %s started", job.id, extra={"target": target, "lease_s": fields["cap_s"]})
    _log.debug("job %s runs this command", job.id, extra={"command": format_command(command)})
    return job


async def _kill_and_prune(job: Job) -> None:
    await job.kill(0.1, max_output=0)
    await job.prune()


def _encode_options(options: JobOptions) -> dict[str, Any]:
    name, cwd = options.get("name", ""), options.get("cwd")
    cap_s, log_cap = options.get("cap_s", CAP_S), options.get("log_cap", LOG_CAP)
    validate_name(name, "name", _LONGEST_NAME)
    if validate_count(log_cap, "log_cap") < 1:
        raise UsageError("log_cap=0 keeps no output", remedy="at least 1")
    return {
        "name": name,
        "env": encode_env(options.get("env") or {}),
        "cwd": None if cwd is None else encode(cwd, "cwd"),
        "stdin": validate_flag(options.get("stdin", False), "stdin"),
        "cap_s": None if cap_s is None else validate_seconds(cap_s, "cap_s", _LONGEST_CAP_S),
        "log_cap": log_cap,
        "bound": not validate_flag(options.get("keep", True), "keep"),
    }


async def list_jobs(link: Link) -> list[JobStatus]:
    """Return the jobs of a guest, in the order of their starts; the record of a guest without jobs is removed."""
    link.load_part(_PART)
    answer = await link.call("jobs", {}).result()
    raise_for_answer(answer, "jobs")
    jobs = JobList(JobStatus.from_answer(fields) for fields in answer["jobs"])
    if not jobs:
        await guest_records.forget_guest(link)
    return jobs


async def prune_jobs(link: Link) -> list[str]:
    """Remove all ended jobs and their logs; return their ids."""
    link.load_part(_PART)
    answer = await link.call("job_prune", {}).result()
    raise_for_answer(answer, "jobs")
    await guest_records.forget_guest(link)
    return [str(id) for id in answer["pruned"]]
