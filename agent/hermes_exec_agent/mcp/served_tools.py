"""The tools of a server: commands, shells, jobs and files of one target.

The arguments are models, which are also the schemas that clients read; so are the results. The annotations of each tool
state the most that it can do.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_exec._async import cancel_and_wait
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import TransferError, Unsupported, UsageError
from hermes_exec.terminal.output import OutputBuffer, SpoolFolder
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.tools.base import ToolArguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from hermes_exec.result import Result
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.stream import Stream
    from hermes_exec_agent.mcp.served_target import ServedTarget

    Report = Callable[[float, str], Awaitable[None]]
    """Tells the client how long a call has run, and a line about it."""

REPORT_EVERY_S = 1.0
_OUTPUT = 64 << 10
_MOST_OUTPUT = 4 << 20
_MOST_ENTRIES = 2000
MOST_SYNCED = 1 << 30
_SMALLER = "a smaller folder; a person starts the server with another --sync-limit"
_MOST_S = 7 * 86400
_LINE = 200
"""Characters of a command's last line of output that a report shows."""


class ServedResult(BaseModel):
    """A result; every one names the target."""

    model_config = ConfigDict(frozen=True)
    ok: bool
    backend: str = Field(description="The target, as the person wrote it")


class CommandResult(ServedResult):
    """The end of a command."""

    exit_code: int | None = Field(description="null if a signal or a limit ended it")
    reason: str = Field(description="How it ended")
    timed_out: bool
    stdout: str
    stderr: str
    stdout_truncated: bool = Field(description="Whether the middle of stdout is left out")
    stderr_truncated: bool
    stdout_bytes: int = Field(description="Bytes that it wrote")
    stderr_bytes: int
    duration_s: float
    note: str = ""


class SyncChange(BaseModel):
    """A difference between two folders."""

    path: str
    action: str = Field(description="copy, touch or delete")


class SyncResult(ServedResult):
    """The result of a sync."""

    copied: int
    deleted: int
    unchanged: int
    bytes: int
    changes: list[SyncChange] = Field(description="The first of them")


class SessionResult(ServedResult):
    """Whether a shell was closed."""

    session: str


class JobResult(ServedResult):
    """The state of a job."""

    job: str
    name: str
    command: str
    state: Literal["running", "waiting", "ended"] = Field(description="waiting: its log is full")
    exit_code: int | None
    reason: str = Field(description="How it ended; empty while it runs")
    duration_s: float
    stdout_bytes: int
    stderr_bytes: int
    note: str = ""


class JobList(ServedResult):
    """All jobs."""

    jobs: list[JobResult]


class JobLog(ServedResult):
    """A part of a job's output."""

    job: str
    output: str
    next_offset: int = Field(description="The offset at which the next part begins")
    total: int = Field(description="Bytes written so far")
    state: str


class FileContent(ServedResult):
    """A part of a file."""

    path: str
    content: str
    encoding: Literal["utf-8", "base64"]
    bytes: int = Field(description="Bytes of this part")
    truncated: bool = Field(description="Whether the file goes on after this part")


class WrittenFile(ServedResult):
    """A file that was written."""

    path: str
    bytes: int


class FileEntry(BaseModel):
    """A file in a folder."""

    name: str
    kind: Literal["file", "folder", "link", "other"]
    size: int
    mode: str
    modified: float = Field(description="Seconds since 1970")


class FileList(ServedResult):
    """The files in a folder."""

    path: str
    entries: list[FileEntry]
    truncated: bool


class RunArguments(ToolArguments):
    """Run shell text in a shell of its own, to its end. Nothing persists; calls run side by side."""

    command: str = Field(min_length=1)
    cwd: str = Field("", description="Run in this folder")
    env: dict[str, str] = Field(default_factory=dict, description="Variables in addition to the target's own")
    stdin: str = Field("", description="Its standard input")
    timeout: int = Field(0, ge=0, le=_MOST_S, description="Seconds; 0: as the target is configured")
    max_output: int = Field(_OUTPUT, ge=0, le=_MOST_OUTPUT, description="Bytes of each stream to return")


