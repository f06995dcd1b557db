"""The ``ssh`` program as a transport: FIDO keys, Kerberos, ``Match``, and connections that ssh shares.

One *master* logs in and stays; every command is a client of its socket and needs no login. A master of the user's own
configuration (``ControlPath``) is used as it is, and left running. A new login is tried once, without questions; if
that needs the user, no attempt is made until the user has logged in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_backends.local.channel import ProcessChannel
from hermes_exec_backends.ssh import launch
from hermes_exec_backends.ssh.pool import SharedConnection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec_backends.profiles.ssh import SshProfile

_log = logging.getLogger("hermes_exec.ssh")
_LOOK_S = 1.0
"""The interval of checks whether the user has logged in again; each one queries a local socket."""
_LOGIN_S = 300.0
_END_S = 10.0
_ALONE_S = 60.0
"""The time limit of ssh commands that ask the user no question."""
_FAR_LOGIN_S = 0.5
"""Eight round trips of 20 ms each, and the programs' time; a host wrongly classified as slow costs 20 ms per guest."""
_HINTS = (
    ("Permission denied", "name the right user and key_path, or load the key into the agent"),
    ("IDENTIFICATION HAS CHANGED", "ask its administrator for the new fingerprint; ssh says above what to remove"),
    ("Host key verification failed", "compare the fingerprint and connect once with ssh, or say accept_new = true"),
    ("Could not resolve", "check its spelling and the network, or give an address"),
    ("timed out", "check host, port and firewall"),
    ("refused", "check host, port and whether sshd runs there"),
)


def arguments(profile: SshProfile) -> tuple[str, ...]:
    """Return the profile's settings as arguments of ``ssh``, which finds all others itself.

    Raises:
        ConfigError: the profile needs a feature that this transport does not support.
    """
    if profile.password or profile.passphrase:
        raise ConfigError(
            "ssh: the ssh program takes no password and no passphrase from us",
            remedy="load the key into the agent, or use transport = 'paramiko'",
        )
    options = {
        "Compression": "yes" if profile.compression else "",
        "ServerAliveInterval": f"{max(1, round(profile.keepalive_s))}",
        "ServerAliveCountMax": "2",  # ssh disconnects one interval after the last one
        "ConnectTimeout": f"{max(1, round(profile.connect_timeout_s))}",
        "StrictHostKeyChecking": "accept-new" if profile.accept_new else "yes",
        "UserKnownHostsFile": str(profile.known_hosts_path or ""),
        "GlobalKnownHostsFile": "none" if profile.known_hosts_path else "",
        "CertificateFile": str(profile.certificate_path or ""),
        "IdentitiesOnly": "yes" if profile.key_path else "",
        "IdentityAgent": "" if profile.agent else "none",
        "ProxyCommand": shlex.join(profile.proxy_command),
        "RemoteCommand": "none",
        "RequestTTY": "no",
        "ClearAllForwardings": "yes",
        "LogLevel": "ERROR",
    }
    words = [word for name, value in options.items() if value for word in ("-o", f"{name}={value}")]
    named = {"-F": profile.config_path, "-p": profile.port, "-l": profile.user, "-i": profile.key_path}
    words += [word for name, value in named.items() if value for word in (name, str(value))]
    return (*words, *(("-J", profile.proxy_jump) if profile.proxy_jump else ()))


