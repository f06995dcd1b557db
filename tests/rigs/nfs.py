"""A kernel's NFS server and two of its clients in one virtual machine, which runs this module as a program.

Each client has a network namespace, a host name and so a client id, a connection and caches of its own, as two
machines have. The server's own view of the export is a third one, without any cache of a client.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

EXPORT = Path("/export")
CLIENTS = (Path("/client1"), Path("/client2"))
_FOREVER = 2**31 - 1
_OPTIONS = 0x0002 | 0x0400 | 0x2000
"""Of the export: any port of a client, no check of subtrees, a number; writable and synchronous by default."""


def load_modules(folder: Path) -> None:
    """Load the modules of this folder that the kernel has not."""
    for module in sorted(folder.iterdir()):
        name = module.stem.partition("-")[2]
        if not Path("/sys/module", name).exists():
            _run("busybox", "insmod", str(module))


def serve() -> None:
    """Export a folder in memory with version 4, without any program of the server's: the kernel asks nothing."""
    EXPORT.mkdir()
    _run("mount", "-t", "tmpfs", "tmpfs", str(EXPORT))
    _run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    for number, client in enumerate(CLIENTS, 1):
        _connect(number)
        client.mkdir()
        _tell("/proc/net/rpc/auth.unix.ip/channel", f"nfsd 10.128.{number}.2 {_FOREVER} clients")
    _tell("/proc/net/rpc/nfsd.export/channel", f"clients {EXPORT} {_FOREVER} {_OPTIONS} 65534 65534 0")
    _tell("/proc/net/rpc/nfsd.fh/channel", f"clients 1 \\x00000000 {_FOREVER} {EXPORT}")
    _tell("/proc/fs/nfsd/nfsv4leasetime", "10")
    _tell("/proc/fs/nfsd/nfsv4gracetime", "10")
    _tell("/proc/fs/nfsd/versions", "-3 +4 +4.1 +4.2")
    _tell("/proc/fs/nfsd/portlist", "tcp 2049")
    _tell("/proc/fs/nfsd/threads", "8")
    with contextlib.suppress(OSError):
        _tell("/proc/fs/nfsd/v4_end_grace", "Y")  # there is no client of before to wait for


def mount() -> None:
    """Mount the export once for each client; what is cached stays as long as it ever does by default."""
    for number, path in enumerate(CLIENTS, 1):
        words = f"vers=4.2,proto=tcp,addr=10.128.{number}.1,clientaddr=10.128.{number}.2,sec=sys,hard,actimeo=60"
        script = f"hostname client{number} && busybox mount -i -t nfs4 -o {words} 10.128.{number}.1:/ {path}"
        _run("nsenter", f"--net=/run/netns/client{number}", "unshare", "--uts", "sh", "-c", script)


def _connect(number: int) -> None:
    space = f"client{number}"
    _run("ip", "netns", "add", space)
    _run("ip", "link", "add", f"server{number}", "type", "veth", "peer", "name", "net", "netns", space)
    _run("ip", "addr", "add", f"10.128.{number}.1/24", "dev", f"server{number}")
    _run("ip", "link", "set", f"server{number}", "up")
    _run("ip", "-n", space, "addr", "add", f"10.128.{number}.2/24", "dev", "net")
    _run("ip", "-n", space, "link", "set", "net", "up")
    _run("ip", "-n", space, "link", "set", "lo", "up")


def _tell(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, f"{text}\n".encode())
    finally:
        os.close(handle)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
