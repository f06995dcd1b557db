"""The same terminals, blocking: for scripts, for threads and for notebooks.

    with hermes_exec.sync.open("local") as terminal:
        print(terminal.run("uname -s").stdout_text)

Names, arguments, results and errors are those of ``hermes_exec``. Any number of threads may share an
object. Ctrl-C ends what the main thread waits for, waits until it has ended, and is then raised; a second
one gives up that waiting. Callbacks run on whichever thread drives at that moment, and must not call back.
After a fork the child can open new terminals, and not use the parent's.

Written by ``./dev generate`` from the asynchronous classes; do not edit.
"""

# ruff: noqa: PLR0913  as many arguments as the asynchronous methods have

from __future__ import annotations

from typing import TYPE_CHECKING

import hermes_exec
from hermes_exec._arguments import check_call
from hermes_exec._sync.portal import portal
from hermes_exec._sync.proxy import BlockingContextManager, BlockingIterator, BlockingProxy, unwrap
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT

if TYPE_CHECKING:
    import os
    import signal as signals
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Literal, Self, Unpack

    from hermes_exec import (
        Backend,
        Capabilities,
        Channel,
        Check,
        Closed,
        CommandFailed,
        ConfigError,
        Event,
        Exit,
        Fate,
        FileInfo,
        GatherFailed,
        HermesError,
        Limits,
        MissingExtra,
        OutcomeUnknown,
        PlaceError,
        PlaceGone,
        PlaceUnavailable,
        Pool,
        ProtocolError,
        Receiver,
        Refused,
        Result,
        ShellState,
        SyncReport,
        TransferError,
        Truncation,
        Unsupported,
        UsageError,
        __version__,
    )
    from hermes_exec.config.profile import Profile
    from hermes_exec.files.files import Files as AsyncFiles
    from hermes_exec.files.info import Progress, ResolvedPath, TransferReport
    from hermes_exec.files.requests import Path
    from hermes_exec.files.sync import Direction
    from hermes_exec.files.transfer import Links
    from hermes_exec.pool.lease import Lease as AsyncLease
    from hermes_exec.pool.orchestrator import Orchestrator as AsyncOrchestrator
    from hermes_exec.pool.orchestrator import PoolStatus
    from hermes_exec.pool.recovery import Recovered as AsyncRecovered
    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.forward import Endpoint
    from hermes_exec.terminal.forward import Forward as AsyncForward
    from hermes_exec.terminal.job import Job as AsyncJob
    from hermes_exec.terminal.job_log import LogStream
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.limits import Enforcement
    from hermes_exec.terminal.pty import Pty as AsyncPty
    from hermes_exec.terminal.pty_status import PtyStatus
    from hermes_exec.terminal.requests import RunOptions, StreamOptions
    from hermes_exec.terminal.session import Session as AsyncSession
    from hermes_exec.terminal.stream import Stream as AsyncStream
    from hermes_exec.terminal.terminal import SyncOptions, TransferOptions
    from hermes_exec.terminal.terminal import Terminal as AsyncTerminal
__all__ = [
    "Backend",
    "Capabilities",
    "Channel",
    "Check",
    "Closed",
    "CommandFailed",
    "ConfigError",
    "Event",
    "Exit",
    "Fate",
    "FileInfo",
    "Files",
    "Forward",
    "GatherFailed",
    "HermesError",
    "Job",
    "Lease",
    "Limits",
    "MissingExtra",
    "Orchestrator",
    "OutcomeUnknown",
    "PlaceError",
    "PlaceGone",
    "PlaceUnavailable",
    "Pool",
    "ProtocolError",
    "Pty",
    "Receiver",
    "Recovered",
    "Refused",
    "Result",
    "Session",
    "ShellState",
    "Stream",
    "SyncReport",
    "Terminal",
    "TransferError",
    "Truncation",
    "Unsupported",
    "UsageError",
    "__version__",
    "gather",
    "open",
]


def __getattr__(name: str) -> object:
    """Give the public names that are the same in both interfaces."""
    if name in __all__:
        return getattr(hermes_exec, name)
    raise AttributeError(f"module 'hermes_exec.sync' has no attribute {name!r}")


