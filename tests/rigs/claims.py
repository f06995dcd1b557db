"""What one process of the tests holds alone on this machine: numbers of users, ports, subnets, and folders of rigs.

A claim is a locked file. The kernel drops the lock with the process that holds it, however that process ends, so a
claim never outlives its holder and never belongs to two. What a holder that was killed has left (processes, mounts,
folders) is removed by the next claim of the same value, and by the next rig that makes a folder.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import ipaddress
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CLAIMS = Path("/tmp/hermes-exec-claims")
"""The locks of every run on this machine, of whatever checkout and user."""
USERS = range(50_000, 58_000)
"""Numbers that no Debian gives to anybody, below those that policies give to sandboxes."""
PORTS = range(12_000, 32_000)
"""Below those that the kernel gives to connections, which would take one between its choice and its use."""
SUBNETS = ipaddress.IPv4Network("10.128.0.0/9")
"""Where engines and networks of the tests have their addresses, 4096 for each."""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_END_S = 30.0
_PROCESS = os.getpid()
_held: dict[Path, Claim] = {}


class Claim:
    """The lock on one value; held until ``release`` or the end of this process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        _held[path] = self

    def release(self) -> None:
        """Give it up. Safe to call twice."""
        if _held.pop(self.path, None) is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._fd)


def take(kind: str, value: object) -> Claim | None:
    """Claim this value, or None when a living process holds it."""
    return _lock(CLAIMS / f"{kind}-{value}", os.O_CREAT)


def take_one(kind: str, values: Iterable[object]) -> tuple[str, Claim]:
    """Claim the first value of these that is free."""
    for value in values:
        if claim := take(kind, value):
            return str(value), claim
    raise RuntimeError(f"every {kind} is taken; {CLAIMS} has the locks of those that hold one")


def take_user() -> tuple[int, Claim]:
    """A number of a user that nobody else on this machine has; what an earlier holder left is removed."""
    start = random.choice(USERS)
    for number in [*range(start, USERS.stop), *range(USERS.start, start)]:
        if claim := take("user", number):
            remove_traces(number)
            return number, claim
    raise RuntimeError("every number of a user is taken")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no other run is given while this process lives."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if claim := take("port", port):
            with socket.socket() as sock:
                try:
                    sock.bind(("0.0.0.0", port))
                except OSError:
                    claim.release()
                    continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"there are no {count} free ports")


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


def take_subnet() -> tuple[ipaddress.IPv4Network, Claim]:
    """Addresses that no route or interface of this machine has, and no other run."""
    candidates = [*SUBNETS.subnets(new_prefix=20)]
    used = _list_routes()
    for subnet in random.sample(candidates, len(candidates)):
        if not any(subnet.overlaps(each) for each in used) and (claim := take("subnet", subnet.network_address)):
            return subnet, claim
    raise RuntimeError("every subnet is taken")


def let_through(subnet: ipaddress.IPv4Network) -> None:
    """Have the machine's packet filter forward what stays in the subnet: one beside a running Docker drops it."""
    _iptables("-I", "FORWARD", "-s", str(subnet), "-d", str(subnet), "-j", "ACCEPT")