class SessionRunArguments(ToolArguments):
    """Run shell text in a named live shell. Folder, variables and functions persist; its calls run one by one."""

    session: str = Field(min_length=1, max_length=64, description="A name of yours; the first call opens the shell")
    command: str = Field(min_length=1)
    stdin: str = Field("", description="Its standard input")
    timeout: int = Field(0, ge=0, le=_MOST_S, description="Seconds; 0: as the target is configured")
    max_output: int = Field(_OUTPUT, ge=0, le=_MOST_OUTPUT, description="Bytes of each stream to return")


class SessionCloseArguments(ToolArguments):
    """Close a named shell, and end the processes that its commands left."""

    session: str = Field(min_length=1, max_length=64)


class JobStartArguments(ToolArguments):
    """Start shell text as a job, which goes on after this call, and after this server and its connection ended."""

    command: str = Field(min_length=1)
    name: str = Field("", max_length=256, description="A label")
    cwd: str = Field("", description="Run in this folder")
    env: dict[str, str] = Field(default_factory=dict, description="Variables in addition to the target's own")
    time_limit: int = Field(0, ge=0, description="Seconds after which it is ended; 0: as the target is configured")


class JobArguments(ToolArguments):
    """Return the state of a job."""

    job: str = Field(min_length=1, max_length=200)
    wait: int = Field(0, ge=0, le=3600, description="Wait this many seconds for its end first")


class JobLogArguments(ToolArguments):
    """Return a part of a job's output."""

    job: str = Field(min_length=1, max_length=200)
    offset: int = Field(0, description="Bytes to skip; a negative number counts from the end")
    length: int = Field(_OUTPUT, ge=1, le=_MOST_OUTPUT)
    stream: Literal["both", "stdout", "stderr"] = "both"


class JobKillArguments(ToolArguments):
    """End a job and all its processes."""

    job: str = Field(min_length=1, max_length=200)


class JobListArguments(ToolArguments):
    """List the jobs."""


class ReadArguments(ToolArguments):
    """Read a file, or a part of it."""

    path: str = Field(min_length=1)
    offset: int = Field(0, ge=0, description="Bytes to skip")
    length: int = Field(256 << 10, ge=1, le=_MOST_OUTPUT, description="Bytes to read")


class WriteArguments(ToolArguments):
    """Replace the content of a file atomically; missing folders are created."""

    path: str = Field(min_length=1)
    content: str
    encoding: Literal["utf-8", "base64"] = "utf-8"


class ListArguments(ToolArguments):
    """List the files in a folder."""

    path: str = "."


