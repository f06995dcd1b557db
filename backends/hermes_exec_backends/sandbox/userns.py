"""Create a user namespace in which the launcher may mount, if the runtime that started it does not allow mounts.

Apptainer, started by an ordinary user, grants a program no capability, supports neither ``noexec`` nor a size nor a
limit of inodes for its folders, and masks nothing in /proc. In its own user namespace the launcher sets all of that.

Part of the launcher, and sent with it if needed; see ``launcher``.
"""

import os

from .libc import unshare
from .mechanisms import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REMOUNT, check, mount

NEW = {"user": 0x10000000, "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000, "mnt": 0x00020000}
"""The CLONE_NEW* flags of namespaces that a process can create for itself."""
FLAGS = {
    b"nosuid": MS_NOSUID, b"nodev": MS_NODEV, b"noexec": MS_NOEXEC,
    b"noatime": 1024, b"nodiratime": 2048, b"relatime": 1 << 21,
}  # fmt: skip
"""Mount options that cannot be cleared, because they were set with more privileges."""


def enter(names: "list[str]") -> None:
    """Create these namespaces with the same user, who has all capabilities there until they are dropped."""
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
    """Make each mount read-only except those in ``kept`` and those below /proc."""
    with open("/proc/self/mountinfo", "rb") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        path, options = fields[4].decode("unicode_escape").encode("latin-1"), fields[5].split(b",")
        if b"rw" in options and path not in kept and not (path + b"/").startswith(b"/proc/"):
            flags = sum(FLAGS.get(option, 0) for option in options)
            mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
