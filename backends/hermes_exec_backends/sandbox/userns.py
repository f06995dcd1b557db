"""Namespaces that the launcher makes itself, where the runtime that started it leaves it no right to mount.

Apptainer started by an ordinary user gives a program no capability, knows no ``noexec``, no size and no bound on files
for its folders, and covers nothing in /proc. One more user namespace, in which the launcher may mount, gives all that.

Part of the launcher, and sent with it where it is needed; see ``launcher``.
"""

import os

from .libc import unshare
from .mechanisms import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REMOUNT, check, mount

NEW = {"user": 0x10000000, "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000, "mnt": 0x00020000}
"""CLONE_NEW* of those that can be made by a process for itself."""
FLAGS = {
    b"nosuid": MS_NOSUID, b"nodev": MS_NODEV, b"noexec": MS_NOEXEC,
    b"noatime": 1024, b"nodiratime": 2048, b"relatime": 1 << 21,
}  # fmt: skip
"""What of a mount's options has to stay, because it was set by somebody with more rights."""


def enter(names: "list[str]") -> None:
    """Make these namespaces, and be the same user in them, with every capability until they are dropped."""
    uid, gid = os.getuid(), os.getgid()
    flags = NEW["mnt"] | sum(NEW[name] for name in names)
    check(unshare(flags), "new namespaces")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", "{0} {0} 1".format(uid)),
        ("gid_map", "{0} {0} 1".format(gid)),
    ):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def close_mounts(kept: "list[bytes]") -> None:
    """Make every mount read-only but those in ``kept`` and what is below /proc."""
    with open("/proc/self/mountinfo", "rb") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        path, options = fields[4].decode("unicode_escape").encode("latin-1"), fields[5].split(b",")
        if b"rw" in options and path not in kept and not (path + b"/").startswith(b"/proc/"):
            flags = sum(FLAGS.get(option, 0) for option in options)
            mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
