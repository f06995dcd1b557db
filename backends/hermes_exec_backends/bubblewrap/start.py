"""Start one untrusted program in one bubblewrap sandbox from outside, without trusted code next to it.

The specification is applied completely or nothing starts, and the program waits until the sandbox has been verified.
For commands of a person or an agent, open a terminal instead; its guest runs in the sandbox.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec.guest.core import process_tree
from hermes_exec_backends.bubblewrap.options import program_options
from hermes_exec_backends.sandbox.bounds import LimitEnforcer
from hermes_exec_backends.sandbox.control import (
    LauncherReport,
    LauncherSocket,
    empty_file,
    launcher_argv,
    launcher_payload,
    memory_file,
    read_report,
)
from hermes_exec_backends.sandbox.host import explain_refusal, read_sysctls
from hermes_exec_backends.sandbox.mounts import BUBBLEWRAP_MOUNTS, HeldSources
from hermes_exec_backends.sandbox.observe import WatchSpec, observing_filter
from hermes_exec_backends.sandbox.ready import verify_and_hold
from hermes_exec_backends.sandbox.sandbox_handle import PipedSandbox, kill_group, output_streams, wait_for_exit
from hermes_exec_backends.sandbox.spec import Confinement, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import FileIO

    from hermes_exec_backends.sandbox.run import Run

_START_S = 60.0
_NUMBERS = 520
"""The lowest number of a descriptor whose number the program can read; the kernel doubles its table at 512."""


async def start(
    confinement: Confinement,
    argv: Sequence[str],
    *,
    stdin: bytes | None = b"",
    limits: Limits | None = None,
    watch: WatchSpec | None = None,
    python: str = "/usr/bin/python3",
    program: str = "bwrap",
) -> Run:
    """Create a sandbox and hold ``argv`` in it, ready to begin.

    Args:
        confinement: the specification of the sandbox.
        argv: the absolute path of the program inside, and its arguments.
        stdin: its whole standard input; None to pass it to ``go``.
        limits: limits of the sandbox as a whole.
        watch: the system calls to observe from outside, besides those that the filter refuses.
        python: the interpreter inside that runs the launcher, Python 3.6 or later.
        program: the bwrap program.

    Raises:
        UsageError: the specification or the program is invalid here.
        Unsupported: a required mechanism is not available; nothing was started.
        PlaceUnavailable: the sandbox cannot be created; nothing was started.
    """
    _check(confinement, argv, watch)
    path = shutil.which(program)
    if path is None:
        raise PlaceUnavailable(f"bubblewrap: no {program} on the PATH", remedy="apt-get install bubblewrap")
    observed = observing_filter(confinement.seccomp, watch.calls) if watch else b""
    payload = launcher_payload(confinement, argv, mounts=True, observed=observed)
    control = LauncherSocket()
    with HeldSources(confinement.binds) as sources:
        try:
            process, later = _start_bwrap(path, confinement, payload, stdin, control, python)
        except BaseException:
            control.close()
            raise
        control.theirs.close()
        return await _hold(process, later, control, confinement, limits or Limits(), watch, sources)


async def _hold(
    process: subprocess.Popen[bytes],
    later: FileIO | None,
    control: LauncherSocket,
    confinement: Confinement,
    limits: Limits,
    watch: WatchSpec | None,
    sources: HeldSources,
) -> Run:
    """Return the run of a started sandbox once it matches its specification; otherwise end it."""
    bounds = LimitEnforcer(limits)
    bounding = asyncio.ensure_future(asyncio.to_thread(bounds.hold_starter, process.pid))
    try:
        async with asyncio.timeout(_START_S):
            report = await _read_launcher_report(process, control)
            await asyncio.shield(bounding)
            held = PipedSandbox(process, control, process_tree.stat(control.pid)[1], later)
            run = await verify_and_hold(held, report, confinement, limits, BUBBLEWRAP_MOUNTS, sources, bounds)
            if watch is not None:
                listener, control.listener = control.listener, -1
                run.observe(listener, confinement.seccomp, watch)
            return run
    except BaseException as error:
        kill_group(process)  # ends the whole sandbox
        await asyncio.shield(asyncio.gather(wait_for_exit(process), bounding))
        bounds.remove()
        for stream in output_streams(process):
            stream.close()
        control.close()
        if later:
            later.close()
        if isinstance(error, TimeoutError):
            raise PlaceUnavailable(f"bubblewrap: no sandbox within {_START_S:g} s") from None
        raise


def _start_bwrap(
    path: str, confinement: Confinement, payload: bytes, stdin: bytes | None, control: LauncherSocket, python: str
) -> tuple[subprocess.Popen[bytes], FileIO | None]:
    """Start bwrap with the launcher; return the process, and the file for its standard input if that follows later."""
    files = [memory_file(data, "file") for _, data in confinement.files]
    source = memory_file(payload, "launcher")
    later = os.fdopen(empty_file("stdin"), "wb", buffering=0) if stdin is None else None
    now = -1 if stdin is None else _stdin_file(stdin)
    source, reported = _renumber(source), _renumber(os.dup(control.theirs.fileno()))
    inherited = [*files, source, reported]
    try:
        command = [path, *program_options(confinement, files), "--", *launcher_argv(python, source, reported)]
        return _spawn(command, confinement, now if later is None else later.fileno(), inherited), later
    except BaseException:
        if later is not None:
            later.close()
        raise
    finally:
        for fd in (*inherited, *([now] if later is None else [])):
            os.close(fd)


def _check(confinement: Confinement, argv: Sequence[str], watch: WatchSpec | None) -> None:
    if watch is not None and not confinement.seccomp:
        raise UsageError("system calls can only be observed with a seccomp filter")
    if not argv or not argv[0].startswith("/"):
        raise UsageError("argv[0] has to be the absolute path of the program in the sandbox")
    if confinement.uid is not None and os.geteuid() not in {0, confinement.uid}:
        raise UsageError("only root can start a sandbox as another user", remedy="a specification without uid")
    if "user" not in confinement.namespaces:
        raise UsageError("bubblewrap creates no sandbox without a user namespace")


def _renumber(fd: int) -> int:
    """Move a descriptor to a random number of three digits, because the program can read it in the launcher's argv.

    The lowest free number depends on what else this process does, which differs between a check and a use.
    """
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _NUMBERS + secrets.randbelow(400))
    except OSError:  # this process may not have so many
        return fd
    os.close(fd)
    return moved


def _stdin_file(data: bytes) -> int:
    """A sealed file: unlike a pipe it needs no writer, and unlike other memory files it cannot be written."""
    return memory_file(data, "stdin") if data else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _spawn(
    command: Sequence[str], confinement: Confinement, stdin: int, inherited: Sequence[int]
) -> subprocess.Popen[bytes]:
    becomes = confinement.uid is not None and os.geteuid() == 0
    group = confinement.uid if confinement.gid is None else confinement.gid
    setpriv = _setpriv() if becomes else None
    if setpriv is not None:
        # To change the user, Popen would fork instead of vfork, and copy our page tables.
        command = [setpriv, f"--reuid={confinement.uid}", f"--regid={group}", "--clear-groups", *command]
        becomes = False
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},  # bwrap's environment can be read inside
            cwd="/",
            pass_fds=inherited,
            start_new_session=True,
            bufsize=0,
            user=confinement.uid if becomes else None,
            group=group if becomes else None,
            extra_groups=() if becomes else None,
        )
    except OSError as error:
        raise PlaceUnavailable(f"bubblewrap: {command[0]} cannot be started: {error.strerror}") from error


def _setpriv() -> str | None:
    """The path of setpriv, which changes the user and executes bwrap; None if missing or busybox's, which cannot."""
    found = shutil.which("setpriv")
    return found if found is not None and Path(found).resolve().name == "setpriv" else None


async def _read_launcher_report(process: subprocess.Popen[bytes], control: LauncherSocket) -> LauncherReport:
    applied = await control.receive()
    report = read_report("bubblewrap", applied, await control.receive() if applied.startswith(b"applied") else b"")
    if report is None:
        raise await _explain_failure(process)
    return report


async def _explain_failure(process: subprocess.Popen[bytes]) -> PlaceUnavailable:
    await wait_for_exit(process)
    output = b"".join(stream.read(4096) for stream in output_streams(process)).decode("utf-8", "replace").strip()
    why = explain_refusal(output, read_sysctls(Path("/proc/sys")), root=os.geteuid() == 0)
    return PlaceUnavailable(f"bubblewrap: no sandbox could be created: {why.reason}", remedy=why.remedy)
