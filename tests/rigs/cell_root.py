"""What a cell starts from: its root folder, the system's programs in it, and whether there can be one at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

PYTHON = "/usr/bin/python3"
_FOLDERS = (
    "root",
    "tmp",
    "home",
    "srv",
    "opt",
    "mnt",
    "var/tmp",
    "var/lib",
    "var/log",
    "usr",
    "etc",
    "run",
    "proc",
    "dev",
)
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS = (
    "passwd", "group", "nsswitch.conf", "host.conf", "hosts", "resolv.conf", "profile", "bash.bashrc", "ld.so.cache",
    "localtime", "os-release", "protocols", "services", "debian_version", "inputrc",
)  # fmt: skip


@cache
def why_not() -> str:
    """Why there can be no cell on this machine; empty where there can."""
    for program in ("bwrap", PYTHON):
        if not shutil.which(program):
            return f"{program} is missing"
    tried = ["bwrap", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"bubblewrap cannot make namespaces here: {done.stderr.strip()}"


def furnish(root: Path, base: Path | None) -> None:
    """Make a root, as a copy of ``base`` or a new one."""
    root.parent.mkdir(parents=True, exist_ok=True)
    if base is not None:
        copy(base, root)
        return
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / "root").chmod(0o700)
    for name in _SETTINGS:
        with contextlib.suppress(OSError):
            shutil.copy(f"/etc/{name}", root / "etc" / name)
    for name in _LINKS:
        if Path("/", name).is_symlink():
            (root / name).symlink_to(os.readlink(f"/{name}"))


def copy(source: Path, target: Path) -> None:
    """Copy a tree with its owners, modes and links."""
    subprocess.run(["cp", "-a", "--reflink=auto", "--", str(source), str(target)], check=True)


def words(root: Path) -> list[str]:
    """The options of bubblewrap for namespaces around a root, with the system's programs, to be read, in it."""
    words = ["--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"]
    if os.geteuid() != 0:
        words += ["--unshare-user", "--uid", "0", "--gid", "0"]
    system = [f"/{name}" for name in _LINKS if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    for path in ("/usr", "/etc/alternatives", *system):
        words += ["--ro-bind-try", path, path]
    return words