def make_bridge(subnet: ipaddress.IPv4Network) -> str:
    """A bridge with the subnet's last addresses; gone with ``remove_subnet``."""
    name, last = f"hx{os.urandom(5).hex()}", [*subnet.subnets(new_prefix=24)][-1]
    for words in (("link", "add", name, "type", "bridge"), ("addr", "add", f"{last[1]}/24", "dev", name)):
        subprocess.run(["ip", *words], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return name


def remove_subnet(subnet: ipaddress.IPv4Network) -> None:
    """Remove the filter's rules for a claimed subnet, and the interfaces that have an address of it."""
    while _iptables("-D", "FORWARD", "-s", str(subnet), "-d", str(subnet), "-j", "ACCEPT"):
        pass
    shown = subprocess.run(["ip", "-o", "-4", "addr"], check=False, capture_output=True, text=True).stdout
    for _, name, _, address, *_ in map(str.split, shown.splitlines()):
        if ipaddress.ip_address(address.partition("/")[0]) in subnet:
            subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def make_folder(prefix: str) -> Path:
    """A new folder in /tmp, whose short name suits the path of a socket; ``remove_folder`` takes it away.

    Folders that killed processes have left, and the processes that run in them, are removed first.
    """
    _sweep()
    while True:
        path = Path("/tmp", f"{prefix}-{os.urandom(4).hex()}")
        if take("folder", path.name):
            path.mkdir(mode=0o755)
            path.chmod(0o755)
            return path


def remove_folder(path: Path) -> None:
    """End what still runs in the folder, unmount what is mounted below it, and remove it."""
    _end(lambda: _running_in(path))
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{path}/")]):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(path, ignore_errors=True)
    if claim := _held.get(CLAIMS / f"folder-{path.name}"):
        claim.release()


def remove_traces(user: int) -> None:
    """End every process of a claimed user, and remove what it has in the folders for temporary files."""
    _end(lambda: [pid for pid in processes.every() if _runs_as(pid, user)])
    for folder in map(Path, _TEMPORARY):
        for entry in folder.iterdir() if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if entry.lstat().st_uid == user:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _list_routes() -> list[ipaddress.IPv4Network]:
    lines = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    words = [(socket.ntohl(int(line[1], 16)), socket.ntohl(int(line[7], 16))) for line in lines]
    return [ipaddress.IPv4Network((number, mask.bit_count())) for number, mask in words if mask]


def _iptables(*words: str) -> bool:
    program = shutil.which("iptables", path=_PATH)
    return (
        program is not None
        and subprocess.run([program, "-w", *words], check=False, capture_output=True).returncode == 0
    )


def _lock(path: Path, options: int) -> Claim | None:
    with contextlib.suppress(FileExistsError):
        CLAIMS.mkdir(mode=0o1777)
        CLAIMS.chmod(0o1777)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | options, 0o600)
    except (PermissionError, FileNotFoundError):  # another user's, or gone
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), path.stat()):  # or its holder removed it meanwhile
            return Claim(path, fd)
    os.close(fd)
    return None


def _sweep() -> None:
    """Remove what the dead have left; a claim that can be locked has no living holder."""
    for path in [*CLAIMS.glob("*-*")]:
        if claim := _lock(path, 0):
            _clear(claim)


def _clear(claim: Claim) -> None:
    kind, _, value = claim.path.name.partition("-")
    if kind == "folder":
        remove_folder(Path("/tmp", value))
    if kind == "user":
        remove_traces(int(value))
    if kind == "subnet":
        remove_subnet(ipaddress.IPv4Network(f"{value}/20"))
    claim.release()


def _running_in(folder: Path) -> list[int]:
    """The processes that have the folder in their arguments or environment, with all below them."""
    name = str(folder).encode()
    own = {os.getpid(), os.getppid()}
    found = {
        pid for pid in processes.every() if any(name in processes.read(pid, file) for file in ("cmdline", "environ"))
    }
    return [pid for pid in set[int]().union(*map(processes.tree, found - own)) - own if processes.alive(pid)]


def _runs_as(pid: int, user: int) -> bool:
    # Not by the owner of its folder in /proc, which is root for one that has changed its user.
    numbers = processes.read(pid, "status").partition(b"\nUid:")[2].partition(b"\n")[0].split()
    return str(user).encode() in numbers and processes.alive(pid)


def _end(find: Callable[[], list[int]]) -> None:
    give_up = time.monotonic() + _END_S
    while (left := find()) and time.monotonic() < give_up:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@atexit.register  # before the rigs register their own end, so after it
def _clear_all() -> None:
    if os.getpid() == _PROCESS:  # not a fork of it
        for claim in [*_held.values()]:
            _clear(claim)
        with contextlib.suppress(OSError):
            CLAIMS.rmdir()