class SyncArguments(ToolArguments):
    """Make a folder of the target like one of the server's machine, or the reverse; only what differs is moved."""

    local: str = Field(".", description="Below the folder that the server was started with")
    remote: str = Field(min_length=1)
    direction: Literal["up", "down"] = Field("up", description="up: to the target")
    delete: bool = Field(False, description="Remove what the source does not have")
    dry_run: bool = Field(False, description="Change nothing")


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool of the server, with the most that it can do."""

    name: str
    arguments: type[ToolArguments]
    result: type[ServedResult]
    call: Callable[[Any, Report], Coroutine[Any, Any, ServedResult]]
    only_reads: bool = False
    destroys: bool = False
    """Whether it may end or overwrite something."""
    is_idempotent: bool = False
    """Whether a second call with the same arguments changes nothing more."""
    reaches_out: bool = False
    """Whether it may reach beyond the target, as any command can."""
    about: str = ""
    """Its description, if that is not the docstring of its arguments."""
    schema: dict[str, Any] | None = None
    """Of its arguments, if that is not the one of their class."""


class TargetTools:
    """The calls of the tools."""

    def __init__(self, target: ServedTarget, folder: Path | None = None, most_bytes: int = MOST_SYNCED) -> None:
        """Keep what the tools use.

        Args:
            target: of the commands.
            folder: of this machine, that the tool ``sync`` uses; without one there is no such tool.
            most_bytes: that one call of it may copy.
        """
        self._target = target
        self._folder = folder
        self._most_bytes = most_bytes

    def create(self) -> tuple[ServedTool, ...]:
        """Return the tools."""
        sync = ServedTool("sync", SyncArguments, SyncResult, self.sync, destroys=True, is_idempotent=True)
        return (
            *([sync] if self._folder is not None else []),
            ServedTool("run", RunArguments, CommandResult, self.run, destroys=True, reaches_out=True),
            ServedTool(
                "session_run", SessionRunArguments, CommandResult, self.run_in_session, destroys=True, reaches_out=True
            ),
            ServedTool(
                "session_close",
                SessionCloseArguments,
                SessionResult,
                self.close_session,
                destroys=True,
                is_idempotent=True,
            ),
            ServedTool("job_start", JobStartArguments, JobResult, self.start_job, destroys=True, reaches_out=True),
            ServedTool("job_poll", JobArguments, JobResult, self.poll_job, only_reads=True, is_idempotent=True),
            ServedTool("job_log", JobLogArguments, JobLog, self.read_job_log, only_reads=True, is_idempotent=True),
            ServedTool("job_list", JobListArguments, JobList, self.list_jobs, only_reads=True, is_idempotent=True),
            ServedTool("job_kill", JobKillArguments, JobResult, self.kill_job, destroys=True, is_idempotent=True),
            ServedTool("read", ReadArguments, FileContent, self.read_file, only_reads=True, is_idempotent=True),
            ServedTool("write", WriteArguments, WrittenFile, self.write_file, destroys=True, is_idempotent=True),
            ServedTool("list", ListArguments, FileList, self.list_files, only_reads=True, is_idempotent=True),
        )

    async def run(self, args: RunArguments, report: Report) -> CommandResult:
        """Run a command in a shell that ends with it."""
        terminal = await self._target.terminal()
        async with terminal.session() as session:
            stream = session.stream(
                args.command, cwd=args.cwd or None, env=args.env or None, stdin=args.stdin or None,
                timeout=args.timeout or None,
            )  # fmt: skip
            return await self._follow(stream, args.max_output, report)

    async def run_in_session(self, args: SessionRunArguments, report: Report) -> CommandResult:
        """Run a command in a named shell."""
        session = await self._target.session(args.session)
        stream = session.stream(args.command, stdin=args.stdin or None, timeout=args.timeout or None)
        return await self._follow(stream, args.max_output, report)

    async def close_session(self, args: SessionCloseArguments, _: Report) -> SessionResult:
        """Close a named shell."""
        closed = await self._target.close_session(args.session)
        return SessionResult(ok=closed, backend=self._target.name, session=args.session)

    async def start_job(self, args: JobStartArguments, _: Report) -> JobResult:
        """Start a job."""
        terminal = await self._target.terminal()
        job = await terminal.start(
            args.command, name=args.name, cwd=args.cwd or None, env=args.env or None, cap_s=args.time_limit or None
        )
        return self._to_job(await job.status())

    async def poll_job(self, args: JobArguments, report: Report) -> JobResult:
        """Return the state of a job, at its end or after the wait."""
        async with self._target.job(args.job) as job:
            if args.wait:
                ticker = asyncio.create_task(Progress(report).tick())
                try:
                    await job.wait(args.wait, max_output=0)
                except TimeoutError:
                    pass
                finally:
                    await cancel_and_wait([ticker])
            return self._to_job(await job.status())

    async def read_job_log(self, args: JobLogArguments, _: Report) -> JobLog:
        """Return a part of a job's output."""
        data = bytearray()
        async with self._target.job(args.job) as job:
            status = await job.status()
            sizes = {"stdout": status.stdout_bytes, "stderr": status.stderr_bytes}
            total = sizes.get(args.stream, sum(sizes.values()))
            start = max(0, total + args.offset) if args.offset < 0 else min(args.offset, total)
            async with aclosing(job.logs(start, args.stream)) as events:
                async for event in events:
                    data += event.data
                    if len(data) >= args.length:
                        break
        del data[args.length :]
        return JobLog(
            ok=True, backend=self._target.name, job=job.id, output=data.decode("utf-8", "replace"),
            next_offset=start + len(data), total=total, state=status.state,
        )  # fmt: skip

    async def list_jobs(self, _: JobListArguments, __: Report) -> JobList:
        """List the jobs of the target."""
        jobs = await self._target.jobs()
        return JobList(ok=True, backend=self._target.name, jobs=[self._to_job(each) for each in jobs])

    async def kill_job(self, args: JobKillArguments, _: Report) -> JobResult:
        """End a job."""
        async with self._target.job(args.job) as job:
            await job.kill(max_output=0)
            return self._to_job(await job.status())

    async def read_file(self, args: ReadArguments, _: Report) -> FileContent:
        """Read a part of a file; without Python in the target, the whole file is transferred for it."""
        terminal = await self._target.terminal()
        try:
            data = await terminal.files.read(args.path, args.offset, args.length + 1)
        except Unsupported:
            data = (await terminal.read(args.path))[args.offset : args.offset + args.length + 1]
        content, encoding, used = _decode(data[: args.length])
        return FileContent(
            ok=True, backend=self._target.name, path=args.path, content=content, encoding=encoding, bytes=used,
            truncated=len(data) > used,
        )  # fmt: skip

    async def write_file(self, args: WriteArguments, _: Report) -> WrittenFile:
        """Write a file."""
        terminal = await self._target.terminal()
        try:
            data = args.content.encode() if args.encoding == "utf-8" else base64.b64decode(args.content, validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise UsageError(f"content is not {args.encoding} text: {error}") from None
        try:
            await terminal.files.write(args.path, data, parents=True)
        except Unsupported:
            await terminal.write(args.path, data)
        return WrittenFile(ok=True, backend=self._target.name, path=args.path, bytes=len(data))

    async def list_files(self, args: ListArguments, _: Report) -> FileList:
        """List a folder."""
        found = await (await self._target.terminal()).files.list(args.path)
        entries = [
            FileEntry(
                name=_to_text(os.path.basename(each.path)),  # noqa: PTH119  a path of the target
                kind=each.kind.value,
                size=each.size,
                mode=f"{each.mode:04o}",
                modified=each.mtime_ns / 1e9,
            )
            for each in found[:_MOST_ENTRIES]
        ]
        truncated = len(found) > len(entries)
        return FileList(ok=True, backend=self._target.name, path=args.path, entries=entries, truncated=truncated)

    async def sync(self, args: SyncArguments, report: Report) -> SyncResult:
        """Make a folder like another one."""
        terminal = await self._target.terminal()
        local = await asyncio.to_thread(self._find_local, args.local)
        ticker = asyncio.create_task(Progress(report).tick())
        try:
            done = await terminal.sync(local, args.remote, direction=args.direction, delete=args.delete, dry_run=True)
            if not args.dry_run:
                if done.bytes > self._most_bytes:
                    raise UsageError(_describe_excess(done.bytes, self._most_bytes), remedy=_SMALLER)
                done = await terminal.sync(
                    local, args.remote, direction=args.direction, delete=args.delete,
                    progress=ByteLimit(self._most_bytes).count,
                )  # fmt: skip
        finally:
            await cancel_and_wait([ticker])
        changes = [
            SyncChange(path=_to_text(str(each.path)), action=each.action) for each in done.changes[:_MOST_ENTRIES]
        ]
        return SyncResult(
            ok=True, backend=self._target.name, copied=done.copied, deleted=done.deleted, unchanged=done.unchanged,
            bytes=done.bytes, changes=changes,
        )  # fmt: skip

    def _find_local(self, path: str) -> Path:
        """Return the path of a folder below that of the server.

        Raises:
            UsageError: it is elsewhere.
        """
        if self._folder is None:
            raise UsageError("this server has no folder to sync", remedy="--sync FOLDER")
        folder = self._folder.resolve()
        try:
            found = (folder / path).resolve()
        except (ValueError, OSError, RuntimeError):  # NUL, half of a character, or links in a circle
            raise UsageError(f"local: {to_printable(path)} is not a path", remedy="a relative path") from None
        if not found.is_relative_to(folder):
            raise UsageError(
                f"local: {to_printable(path)} is not below the folder of the server", remedy="a relative path"
            )
        return found

    async def _follow(self, stream: Stream, most: int, report: Report) -> CommandResult:
        """Collect the output of a command until it ends, and report on it meanwhile."""
        spools = SpoolFolder()
        outputs = {"stdout": OutputBuffer(most, spools), "stderr": OutputBuffer(most, spools)}
        progress = Progress(report)
        try:
            async with stream as events:
                ticker = asyncio.create_task(progress.tick())
                try:
                    async for event in events:
                        if event.result is None:
                            outputs[event.kind].feed(event.data)
                            progress.add(event.data)
                    result = await events.result()
                finally:
                    await cancel_and_wait([ticker])
            return self._to_command(result, outputs)
        finally:
            spools.close()

    def _to_command(self, result: Result, outputs: dict[str, OutputBuffer]) -> CommandResult:
        stdout, lost_stdout = outputs["stdout"].finish()
        stderr, lost_stderr = outputs["stderr"].finish()
        return CommandResult(
            ok=result.ok, backend=self._target.name, exit_code=result.exit_code, reason=result.reason,
            timed_out=result.timed_out, stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"), stdout_truncated=lost_stdout is not None,
            stderr_truncated=lost_stderr is not None, stdout_bytes=outputs["stdout"].total,
            stderr_bytes=outputs["stderr"].total, duration_s=round(result.duration_s, 6), note=result.note,
        )  # fmt: skip

    def _to_job(self, status: JobStatus) -> JobResult:
        ended = status.result
        return JobResult(
            ok=ended is None or ended.ok, backend=self._target.name, job=status.id, name=status.name,
            command=status.command, state=status.state.value, exit_code=ended.exit_code if ended else None,
            reason=ended.reason if ended else "", duration_s=round(status.duration_s, 6),
            stdout_bytes=status.stdout_bytes, stderr_bytes=status.stderr_bytes, note=status.note,
        )  # fmt: skip


class ByteLimit:
    """Ends a sync that copies more than it planned, as files may grow, and a target may lie about their sizes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._portion = self._files = self._before = 0

    def count(self, done_bytes: int, _all_bytes: int, done_files: int, _all_files: int) -> None:
        """Take the bytes and files of the portion that is being copied.

        Raises:
            TransferError: all portions have more than the limit.
        """
        if done_bytes < self._portion or done_files < self._files:  # the next portion
            self._before += self._portion
        self._portion, self._files = done_bytes, done_files
        if (copied := self._before + done_bytes) > self._most:
            raise TransferError(_describe_excess(copied, self._most), remedy=_SMALLER, state="a part was copied")


def _describe_excess(found: int, most: int) -> str:
    return f"sync: {found} bytes, and this server copies up to {most} bytes in a call"


class Progress:
    """Reports on a running command."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._began = time.monotonic()
        self._bytes = 0
        self._last = b""

    def add(self, data: bytes) -> None:
        """Take output of the command."""
        self._bytes += len(data)
        lines = data.rstrip().rsplit(b"\n", 1)
        self._last = lines[-1][-_LINE:] or self._last

    async def tick(self) -> None:
        """Report from time to time, until this is cancelled."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            elapsed_s = time.monotonic() - self._began
            line = flatten(self._last.decode("utf-8", "replace"), _LINE)
            said = f", {self._bytes} bytes of output" + (f": {line}" if line else "") if self._bytes else ""
            await self._report(round(elapsed_s, 3), f"runs for {elapsed_s:.0f} s{said}")


def _decode(data: bytes) -> tuple[str, Literal["utf-8", "base64"], int]:
    """Return bytes as text, and how many of them; a character that is cut off at the end is left to the next part."""
    try:
        return data.decode(), "utf-8", len(data)
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start > 0:
            return data[: error.start].decode(), "utf-8", error.start
    return base64.b64encode(data).decode(), "base64", len(data)


def _to_text(name: str) -> str:
    """Return a file's name; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")