class Master(SharedConnection):
    """A connection that the ``ssh`` program holds, ours or the user's own."""

    def __init__(self, host: str, words: tuple[str, ...]) -> None:
        super().__init__()
        self._host = host
        self._words = words
        self._folder = ""
        self._path = ""
        self._making = asyncio.Lock()
        self._login_s: float | None = None

    @property
    def far(self) -> bool:
        """Return whether the login was slow; true where another process has logged in."""
        return self._login_s is None or self._login_s > _FAR_LOGIN_S

    async def connect(self) -> None:
        """Start the master unless it runs, logging in if necessary.

        Raises:
            PlaceUnavailable: the login failed; includes the error output of ssh. Nothing remains.
        """
        if not shutil.which("ssh"):
            raise PlaceUnavailable("ssh: the program ssh is not here", remedy="apt-get install openssh-client")
        async with self._making:
            if not self._path:
                self._path = await self._control_path()
            if not self._alive():
                await self._log_in(interactive=sys.stdin is not None and sys.stdin.isatty())

    async def _control_path(self) -> str:
        """Return the configured path of shared connections, or one in a private directory."""
        out = await self._run("-G", self._host)
        found = [line.partition(" ")[2] for line in out.splitlines() if line.startswith("controlpath ")]
        if found and found[0] not in {"", "none"}:
            return found[0]
        self._folder = tempfile.mkdtemp(prefix="hx-ssh-", dir=os.environ.get("XDG_RUNTIME_DIR") or None)
        return f"{self._folder}/m"

    def _alive(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door, contextlib.suppress(OSError):
            door.settimeout(1.0)
            door.connect(self._path)
            return True
        return False

    async def _log_in(self, *, interactive: bool) -> None:
        questions = "no" if interactive else "yes"
        began = asyncio.get_running_loop().time()
        await self._run(
            "-o", f"BatchMode={questions}", "-o", "ControlMaster=yes", "-o", f"ControlPath={self._path}",
            "-o", "ControlPersist=yes", "-N", "-f", self._host, patience_s=_LOGIN_S if interactive else _ALONE_S,
        )  # fmt: skip
        self._login_s = asyncio.get_running_loop().time() - began

    async def _run(self, *words: str, patience_s: float = _ALONE_S) -> str:
        # A file receives its error output: the master that stays running would keep a pipe open.
        with tempfile.TemporaryFile() as said:
            process = await asyncio.create_subprocess_exec(
                "ssh", *self._words, *words, stdin=None, stdout=asyncio.subprocess.PIPE if "-G" in words else said,
                stderr=said,
            )  # fmt: skip
            try:
                async with asyncio.timeout(patience_s):
                    out, _ = await process.communicate()
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                if isinstance(error, TimeoutError):
                    raise self._build_failure(f"no answer within {patience_s:g} s") from None
                raise
            if process.returncode == 0:
                return (out or b"").decode("utf-8", "replace")
            said.seek(0)
            raise self._build_failure(said.read()[-4096:].decode("utf-8", "replace").strip())

    def _build_failure(self, said: str) -> PlaceUnavailable:
        hint = next((hint for mark, hint in _HINTS if mark in said), "run ssh by hand to see more")
        return PlaceUnavailable(f"ssh: {self._host}: {said or 'ssh failed without a word'}", remedy=hint)

    async def spawn(
        self,
        argv: Sequence[str | bytes],
        receiver: Receiver,
        env: Mapping[str, str] | None,
        setup: Sequence[str],
        patience_s: float,
    ) -> Channel:
        """Start ``argv`` on the host; see ``SharedConnection.spawn``."""
        async with self._making:
            if not self._alive():
                try:
                    await self._log_in(interactive=False)
                except PlaceUnavailable as error:
                    if "Permission denied" not in error.what:
                        raise
                    await self._person(error, patience_s)
        nonce = launch.new_nonce()
        line = launch.line(argv, nonce, env, setup, watched=True)
        start = launch.Start(receiver, nonce, lambda: channel.abandon())  # noqa: PLW0108  it comes later
        control = ("-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", f"ControlPath={self._path}")
        try:
            channel = ProcessChannel(["ssh", *self._words, *control, self._host, launch.COMMAND], start, os.environ)
        except OSError as error:
            what = f"ssh: the program ssh cannot be started: {error.strerror}"
            raise PlaceUnavailable(what, remedy="apt-get install openssh-client, or transport = 'paramiko'") from error
        channel.write(line)
        return channel

    async def _person(self, error: PlaceUnavailable, patience_s: float) -> None:
        again = shlex.join(["ssh", *self._words, "-M", "-S", self._path, "-N", "-f", self._host])
        _log.warning("%s. Waiting until a user logs in again: %s", error.what, again)
        try:
            async with asyncio.timeout(patience_s):
                while not self._alive():  # noqa: ASYNC110  a person elsewhere sets no event
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise error from None

    async def close(self) -> None:
        """End the master if this process started it."""
        if self._folder:
            with contextlib.suppress(PlaceUnavailable):
                await self._run("-o", f"ControlPath={self._path}", "-O", "exit", self._host, patience_s=_END_S)
            await asyncio.get_running_loop().run_in_executor(None, _remove, Path(self._folder))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
