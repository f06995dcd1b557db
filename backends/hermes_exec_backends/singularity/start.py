"""Start of one program in one container of Apptainer, controlled from outside: no process inside is trusted.

For untrusted code. Apptainer creates namespaces and provides the image; the launcher applies the rest of the
specification, in one more user namespace (``sandbox.userns``), because Apptainer lacks the options. Root changes to an
ordinary user first: a container that root starts can write the kernel's settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec.guest.core import process_tree
from hermes_exec_backends.sandbox.control import (
    LauncherSocket,
    launcher_argv,
    launcher_payload,
    memory_file,
    read_report,
)
from hermes_exec_backends.sandbox.mounts import APPTAINER_MOUNTS, HeldSources
from hermes_exec_backends.sandbox.ready import verify_and_hold
from hermes_exec_backends.sandbox.sandbox_handle import PipedSandbox, kill_group, output_streams, wait_for_exit
from hermes_exec_backends.sandbox.spec import Limits
from hermes_exec_backends.singularity.options import mount

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hermes_exec_backends.sandbox.run import Run
    from hermes_exec_backends.sandbox.spec import Confinement

PROGRAMS = ("apptainer", "singularity")
CONFIGURATIONS = ("/etc/apptainer/apptainer.conf", "/etc/singularity/singularity.conf")
"""The administrator's configuration of the mounts in every container."""
NESTED = ("user", "ipc", "uts", "cgroup")
"""Namespaces that the launcher creates; those of processes and of the network must exist before it."""
_START_S = 120.0
"""An image file may have to be unpacked first."""
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_DEATH = ("setpriv", "--pdeathsig", "KILL")
_AS_USER = (
    'mount --bind "$1" /etc/passwd && user=$2 && shift 2 && '
    'exec setpriv --reuid "$user" --regid "$user" --clear-groups --pdeathsig KILL "$@"'
)
"""Apptainer refuses users without a name, so it sees one, in a private mount namespace."""


async def start(
    confinement: Confinement,
    argv: Sequence[str],
    *,
    image: str,
    stdin: bytes = b"",
    limits: Limits | None = None,
    python: str = "/usr/bin/python3",
    program: str = "",
) -> Run:
    """Create a container and hold ``argv`` in it, ready to begin.

    Args:
        confinement: the restrictions and mounts of the container, apart from the image.
        argv: the program by its absolute path inside, and its arguments.
        image: the path of an image file or of an unpacked tree, which the confinement's user must be able to read.
        stdin: all data of its standard input.
        limits: the limits that end the whole container.
        python: the interpreter in the image that confines it, Python 3.6 or later.
        program: ``apptainer``, else ``singularity``, if omitted.

    Raises:
        UsageError: the specification or the program is invalid.
        Unsupported: a required restriction cannot be applied here; nothing was started.
        PlaceUnavailable: the container cannot be created; nothing was started.
    """
    _check(confinement, argv)
    path = next((found for name in ([program] if program else PROGRAMS) if (found := shutil.which(name))), None)
    if path is None:
        raise PlaceUnavailable(
            f"singularity: no {program or ' or '.join(PROGRAMS)} on the PATH", remedy="install Apptainer"
        )
    limits = limits or Limits()
    control = LauncherSocket()
    nested = [name for name in NESTED if name in confinement.namespaces]
    source = memory_file(
        launcher_payload(confinement, argv, mounts=True, nested=nested, wall_s=limits.wall_s), "launcher"
    )
    words = [path, "--silent", "exec", *options(confinement), image]
    words += launcher_argv(python, source, control.theirs.fileno())
    with _write_passwd(confinement) as names, HeldSources(confinement.binds) as sources:
        try:
            process = _spawn(words, confinement, stdin, [source, control.theirs.fileno()], names)
        except BaseException:
            control.close()
            raise
        finally:
            os.close(source)
        control.theirs.close()
        try:
            async with asyncio.timeout(_START_S):
                return await _ready(process, control, confinement, limits, image, sources)
        except BaseException as error:
            kill_group(process)  # and with it all processes inside
            await asyncio.shield(wait_for_exit(process))
            for stream in output_streams(process):
                stream.close()
            control.close()
            if isinstance(error, TimeoutError):
                raise PlaceUnavailable(f"singularity: no container within {_START_S:g} s") from None
            raise