class Terminal(BlockingProxy):
    """Commands, sessions, jobs, files and ports of one target. Created by ``hermes_exec.sync.open``.

    Any number of threads may use it at once.
    """

    __slots__ = ()
    _core: AsyncTerminal

    def __repr__(self) -> str:
        """Return the target and whether the terminal is open."""
        return repr(self._core)

    @property
    def target(self) -> str:
        """The one-line target that this terminal has open."""
        return self._core.target

    @property
    def kind(self) -> str:
        """The type of the target: ``local``, ``docker``, …; of nested targets, that of the innermost one."""
        return self._core.kind

    @property
    def capabilities(self) -> Capabilities:
        """The guarantees of this target; docs/promises.md describes each name."""
        return self._core.capabilities

    def run(self, command: Argument | Sequence[Argument], **options: Unpack[RunOptions]) -> Result:
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
            KeyboardInterrupt: the user pressed Ctrl-C; the command has ended by then.
        """
        return self._portal.call(self._core.run(command, **options))

    def stream(self, command: Argument | Sequence[Argument], **options: Unpack[StreamOptions]) -> Stream:
        """Run a command and yield its output as it arrives: ``with terminal.stream(…) as events``.

        The options are those of ``run``. The command starts when the block is entered, and is ended when it is left.
        ``interactive`` leaves standard input open for ``Stream.write``.
        """
        return Stream(self._portal, self._portal.do(lambda: self._core.stream(command, **options)))

    def session(
        self,
        name: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        shell: str | None = None,
        login: bool | None = None,
    ) -> Session:
        """Open another live shell, independent of all others: ``with terminal.session() as session``.

        It starts with the settings of the terminal.
        """
        return Session(
            self._portal, self._portal.call(self._core.session(name, cwd=cwd, env=env, shell=shell, login=login))
        )

    @property
    def files(self) -> Files:
        """The files of the target: list, stat, glob, move, remove, permissions, links, transfer, sync.

        Raises:
            Unsupported: the target has no Python; ``read`` and ``write`` work without one.
        """
        return Files(self._portal, self._core.files)

    def read(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """Return the content of a file; ``files.read`` reads parts of it.

        Raises:
            TransferError: it cannot be read; ``errno`` has the cause.
        """
        return self._portal.call(self._core.read(path))

    def write(self, path: str | bytes | os.PathLike[str], data: bytes) -> None:
        """Replace the content of a file atomically: readers see either the old or the new content.

        Raises:
            TransferError: it could not be written, and is unchanged.
        """
        self._portal.call(self._core.write(path, data))

    def upload(self, local: Path, remote: Path, **options: Unpack[TransferOptions]) -> TransferReport:
        """Send a file or a tree to exactly ``remote``; see ``Files.upload``."""
        return self._portal.call(self._core.upload(local, remote, **options))

    def download(self, remote: Path, local: Path, **options: Unpack[TransferOptions]) -> TransferReport:
        """Fetch a file or a tree to exactly ``local``; see ``Files.download``."""
        return self._portal.call(self._core.download(remote, local, **options))

    def sync(self, local: Path, remote: Path, **options: Unpack[SyncOptions]) -> SyncReport:
        """Make one folder equal to the other, transferring only differences; see ``Files.sync``."""
        return self._portal.call(self._core.sync(local, remote, **options))

    def forward(
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
        return Forward(
            self._portal, self._portal.call(self._core.forward(listen, to, reverse=reverse, on_failure=on_failure))
        )

    def start(
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
        return Job(
            self._portal,
            self._portal.call(
                self._core.start(
                    command,
                    name=name,
                    env=env,
                    cwd=cwd,
                    stdin=stdin,
                    cap_s=cap_s,
                    log_cap=log_cap,
                    limits=limits,
                    keep=keep,
                )
            ),
        )

    def jobs(self) -> list[JobStatus]:
        """Return the jobs of this terminal's guest, in the order of their starts."""
        return self._portal.call(self._core.jobs())

    def job(self, id: str) -> Job:
        """Return a job by its id.

        Raises:
            UsageError: there is no such job here.
        """
        return Job(self._portal, self._portal.call(self._core.job(id)))

    def limits(self) -> Enforcement:
        """Return the mechanism that enforces each limit in this target, as tested there."""
        return self._portal.call(self._core.limits())

    def pty(
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
        return Pty(
            self._portal,
            self._portal.call(
                self._core.pty(command, rows=rows, cols=cols, env=env, cwd=cwd, name=name, keep_s=keep_s)
            ),
        )

    def ptys(self) -> list[PtyStatus]:
        """Return the interactive programs of this terminal's guest, of every client, in the order of their starts."""
        return self._portal.call(self._core.ptys())

    def attach(self, name: str, *, rows: int = 0, cols: int = 0) -> Pty:
        """Attach to the interactive program of that name; its recent output is sent first.

        Raises:
            Closed: there is none of that name.
        """
        return Pty(self._portal, self._portal.call(self._core.attach(name, rows=rows, cols=cols)))

    def snapshot(self, name: str | None = None) -> str:
        """Save the files of the target as they are now; return the target that opens a copy of them.

        Args:
            name: the name of the snapshot, in the notation of the backend; a random one by default.

        Raises:
            Unsupported: ``capabilities.features`` has no ``snapshot``.
            PlaceUnavailable: it could not be created; nothing is left of it.
        """
        return self._portal.call(self._core.snapshot(name))

    def suspend(self) -> None:
        """Pause all processes of the target until ``resume``. The time limits of commands keep counting.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._portal.call(self._core.suspend())

    def resume(self) -> None:
        """Resume the processes that ``suspend`` paused.

        Raises:
            Unsupported: ``capabilities.features`` has no ``suspend``.
        """
        self._portal.call(self._core.resume())

    def close(self, *, keep: bool = False) -> None:
        """End everything but jobs, and release the target. Safe to call twice.

        ``keep`` leaves the target open for a later ``open``, if it supports that (``capabilities.features``). A
        target with running jobs stays open until they end. Cancellation is delivered after cleanup.
        """
        self._portal.finalizers.unregister(self._core)
        self._end(self._core.close(keep=keep))

    def __enter__(self) -> Self:
        """The terminal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the terminal."""
        self.close()


class Session(BlockingProxy):
    """A live shell. Its commands run one after another, in the order of the calls.

    Sessions are independent of each other. After ``exit`` or a crash of its shell a session continues in
    a new shell; ``Result.shell`` says with which state.
    """

    __slots__ = ()
    _core: AsyncSession

    @property
    def name(self) -> str:
        """The name."""
        return self._core.name

    def __repr__(self) -> str:
        """Return its name and its target."""
        return repr(self._core)

    def run(self, command: Argument, **options: Unpack[RunOptions]) -> Result:
        """Run a command in this shell to its end. The options are those of ``Terminal.run``.

        With ``env``, ``cwd`` or ``limits`` it runs in a subshell: it sees the session's state and
        changes none of it.
        """
        return self._portal.call(self._core.run(command, **options))

    def stream(self, command: Argument, **options: Unpack[StreamOptions]) -> Stream:
        """Run a command in this shell and yield its output as it arrives; see ``Terminal.stream``."""
        return Stream(self._portal, self._portal.do(lambda: self._core.stream(command, **options)))

    def background_output(self) -> tuple[bytes, bytes]:
        """Return the standard output and error that children of earlier commands wrote since the last call.

        It never mixes with a later command's output. The newest 1 MiB of each is kept.
        """
        return self._portal.do(self._core.background_output)

    def close(self) -> None:
        """End the shell and all processes that its commands left running. Safe to call twice.

        When the target is out of reach, it returns once that is noticed; the shell is ended as soon as the target is
        reached again.
        """
        self._end(self._core.close())

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class Stream(BlockingProxy):
    """A command that runs for the length of an ``with``; iterate over it for its events.

    The last event is ``exit``, with a result without output, which the events had. A slow reader makes the
    command wait. Leaving the block by its end, ``break``, an error or cancellation ends the command.

    Only a block is guaranteed to be left: a loop alone drops its iterator on ``break``, and an error keeps it in the
    traceback. So outside of a block every method but ``close`` raises UsageError, and nothing runs.
    """

    __slots__ = ()
    _core: AsyncStream

    def __repr__(self) -> str:
        """Return its target and its state."""
        return repr(self._core)

    def __iter__(self) -> Self:
        """The events."""
        return self

    def __next__(self) -> Event:
        """Return the next event."""
        return self._step(self._core)

    def write(self, data: bytes | str) -> None:
        """Send standard input; needs ``interactive=True``. Waits while the command does not read."""
        self._portal.call(self._core.write(data))

    def close_stdin(self) -> None:
        """Close standard input."""
        self._portal.call(self._core.close_stdin())

    def cancel(self) -> Result:
        """End the command and all its processes. The newest unread output can still be read.

        Unread output beyond the flow-control window (4 MiB a stream) is dropped, oldest first, because a
        command blocked on its output could not end.
        """
        return self._portal.call(self._core.cancel())

    def result(self) -> Result:
        """Wait for the end, dropping unread output."""
        return self._portal.call(self._core.result())

    def close(self) -> None:
        """End the command if it still runs."""
        self._end(self._core.close())

    def __enter__(self) -> Self:
        """Start the command."""
        self._portal.call(self._core.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the command if it still runs."""
        self.close()


class Files(BlockingProxy):
    """The files of one target. A relative path is seen from ``default_cwd``, else from the terminal's folder.

    Every method raises TransferError, which has the target's ``errno``, the path as ``filename`` and as
    ``state`` what is true now; it also is the built-in error for that number, so that
    ``except FileNotFoundError`` works. OutcomeUnknown says that the target was lost meanwhile: a file then
    is as it was or as it was to be, never in between.
    """

    __slots__ = ()
    _core: AsyncFiles

    def __repr__(self) -> str:
        """Return the target."""
        return repr(self._core)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """The content of a file, or ``length`` bytes of it from ``offset`` on; fewer when it ends before."""
        return self._portal.call(self._core.read(path, offset, length))

    def resolve(self, path: Path) -> ResolvedPath:
        """Where a path leads: links are followed, and bind mounts named. Nothing is opened for reading."""
        return self._portal.call(self._core.resolve(path))

    def read_resolved(self, path: Path, offset: int = 0, length: int | None = None) -> tuple[ResolvedPath, bytes]:
        """Read as ``read`` does, and say which file that was: both are of the same open file."""
        return self._portal.call(self._core.read_resolved(path, offset, length))

    def write(
        self,
        path: Path,
        data: bytes,
        *,
        mode: int | None = None,
        append: bool = False,
        parents: bool = False,
        durable: bool = False,
    ) -> None:
        """Replace a file's content atomically: a reader sees the old or the new content, whole.

        It keeps its owner (where the user there may give files away) and its mode unless ``mode`` is
        given. A link is followed. ``append`` adds to the file instead; a failure takes back what was
        added. ``parents`` makes missing folders, ``durable`` returns only when the disk has it.
        """
        self._portal.call(self._core.write(path, data, mode=mode, append=append, parents=parents, durable=durable))

    def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """Return the attributes of the file that a path leads to; with ``follow=False`` a link itself."""
        return self._portal.call(self._core.stat(path, follow=follow))

    def exists(self, path: Path) -> bool:
        """Whether a path leads to something; a link to nothing does not."""
        return self._portal.call(self._core.exists(path))

    def list(self, path: Path = ".") -> Sequence[FileInfo]:
        """List the entries of a folder, sorted by name; links are not followed."""
        return self._portal.call(self._core.list(path))

    def glob(self, pattern: Path, *, limit: int = 100000) -> Sequence[str]:
        """The paths that match, sorted: ``*``, ``?``, ``[…]`` within a name, ``**`` for any folders between.

        As in a shell, a name that begins with a dot matches only a pattern that does, and ``**`` goes
        through no link. More than ``limit`` matches are an error, so that none is left out silently.
        """
        return self._portal.call(self._core.glob(pattern, limit=limit))

    def mkdir(self, path: Path, *, parents: bool = False, mode: int | None = None) -> None:
        """Make a folder; with ``parents`` those above it too, and one that is there already will do."""
        self._portal.call(self._core.mkdir(path, parents=parents, mode=mode))

    def remove(self, path: Path, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link (never what it leads to) or an empty folder; with ``recursive`` a whole one.

        The root of the file system is refused. Where a whole folder cannot be removed, a part may be.
        """
        self._portal.call(self._core.remove(path, recursive=recursive, missing_ok=missing_ok))

    def move(self, path: Path, to: Path) -> None:
        """Rename a file or folder; a file that has the new name is replaced.

        Within a file system that happens at once. Into another one the whole is copied first, takes its
        new name at once, and is then removed here.
        """
        self._portal.call(self._core.move(path, to))

    def chmod(self, path: Path, mode: int) -> None:
        """Set the permissions of what a path leads to."""
        self._portal.call(self._core.chmod(path, mode))

    def symlink(self, target: Path, path: Path, *, replace: bool = False) -> None:
        """Make a link at ``path`` to ``target``; ``replace`` replaces what is there."""
        self._portal.call(self._core.symlink(target, path, replace=replace))

    def readlink(self, path: Path) -> str:
        """Where a link leads."""
        return self._portal.call(self._core.readlink(path))

    def hash(self, path: Path) -> str:
        """The SHA-256 of a file's content, in hexadecimal; it is computed there."""
        return self._portal.call(self._core.hash(path))

    def upload(
        self,
        local: Path,
        remote: Path,
        *,
        progress: Progress | None = None,
        verify: bool | None = None,
        parents: bool = True,
        links: Links = "refuse",
        ignore: Iterable[str | bytes] = (),
    ) -> TransferReport:
        """Send a file or a tree to exactly ``remote``; a file goes into it where that ends with a slash.

        Permissions, times, links and empty folders go along; setuid, setgid and sticky do not. A tree is
        added to a folder that is there already. A broken connection is resumed where it broke; a large
        file whose upload ended in OutcomeUnknown is, by the same call again.

        Args:
            local: a file or a folder of this side.
            remote: its path there.
            progress: called with bytes done and in all, files done and in all.
            verify: compare SHA-256 hashes before anything gets its name; left out, wherever the way itself does not
                authenticate each packet, as SSH does.
            parents: make missing folders above ``remote``.
            links: what to do with links that may lead out of the tree: ``refuse`` makes the transfer fail
                after everything else was copied, ``skip`` leaves them out, ``keep`` makes them anyway.
                None is ever followed.
            ignore: patterns as in a .gitignore for what to leave out of a tree.

        Raises:
            TransferError: ``state`` says what is true now; no file is ever half written.
        """
        return self._portal.call(
            self._core.upload(
                local, remote, progress=progress, verify=verify, parents=parents, links=links, ignore=ignore
            )
        )

    def download(
        self,
        remote: Path,
        local: Path,
        *,
        progress: Progress | None = None,
        verify: bool | None = None,
        parents: bool = True,
        links: Links = "refuse",
        ignore: Iterable[str | bytes] = (),
    ) -> TransferReport:
        """Fetch a file or a tree to exactly ``local``; otherwise as ``upload``.

        The target is not trusted: whatever it sends, nothing is written outside of ``local``.
        """
        return self._portal.call(
            self._core.download(
                remote, local, progress=progress, verify=verify, parents=parents, links=links, ignore=ignore
            )
        )

    def sync(
        self,
        local: Path,
        remote: Path,
        *,
        direction: Direction = "up",
        delete: bool = False,
        ignore: Iterable[str | bytes] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
        verify: bool | None = None,
        links: Links = "refuse",
    ) -> SyncReport:
        """Make the folder ``remote`` like ``local``, or the reverse, moving only what differs.

        Files of the same size and time count as the same; where only the time differs, their hashes
        decide.

        Args:
            local: the folder of this side.
            remote: the folder there.
            direction: ``up`` or ``down``.
            delete: remove what the source does not have; never what is ignored.
            ignore: patterns as in a .gitignore for what is neither copied nor deleted.
            dry_run: change nothing; the report says what would be done.
            progress: called with bytes done and in all, files done and in all.
            verify: compare SHA-256 hashes of what is sent, as for ``upload``.
            links: as for ``upload``.

        Raises:
            UsageError: a folder stands in the way of a file, or the reverse, without ``delete``.
            TransferError: ``state`` says what is true now; the same call again continues.
        """
        return self._portal.call(
            self._core.sync(
                local,
                remote,
                direction=direction,
                delete=delete,
                ignore=ignore,
                dry_run=dry_run,
                progress=progress,
                verify=verify,
                links=links,
            )
        )


class Job(BlockingProxy):
    """A job in a target, identified by its id. Returned by ``Terminal.start`` and ``Terminal.job``.

    A job ends when its program ends; background processes that the program left are ended then too.
    """

    __slots__ = ()
    _core: AsyncJob

    @property
    def id(self) -> str:
        """The id."""
        return self._core.id

    def __repr__(self) -> str:
        """Return the id."""
        return repr(self._core)

    def status(self) -> JobStatus:
        """Return its current status.

        Raises:
            UsageError: the target has no such job: it was pruned, or never existed.
        """
        return self._portal.call(self._core.status())

    def logs(
        self, offset: int = 0, stream: LogStream = "both", *, follow: bool = False, since: float | str | None = None
    ) -> BlockingIterator[Event]:
        """Yield its output as events, from byte ``offset`` of the stream on.

        ``both`` yields the streams in the order in which they were written; its offsets count the bytes of both.
        A negative offset counts from the end. With ``follow`` it continues until the job ends. A reader that
        is slow, or stops, does not affect the job. ``since`` replaces ``offset``: it yields what was written
        in the last seconds, or text such as ``10m``, by the target's clock, exact to a second
        or to a hundredth of a long time.
        """
        return BlockingIterator(self._portal, self._core.logs(offset, stream, follow=follow, since=since))

    def write(self, data: bytes | str) -> None:
        """Write to its standard input; return when the job's pipe has all of it.

        Raises:
            Closed: its input was closed, or it was started without ``stdin``, or it has ended.
        """
        self._portal.call(self._core.write(data))

    def close_stdin(self) -> None:
        """Close its standard input. Safe to call twice."""
        self._portal.call(self._core.close_stdin())

    def wait(self, timeout: float | str | None = None, *, max_output: int = DEFAULT_MAX_OUTPUT) -> Result:
        """Wait for its end; the result has up to ``max_output`` bytes of each stream, head and tail.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds, and keeps running.
        """
        return self._portal.call(self._core.wait(timeout, max_output=max_output))

    def kill(self, grace_s: float | str = 2.0, *, max_output: int = DEFAULT_MAX_OUTPUT) -> Result:
        """End the job and all its processes: TERM, and KILL after ``grace_s``. An ended job is left unchanged.

        Raises:
            PlaceError: some of its processes could not be ended and still run.
        """
        return self._portal.call(self._core.kill(grace_s, max_output=max_output))

    def prune(self) -> None:
        """Remove the job and its log. Safe when it is removed already.

        Raises:
            UsageError: it has not ended.
        """
        self._portal.call(self._core.prune())


class Pty(BlockingProxy):
    """A program on a pseudo-terminal. Returned by ``Terminal.pty`` and ``Terminal.attach``.

    Iterate over it, or call ``read``, for its output. A slow reader makes the program wait once some
    megabytes are in transit. Leaving ``with`` closes it, unless it was detached.
    """

    __slots__ = ()
    _core: AsyncPty

    @property
    def name(self) -> str:
        """The name for ``attach``, valid for every client of the same guest."""
        return self._core.name

    def __repr__(self) -> str:
        """Return its name, and whether it has ended."""
        return repr(self._core)

    def read(self) -> bytes:
        """Return output of the program, waiting for some; empty once it has ended and everything was read.

        Raises:
            OutcomeUnknown: the target was lost, and the program with it.
        """
        return self._portal.call(self._core.read())

    def __iter__(self) -> Self:
        """The output of the program, piece by piece."""
        return self

    def __next__(self) -> bytes:
        """Return the next piece."""
        return self._step(self._core)

    def write(self, data: bytes | str) -> None:
        r"""Send input; ``"\x03"`` is Ctrl-C, ``"\x04"`` Ctrl-D. Waits while the program does not read.

        Input after the end of the program is dropped.
        """
        self._portal.call(self._core.write(data))

    def close_stdin(self) -> None:
        """End the input: Ctrl-D is sent whenever all input was read, until the program ends."""
        self._portal.call(self._core.close_stdin())

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal, and signal the program. All attached clients share one size."""
        self._portal.call(self._core.resize(rows, cols))

    def signal(self, name: str | signals.Signals) -> None:
        """Send a signal such as ``"INT"`` to the foreground process group; the target maps the name to its number.

        Raises:
            PlaceError: there is no foreground process, or it belongs to another user; no signal was sent.
        """
        self._portal.call(self._core.signal(name))

    def wait(self) -> Result:
        """Wait for the end of the program, while its output is read elsewhere. Cancelling the wait ends nothing.

        Raises:
            Closed: it was detached, so its end is not reported here.
            OutcomeUnknown: the target was lost, and the program with it.
        """
        return self._portal.call(self._core.wait())

    def detach(self) -> None:
        """Detach: the program keeps running until the terminal closes, or for ``keep_s`` longer."""
        self._portal.call(self._core.detach())

    def close(self) -> None:
        """Hang up and end all its processes; return when they are gone. Safe to call twice.

        When the target is out of reach it returns too; the processes are ended as soon as the target is reached again.
        """
        self._end(self._core.close())

    def __enter__(self) -> Self:
        """The PTY itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, unless it was detached or its target is lost."""
        self._end(self._core.__aexit__(kind, error, trace))


class Forward(BlockingProxy):
    """Forwards connections from ``listen`` on one side to ``to`` on the other. Use it with ``with``.

    It lasts until it or its terminal is closed, or the target is lost.
    """

    __slots__ = ()
    _core: AsyncForward

    @property
    def listen(self) -> Endpoint:
        """The listen."""
        return self._core.listen

    @property
    def to(self) -> Endpoint:
        """The to."""
        return self._core.to

    @property
    def reverse(self) -> bool:
        """The reverse."""
        return self._core.reverse

    @property
    def address(self) -> Endpoint:
        """The address that it listens on; after ``start`` with the port that was chosen for port 0."""
        return self._core.address

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._core.connections

    def __repr__(self) -> str:
        """Return both addresses."""
        return repr(self._core)

    def start(self) -> None:
        """Start to listen.

        Raises:
            UsageError: it cannot listen on that address.
        """
        self._portal.call(self._core.start())

    def wait(self) -> None:
        """Wait until it is closed.

        Raises:
            HermesError: the target was lost; a forward that listens here notices that when it is used.
        """
        self._portal.call(self._core.wait())

    def close(self) -> None:
        """Stop listening and reset every open connection. Safe to call twice."""
        self._end(self._core.close())

    def __enter__(self) -> Self:
        """Start to listen."""
        self._portal.call(self._core.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class Orchestrator(BlockingProxy):
    """Hands out terminals: ``with orchestrator.terminal("build", key="alice") as terminal``.

    Use it with ``with``, from any number of threads. Each terminal is had by one caller alone; what it was used
    for is gone before another caller gets the target.
    """

    __slots__ = ()
    _core: AsyncOrchestrator

    def __init__(
        self,
        pools: Mapping[str, Pool | str] | None = None,
        *,
        limits: Mapping[str, int] | None = None,
        limit: int = 64,
        check_every_s: float = 30.0,
        check_limit_s: float = 10.0,
        recover: Literal["attach", "reap", "leave"] = "attach",
    ) -> None:
        """Prepare it; nothing is opened before ``start``.

        Args:
            pools: what each profile's name stands for: a Pool, or a target. A name that is not in here is
                itself taken as a profile of the configuration, or as a target.
            limits: the most terminals of each target (``Pool.place``, or the target).
            limit: the same for targets that are not in there.
            check_every_s: seconds between two looks at every terminal.
            check_limit_s: seconds within which a terminal must answer, twice missed, to count as well.
            recover: what is done about terminals of orchestrators that died: ``attach`` ends what they ran
                except jobs, and gives those that have jobs in ``recovered``; ``reap`` leaves the jobs to
                `hermes-exec jobs`; ``leave`` touches nothing.

        Raises:
            UsageError: a number is out of range.
        """
        loop_portal = portal()
        super().__init__(
            loop_portal,
            loop_portal.do(
                lambda: hermes_exec.Orchestrator(
                    pools,
                    limits=limits,
                    limit=limit,
                    check_every_s=check_every_s,
                    check_limit_s=check_limit_s,
                    recover=recover,
                )
            ),
        )

    @property
    def recovered(self) -> list[Recovered]:
        """The terminals that dead orchestrators had left when this one started."""
        return [Recovered(self._portal, core) for core in self._core.recovered]

    def __repr__(self) -> str:
        """Return its state and the names of its pools."""
        return repr(self._core)

    def start(self) -> None:
        """Settle what dead orchestrators left, then begin to fill the pools, which is not waited for.

        A target that is out of reach delays it by 20 s at most.

        Raises:
            ConfigError: no record can be kept; nothing was opened.
        """
        self._portal.call(self._core.start())
        self._portal.finalizers.register(self._core, self, "the orchestrator")

    def lease(self, profile: str, *, key: str = "", hold_s: float | None = None, wait_s: float | None = None) -> Lease:
        """Wait for a terminal of your own.

        Args:
            profile: the name of a pool, or of a profile, or a target.
            key: on whose behalf. Within a key, first come is first served; the keys take turns.
            hold_s: seconds after which it is closed, whatever runs on it; as the pool says if left out.
            wait_s: seconds to wait for it at most.

        Raises:
            PlaceUnavailable: none became free in time, or it cannot be opened; nothing ran.
            Closed: the orchestrator is not open.
        """
        return Lease(self._portal, self._portal.call(self._core.lease(profile, key=key, hold_s=hold_s, wait_s=wait_s)))

    def terminal(
        self, profile: str, *, key: str = "", hold_s: float | None = None, wait_s: float | None = None
    ) -> BlockingContextManager[Terminal]:
        """Have a terminal for the length of a ``with``; arguments and errors are those of ``lease``."""
        return BlockingContextManager(
            self._portal, self._core.terminal(profile, key=key, hold_s=hold_s, wait_s=wait_s), Terminal
        )

    def status(self) -> dict[str, PoolStatus]:
        """Return the status of each pool."""
        return self._portal.do(self._core.status)

    def drain(self, timeout_s: float = 30.0) -> int:
        """Lease no further terminals, wait up to ``timeout_s`` for the leased ones, then close all.

        Callers that still wait get `Closed`. Commands that still run are stopped, and their results say so; jobs
        continue. Returns the number of leases that were cut short. Safe to call twice.
        """
        self._portal.finalizers.unregister(self._core)
        return self._portal.call(self._core.drain(timeout_s))

    def close(self) -> None:
        """Stop what runs, but jobs, and close everything. Safe to call twice."""
        self._portal.finalizers.unregister(self._core)
        self._end(self._core.close())

    def __enter__(self) -> Self:
        """Start it."""
        self._portal.call(self._core.__aenter__())
        self._portal.finalizers.register(self._core, self, "the orchestrator")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; ``drain`` first where what is held shall come to its end."""
        self.close()


class Lease(BlockingProxy):
    """The right to use a terminal alone. Made by ``Orchestrator.lease``; leave its ``with`` to give it back.

    It ends by ``release``, when its time is over, when the terminal is found unhealthy, or when the orchestrator
    closes. After that, calls of the terminal raise Closed.
    """

    __slots__ = ()
    _core: AsyncLease

    @property
    def key(self) -> str:
        """The key."""
        return self._core.key

    @property
    def over(self) -> str:
        """Why it is over; empty while it holds."""
        return self._core.over

    def __repr__(self) -> str:
        """Return the key of its caller, and whether it has ended."""
        return repr(self._core)

    @property
    def terminal(self) -> Terminal:
        """The terminal that is leased."""
        return Terminal(self._portal, self._core.terminal)

    @property
    def profile(self) -> str:
        """The name of its pool."""
        return self._core.profile

    def extend(self, hold_s: float | None) -> None:
        """Let it last ``hold_s`` seconds from now on; None for as long as it is wanted.

        Raises:
            Closed: it is over, and why.
        """
        self._portal.do(lambda: self._core.extend(hold_s))

    def release(self) -> None:
        """Give the terminal back. It is closed, or cleaned for the next one, in the background. Safe to call twice."""
        self._portal.call(self._core.release())

    def __enter__(self) -> Self:
        """The lease itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it."""
        self._end(self._core.__aexit__(kind, error, trace))


class Recovered(BlockingProxy):
    """One terminal that a dead orchestrator had open. Commands that ran on it, except jobs, have an unknown outcome."""

    __slots__ = ()
    _core: AsyncRecovered

    @property
    def profile(self) -> str:
        """The profile."""
        return self._core.profile

    @property
    def key(self) -> str:
        """Whom it was handed out to."""
        return self._core.key

    @property
    def target(self) -> str:
        """The target."""
        return self._core.target

    @property
    def fate(self) -> Fate:
        """The fate."""
        return self._core.fate

    @property
    def jobs(self) -> tuple[JobStatus, ...]:
        """Running, or ended and not pruned yet."""
        return self._core.jobs

    @property
    def lease(self) -> Lease | None:
        """The terminal, if it was attached; release it when it is no longer needed."""
        return None if (core := self._core.lease) is None else Lease(self._portal, core)

    @property
    def note(self) -> str:
        """Why, where that is not plain."""
        return self._core.note


@check_call
def gather(
    terminals: Iterable[Terminal],
    command: Argument | Sequence[Argument],
    *,
    max_parallel: int | None = None,
    **options: Unpack[RunOptions],
) -> list[Result]:
    """Run a command in each terminal concurrently, and return the results in the order of the terminals.

    A failure in one terminal does not end the command in the others.

    Args:
        terminals: the open terminals.
        command: shell text, or a program and its arguments.
        max_parallel: terminals in which it runs at once; all by default.
        options: those of ``Terminal.run``.

    Raises:
        GatherFailed: at least one terminal raised; its ``outcomes`` have every result and every error.
        UsageError: ``terminals``, ``command``, ``max_parallel`` or the name of an option is wrong; nothing ran.
        KeyboardInterrupt: the user pressed Ctrl-C; the commands have ended by then.
    """
    return portal().call(hermes_exec.gather(unwrap(terminals), command, max_parallel=max_parallel, **options))


@check_call
def open(
    target: str | Profile | Backend | None = None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
    lease_s: float | str | None = None,
    carrier: Literal["auto", "guest", "plain"] | None = None,
    audit: bool | None = None,
) -> Terminal:
    """Open a target: ``with hermes_exec.sync.open("local") as terminal``.

    Args:
        target: a profile's name, a one-line target such as ``docker:python:3.11``, a Profile object, a Backend
            (with the ``cwd``, ``env``, ``secrets`` and ``setup`` of the profile that it was created from), or None
            for the configured default.
        cwd: the working directory of commands, which must exist.
        env: variables for every command.
        max_output: bytes of each stream that results keep; 8 MiB by default.
        lease_s: seconds, or text such as ``10m``, that the target keeps running after this process disappeared;
            900 by default.
        carrier: the transport. ``guest`` needs a Python in the target, ``plain`` only a shell and has fewer guarantees
            (docs/promises.md); ``auto`` chooses the better available one. As configured by default.
        audit: whether commands are recorded in the audit; as configured by default.

    Raises:
        UsageError: an argument is wrong, ``cwd`` does not exist, or a Backend cannot apply a key of its profile.
        ConfigError: the target or the configuration is wrong.
        PlaceUnavailable: the target could not be opened; nothing is left behind.
    """
    loop_portal = portal()
    core = loop_portal.call(
        hermes_exec.open(target, cwd=cwd, env=env, max_output=max_output, lease_s=lease_s, carrier=carrier, audit=audit)
    )
    terminal = Terminal(loop_portal, core)
    loop_portal.finalizers.register(core, terminal, core.target)
    return terminal
