"""A real sshd on a free port of the loopback, with keys, settings and users of its own.

As root it runs in a mount namespace whose ``/etc/passwd`` holds the test's users, so that each has the
login shell, the home and the login files that a test wants, and nothing outside changes. Their numbers are
claimed, so that no other run has processes, files or limits of the same users. As an ordinary user it lets in
that user alone.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hermes_exec_backends.profiles.ssh import SshProfile
from tests.conftest import require_engines, require_part
from tests.rigs import claims, processes
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = os.geteuid() == 0
_SETTINGS = """\
ListenAddress 127.0.0.1
StrictModes no
UsePAM {pam}
PermitRootLogin yes
PrintMotd no
LogLevel VERBOSE
MaxStartups 100:30:200
MaxSessions 100
MaxAuthTries 20
Subsystem sftp internal-sftp
"""
_INSIDE = """\
set -e
mount --make-rprivate /
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
mount --bind "$1/shadow" /etc/shadow
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
[ ! -f "$1/pam" ] || mount --bind "$1/pam" /etc/pam.d/sshd
[ ! -d "$1/profile.d" ] || mount --bind "$1/profile.d" /etc/profile.d
exec "$2" -D -f "$1/config" -E "$1/log"
"""


def program(name: str, why: str) -> str:
    """Where a program is, also one that an ordinary user's PATH lacks."""
    require_engines()
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return found or require_part(name, why)


@dataclass
class User:
    """Somebody who can log in, and the files in their home."""

    name: str
    shell: str = "/bin/bash"
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    password: str = ""


class Sshd:
    """The daemon; ``start`` and ``stop`` may be called many times, the port stays."""

    def __init__(
        self,
        *users: User,
        settings: str = "",
        pam: str = "",
        profile_d: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1",
        inside: tuple[str, ...] = (),
    ) -> None:
        self._program = program("sshd", "the server that is connected to; Debian's openssh-server has it")
        if users and not ROOT:
            require_part("users of their own", "only root can give sshd a passwd of its own", usable=False)
        # Not below pytest's own folders: those are closed to the users that log in.
        self.folder = folder = claims.make_folder("hx-sshd")
        self.listen = listen
        self._inside = inside
        self.users = list(users) if ROOT else []
        if ROOT and not self.users:
            self.users = [User("worker")]
        self.user = self.users[0].name if ROOT else getpass.getuser()
        self.host_key = self.new_key("host_key")
        self.key = self.new_key("key")
        shutil.copy(f"{self.key}.pub", folder / "authorized_keys")
        self.port = claims.free_port()
        # Of two values sshd takes the first; what follows a Match belongs to it.
        before, *conditions = settings.format(folder=folder).partition("Match ")
        match = "".join(conditions) + "\n"
        (folder / "config").write_text(
            f"Port {self.port}\nHostKey {self.host_key}\nAuthorizedKeysFile {folder}/authorized_keys\n"
            f"PidFile {folder}/pid\n"
            f"{before}\n" + _SETTINGS.format(pam="yes" if pam else "no").replace("127.0.0.1", listen) + match
        )
        self._numbers: list[tuple[int, claims.Claim]] = []
        if ROOT:
            self._accounts()
        if pam:
            (folder / "pam").write_text(pam)
        if profile_d is not None:
            (folder / "profile.d").mkdir()
            for name, text in profile_d.items():
                (folder / "profile.d" / name).write_text(text)
        self._process: subprocess.Popen[bytes] | None = None
        self.know()

    def new_key(self, name: str, *options: str) -> Path:
        """A key pair of its own."""
        path = self.folder / name
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *options]
        program("ssh-keygen", "makes keys")
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        return path

    def _accounts(self) -> None:
        passwd = Path("/etc/passwd").read_text()
        shadow = "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n"
        group = Path("/etc/group").read_text()
        for user in self.users:
            uid, claim = claims.take_user()
            self._numbers.append((uid, claim))
            home = self.home(user.name)
            home.mkdir(mode=0o755, parents=True, exist_ok=True)
            for name, text in user.files.items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_text(text)
            subprocess.run(["chown", "-R", f"{uid}:{uid}", str(home)], check=True)
            passwd += f"{user.name}:x:{uid}:{uid}::{home}:{user.shell}\n"
            group += f"{user.name}:x:{uid}:\n"
            crypted = "*"
            if user.password:
                argv = ["openssl", "passwd", "-6", user.password]
                crypted = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
            shadow += f"{user.name}:{crypted}:19000:0:99999:7:::\n"
        if "\nsshd:" not in passwd:
            passwd += "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
        for name, text in {"passwd": passwd, "shadow": shadow, "group": group}.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o644 if name != "shadow" else 0o600)

    def home(self, user: str = "") -> Path:
        """A user's home."""
        return self.folder / "homes" / (user or self.user) if ROOT else Path(pwd.getpwuid(os.getuid()).pw_dir)

    def know(self) -> None:
        """Write ``known_hosts`` with the key as it is now."""
        kind, key = Path(f"{self.host_key}.pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[{self.listen}]:{self.port} {kind} {key}\n")

    def start(self) -> Self:
        """Run it, and return when it listens."""
        argv = [self._program, "-D", "-f", f"{self.folder}/config", "-E", f"{self.folder}/log"]
        if ROOT:
            unshare = program("unshare", "makes the namespace with users of its own")
            argv = [unshare, "-m", "sh", "-c", _INSIDE, "sh", str(self.folder), self._program]
        self._process = subprocess.Popen(
            [*self._inside, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        give_up = time.monotonic() + PATIENCE_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > give_up:
                log = (self.folder / "log").read_text() if (self.folder / "log").exists() else "no log"
                raise AssertionError(f"sshd does not start: {log}")
            time.sleep(0.02)
        return self

    def _listens(self) -> bool:
        return (self.folder / "pid").exists() and (self.folder / "pid").read_text().strip() != ""

    def stop(self, *, connections: bool = True) -> None:
        """End it; with ``connections`` everything that still talks through it loses its connection too."""
        process, self._process = self._process, None
        if process is None:
            return
        if connections:
            for pid in self.talking():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.terminate()
        process.wait(PATIENCE_S)
        (self.folder / "pid").unlink(missing_ok=True)

    def close(self) -> None:
        """End it with all that its users run, and remove what it was made of."""
        self.stop()
        for uid, claim in self._numbers:
            claims.remove_traces(uid)
            claim.release()
        claims.remove_folder(self.folder)

    def __enter__(self) -> Self:
        """Run it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.close()

    def talking(self) -> list[int]:
        """The sshd processes that serve connections."""
        listener = int((self.folder / "pid").read_text())
        below = [each for pid in processes.children(listener) for each in (pid, *processes.children(pid))]
        return [each for each in below if processes.name(each) == "sshd"]

    def log(self) -> str:
        """What it has to say."""
        return (self.folder / "log").read_text()

    def profile(self, **options: Any) -> SshProfile:
        """How to get there, reading nothing of the person's own."""
        nothing = self.folder / "no_config"
        nothing.touch()
        return SshProfile.model_validate(
            {
                "host": self.listen,
                "port": self.port,
                "user": self.user,
                "key_path": str(self.key),
                "known_hosts_path": str(self.folder / "known_hosts"),
                "config_path": str(nothing),
                "agent": False,
                **options,
            }
        )