async def _ready(
    process: subprocess.Popen[bytes],
    control: LauncherSocket,
    confinement: Confinement,
    limits: Limits,
    image: str,
    sources: HeldSources,
) -> Run:
    applied = await control.receive()
    told = read_report("singularity", applied, await control.receive() if applied.startswith(b"applied") else b"")
    if told is None:
        raise await _not_made(process, image)
    held = PipedSandbox(process, control, process_tree.stat(control.pid)[1])
    return await verify_and_hold(held, told, confinement, limits, APPTAINER_MOUNTS, sources)


def options(confinement: Confinement) -> list[str]:
    """Return the options of ``apptainer exec``."""
    words = ["--userns", "--containall", "--no-home", "--no-init", "--cleanenv", "--no-privs", "--drop-caps", "all"]
    if "net" in confinement.namespaces:
        words += ["--net", "--network", "none"]
    for bind in confinement.binds:
        words += ["--mount", mount(bind.source, bind.target, writable=bind.writable)]
    for folder in confinement.tmpfs:
        if not folder.target.startswith("/dev/"):
            words += ["--scratch", folder.target]  # creates a mount point for the real one
    return words


def _check(confinement: Confinement, argv: Sequence[str]) -> None:
    if not argv or not argv[0].startswith("/"):
        raise UsageError("the program in a sandbox is named by its absolute path inside")
    if confinement.uid is not None and os.geteuid() not in {0, confinement.uid}:
        raise UsageError("only root can run a sandbox as another user", remedy="a specification without uid")
    if confinement.uid is None and os.geteuid() == 0:
        raise UsageError("singularity: untrusted programs cannot run as root", remedy="a specification with a uid")
    if confinement.links or confinement.files:
        raise UsageError("singularity: links and files are those of the image")
    if not {"user", "pid"} <= confinement.namespaces:
        raise UsageError("singularity: a container has its own users and processes")


def _spawn(
    words: Sequence[str], confinement: Confinement, stdin: bytes, inherited: Sequence[int], names: str
) -> subprocess.Popen[bytes]:
    source = memory_file(stdin, "stdin") if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    before = ("unshare", "--mount", "/bin/sh", "-c", _AS_USER, "sh", names, str(confinement.uid)) if names else _DEATH
    try:
        return subprocess.Popen(
            [*before, *words],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, "HOME": "/tmp"},  # noqa: S108  nothing is kept there
            cwd="/",
            pass_fds=inherited,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise PlaceUnavailable(f"singularity: {words[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(source)


@contextlib.contextmanager
def _write_passwd(confinement: Confinement) -> Generator[str]:
    """Yield the path of a passwd file that names the sandbox's user; empty where the user stays the same."""
    if confinement.uid is None or os.geteuid() != 0:
        yield ""
        return
    line = f"sandbox:x:{confinement.uid}:{confinement.uid}::/:/sbin/nologin\n"
    with tempfile.NamedTemporaryFile("w", prefix="hermes-exec-", encoding="utf-8") as file:
        file.write(Path("/etc/passwd").read_text(encoding="utf-8", errors="replace") + line)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        yield file.name


async def _not_made(process: subprocess.Popen[bytes], image: str) -> PlaceUnavailable:
    await wait_for_exit(process)
    said = b"".join(stream.read(4096) for stream in output_streams(process)).decode("utf-8", "replace").strip()
    last = said.splitlines()[-1] if said else "it gave no reason"
    return PlaceUnavailable(f"singularity: {image} does not start as a sandbox: {last}")
